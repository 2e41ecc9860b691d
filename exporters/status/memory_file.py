"""A file of device memory, whichever kind it is, as one struct and as text."""

import msgspec

from ...analyzers.flight_summary import FlightSummary, summarize_flight_record
from ...analyzers.fragmentation.advice import SettingsAdvice, advise_settings
from ...analyzers.snapshot_summary import SnapshotSummary, summarize_snapshot
from ...engine.errors import UsageError
from ...engine.model.flight_record import FlightRecord
from ...engine.model.memory_snapshot import MemorySnapshot
from ..inspect.flight_text import describe_flight_record
from ..inspect.snapshot_text import describe_summary


class SnapshotReport(SnapshotSummary, frozen=True, kw_only=True):
    """A whole snapshot, with what its trace comes to under other allocator settings."""

    settings_advice: tuple[SettingsAdvice, ...] = ()
    """Of each device, simulated; `reason` says why where there is none."""


def summarize_memory_file(
    content: MemorySnapshot | FlightRecord, *, top: int, device: int | None = None
) -> SnapshotReport | FlightSummary:
    """Return what a file says, with what other allocator settings would have done; takes seconds.

    Args:
        content: What was read.
        top: Stacks to keep, of each device.
        device: The only device to tell of; None for all.

    Raises:
        UsageError: The file does not tell of the device.
    """
    if isinstance(content, FlightRecord):
        return summarize_flight(content, top=top, device=device)
    summary = summarize_devices(content, top=top, device=device)
    advice = tuple(advise_settings(content, each.device) for each in summary.devices)
    return SnapshotReport(**msgspec.structs.asdict(summary), settings_advice=advice)


def describe_memory_file(
    content: MemorySnapshot | FlightRecord, *, top: int, device: int | None = None, width: int
) -> str:
    """Return what a file says as text.

    Args:
        content: What was read.
        top: Stacks to show, of each device.
        device: The only device to tell of; None for all.
        width: Cells of a line.

    Raises:
        UsageError: The file does not tell of the device.
    """
    if isinstance(content, FlightRecord):
        _check_device(device, _list_devices(content))
        return describe_flight_record(content, width=width, top=top)
    summary = summarize_devices(content, top=top, device=device)
    advice = [advise_settings(content, each.device) for each in summary.devices]
    return describe_summary(summary, width=width, advice=advice)


def summarize_devices(content: MemorySnapshot, *, top: int, device: int | None) -> SnapshotSummary:
    """Return what a snapshot says of all devices, or of the one that was asked for.

    Args:
        content: What was read.
        top: Stacks to keep, of each device.
        device: The only device to tell of; None for all.

    Raises:
        UsageError: The file does not tell of the device.
    """
    _check_device(device, content.devices)
    summary = summarize_snapshot(content, top=top)
    chosen = tuple(each for each in summary.devices if device in {None, each.device})
    return msgspec.structs.replace(summary, devices=chosen)


def summarize_flight(content: FlightRecord, *, top: int, device: int | None) -> FlightSummary:
    """Return what a flight record comes to.

    Args:
        content: What was read.
        top: Stacks to keep.
        device: The only device to tell of; None for whichever it is.

    Raises:
        UsageError: The record is of another device.
    """
    _check_device(device, _list_devices(content))
    summary = summarize_flight_record(content)
    return msgspec.structs.replace(summary, stacks=summary.stacks[:top])


def _list_devices(record: FlightRecord) -> tuple[int, ...]:
    return () if record.device.index is None else (record.device.index,)


def _check_device(device: int | None, known: tuple[int, ...]) -> None:
    if device is not None and device not in known:
        told = ", ".join(map(str, known)) or "none"
        raise UsageError(f"--device {device}: the devices that the file tells of are {told}")
