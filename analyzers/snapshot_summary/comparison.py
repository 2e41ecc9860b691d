"""Two snapshots compared: what lived at the peak and at the end of each, and what is new, gone or larger."""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from ...engine.model.memory_snapshot import MemorySnapshot, TraceAction
from ...engine.units import format_bytes
from ..diff.model import say_apart, say_signed
from .cursor import ChangeGroups, LiveMoment, TimeCursor, compare_groups

When = Literal["peak", "end"]


class ComparedMoment(msgspec.Struct, frozen=True):
    """One moment of both snapshots."""

    when: When
    a: LiveMoment
    b: LiveMoment
    changes: tuple[ChangeGroups, ...]
    """B less A."""

    @property
    def difference_bytes(self) -> int:
        return (self.b.allocated_bytes or 0) - (self.a.allocated_bytes or 0)


class ComparedDevice(msgspec.Struct, frozen=True):
    device: int
    peak: ComparedMoment | None
    """When most was allocated; None where one of the snapshots has no history."""
    end: ComparedMoment
    """When the snapshots were made."""
    ooms_a: int | None
    """Out-of-memory errors in the history; None where there is none."""
    ooms_b: int | None

    @property
    def has_failed_in_b_only(self) -> bool:
        return bool(self.ooms_b) and self.ooms_a == 0

    @property
    def moments(self) -> tuple[ComparedMoment, ...]:
        return (self.end,) if self.peak is None else (self.peak, self.end)


class SnapshotFacts(msgspec.Struct, frozen=True):
    """One of the two snapshots."""

    file: str
    events: int
    """Events of its history, of all devices."""
    is_simulated: bool
    """Whether a device was modelled, so that its values were not measured."""
    notes: tuple[str, ...] = ()


class SnapshotDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What two snapshots differ in."""

    schema: Literal["vramscope.snapshot-difference/1"] = "vramscope.snapshot-difference/1"
    verdict: str
    """The result in one sentence."""
    a: SnapshotFacts
    b: SnapshotFacts
    devices: tuple[ComparedDevice, ...]
    """Those that are in both."""
    only_in_a: tuple[int, ...]
    only_in_b: tuple[int, ...]


def compare_snapshots(
    a: MemorySnapshot, b: MemorySnapshot, files: tuple[str, str], most: int
) -> SnapshotDifference:
    """Compare two snapshots, with the `most` largest rows of each list."""
    in_both = [device for device in a.devices if device in b.devices]
    devices = tuple(_compare_device(a, b, device, most) for device in in_both)
    return SnapshotDifference(
        verdict=_judge(devices) if devices else _explain_nothing(a.devices, b.devices),
        a=_describe(a, files[0]),
        b=_describe(b, files[1]),
        devices=devices,
        only_in_a=tuple(device for device in a.devices if device not in in_both),
        only_in_b=tuple(device for device in b.devices if device not in in_both),
    )


def _describe(snapshot: MemorySnapshot, file: str) -> SnapshotFacts:
    return SnapshotFacts(
        file=file,
        events=sum(map(len, snapshot.traces)),
        is_simulated=snapshot.simulated is not None,
        notes=snapshot.notes,
    )


def _compare_device(a: MemorySnapshot, b: MemorySnapshot, device: int, most: int) -> ComparedDevice:
    one, other = TimeCursor(a, device), TimeCursor(b, device)

    def compare(when: When, find: Callable[[TimeCursor], int]) -> ComparedMoment:
        # Every row is needed to find what only one of them has.
        before, after = (cursor.moment(find(cursor), 2**31) for cursor in (one, other))
        changes = compare_groups(before.groups, after.groups, most)
        return ComparedMoment(when, _cut_rows(before, most), _cut_rows(after, most), changes)

    has_history = one.newest >= 0 and other.newest >= 0
    return ComparedDevice(
        device=device,
        peak=compare("peak", lambda cursor: cursor.peak) if has_history else None,
        end=compare("end", lambda cursor: cursor.newest),
        ooms_a=_count_ooms(a, device),
        ooms_b=_count_ooms(b, device),
    )


def _cut_rows(moment: LiveMoment, most: int) -> LiveMoment:
    groups = tuple(msgspec.structs.replace(each, rows=each.rows[:most]) for each in moment.groups)
    return msgspec.structs.replace(moment, groups=groups)


def _count_ooms(snapshot: MemorySnapshot, device: int) -> int | None:
    traces = [trace for trace in snapshot.traces if trace.device == device and len(trace)]
    return sum(trace.action.count(TraceAction.OOM) for trace in traces) if traces else None


def _explain_nothing(in_a: Sequence[int], in_b: Sequence[int]) -> str:
    """Return why nothing is compared, in one sentence."""
    empty = [run for run, devices in (("A", in_a), ("B", in_b)) if not devices]
    if empty:
        are = (
            "A and B are empty memory snapshots"
            if len(empty) > 1
            else f"{empty[0]} is an empty memory snapshot"
        )
        return (
            f"Nothing is compared: {are}, without segments and events; expected one that was made while "
            "tensors were allocated"
        )
    a, b = (", ".join(map(str, devices)) for devices in (in_a, in_b))
    return f"Nothing is compared: no device is in both snapshots; A has device {a}, B has device {b}"


def _judge(devices: tuple[ComparedDevice, ...]) -> str:
    failed = next((it for it in devices if it.has_failed_in_b_only), None)
    error = "" if failed is None else f"; only B ran out of memory, on device {failed.device}"
    every = [(device, moment) for device in devices for moment in device.moments]
    peaks = [(device, device.moments[0]) for device in devices]
    # What differs only at the end is smaller than the peak, and needs no more memory.
    found = peaks if any(moment.difference_bytes for _, moment in peaks) else every
    device, moment = max(found, key=lambda it: abs(it[1].difference_bytes))
    when = "at its peak" if moment.when == "peak" else "at the end"
    if not moment.difference_bytes:
        size = format_bytes(moment.a.allocated_bytes or 0)
        where = f"{size} on device {device.device}"
        return f"B has as much allocated {when} as A: {where}{error}"
    base = moment.a.allocated_bytes or 0
    percent = 100 * moment.difference_bytes / base if base else None
    more = "more" if moment.difference_bytes > 0 else "less"
    where = f"{more} allocated {when} on device {device.device}"
    lines = moment.changes[0].rows
    changes = ((it.name, it.change_bytes or 0) for it in lines)
    row = next((it for it in changes if (it[1] > 0) == (moment.difference_bytes > 0)), None)
    line = "" if row is None else f"; {say_signed(row[1])} in {row[0]}"
    return f"B has {say_apart(moment.difference_bytes, percent, where)}{line}{error}"
