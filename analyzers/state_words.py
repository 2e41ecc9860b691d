"""What the verdict says where no finding leads: the risk and why, and how full the fullest device is."""

from collections.abc import Iterator, Mapping, Sequence

from ..engine.model import Assessment, DeviceSample, Finding, Sample
from ..engine.units import format_bytes, format_gib
from .device_names import name_device, name_devices
from .pressure_track import KIND as PRESSURE
from .pressure_track import is_relieved
from .risk import LEVELS, Risk, find_assessments

Clause = tuple[str, ...]


def describe_state(
    sample: Sample, findings: Sequence[Finding], risks: Mapping[str, Risk], assessments: Sequence[Assessment]
) -> Iterator[Clause]:
    """Yield what is known of a node that no finding is about, each clause from complete to shortest.

    Args:
        sample: The newest sample.
        findings: Findings of the node.
        risks: Risk of each device, by its UUID.
        assessments: How near each process is to running out of memory.
    """
    readable = [device for device in sample.devices if device.state == "ok" and _held(device) is not None]
    fullest = max(readable, key=_fullness, default=None)
    ended = [device for device in sample.devices if device.state == "ended"]
    if fullest is None and ended:
        yield (f"{name_devices(ended)} ended: no job reports", "ended")
        return
    if fullest is None:
        yield ("OOM risk unknown: no figures", "OOM risk unknown", "OOM risk ?")
        return
    worst = max([fullest, *readable], key=lambda device: LEVELS.index(risks[device.uuid].level))
    headroom = find_headroom(fullest, assessments)
    is_only = len(readable) == 1
    if risks[worst.uuid].level == "low" and headroom is not None:
        yield _describe_calm(fullest, findings, headroom, is_only=is_only)
        return
    is_general = len({risks[device.uuid] for device in readable}) == 1
    yield _describe_risk(risks[worst.uuid], None if is_general else name_device(worst))
    yield _describe_fullest(fullest, findings, is_only=is_only)


def find_headroom(device: DeviceSample, assessments: Sequence[Assessment]) -> int | None:
    """Return the bytes between the peak of a process on a device and what it can have; None if unknown.

    Of several processes the least is told: each one's capacity counts what is free on the device.
    """
    known = [
        max(0, found.capacity_bytes - found.peak_bytes)
        for found in find_assessments(device, assessments)
        if found.capacity_bytes is not None and found.peak_bytes is not None
    ]
    return min(known, default=None)


def _describe_calm(
    device: DeviceSample, findings: Sequence[Finding], headroom_bytes: int, *, is_only: bool
) -> Clause:
    """Say that the risk is low, and by how much, where that is known."""
    name = name_device(device)
    used = device.memory.used_bytes
    total = device.memory.total_bytes
    left = f"{format_bytes(headroom_bytes)} headroom"
    figure = f"{name} {format_gib(used)}/{format_gib(total)} GiB" if used is not None and total else name
    lead = "nearly full " if _is_pressed(device, findings) else "" if is_only else "fullest "
    head = "OOM risk low"
    return (
        f"{head}: {lead}{figure}, {left} at peak",
        f"{head}: {figure}, {left}",
        f"{head}: {left} at peak",
        f"{head}: {left}",
        head,
    )


def _describe_risk(risk: Risk, name: str | None) -> Clause:
    """Say how great the risk is and why; of which device, where it is not the same for all."""
    head = f"OOM risk {risk.level}"
    named = head if name is None else f"{head} on {name}"
    if risk.level == "unknown":
        return tuple(dict.fromkeys((f"{named}: {risk.reason}", named, head, "OOM risk ?")))
    if risk.level == "low":
        return (head,)
    return tuple(dict.fromkeys((f"{named}: {risk.reason}", named, head)))


def _allocated(device: DeviceSample) -> int | None:
    return device.allocator.allocated_bytes if device.allocator else None


def _held(device: DeviceSample) -> int | None:
    """Return the bytes that are known to be held on a device: those used, or else those allocated."""
    return device.memory.used_bytes if device.memory.used_bytes is not None else _allocated(device)


def _fullness(device: DeviceSample) -> tuple[float, int]:
    held = _held(device) or 0
    total = device.memory.total_bytes
    return (held / total if total else 0.0, held)


def _describe_fullest(device: DeviceSample, findings: Sequence[Finding], *, is_only: bool) -> Clause:
    name = name_device(device)
    total = device.memory.total_bytes
    used = device.memory.used_bytes
    if not total or used is None:
        return _describe_unbounded(device, is_only=is_only)
    figure = f"{name} {format_gib(used)}/{format_gib(total)} GiB"
    share = f"{100 * used / total:.0f} %"
    free = f", {_describe_free(device.memory.free_bytes, used, total)}"
    lead = "nearly full " if _is_pressed(device, findings) else "" if is_only else "fullest "
    return (
        f"{lead}{figure} ({share}){free}",
        f"{lead}{figure}{free}",
        f"{lead}{figure}",
        figure,
        f"{name} {share}",
        "",
    )


def _describe_free(free_bytes: int | None, used_bytes: int, total_bytes: int) -> str:
    """Say what is free, or by how much a recorded rank is above the capacity that was asked about."""
    if used_bytes > total_bytes:
        return f"{format_bytes(used_bytes - total_bytes)} too much"
    return f"{format_bytes(total_bytes - used_bytes if free_bytes is None else free_bytes)} free"


def _is_pressed(device: DeviceSample, findings: Sequence[Finding]) -> bool:
    """Return whether a device is nearly full now; a finding stays open for a while when it no longer is."""
    if is_relieved(device.memory):
        return False
    return any(f.kind == PRESSURE and f.is_open and f.device_uuid == device.uuid for f in findings)


def _describe_unbounded(device: DeviceSample, *, is_only: bool) -> Clause:
    """Describe a device whose capacity, or whose device used, nobody measured."""
    name = name_device(device)
    used = device.memory.used_bytes
    allocated = _allocated(device)
    lead = "" if is_only else "fullest "
    known = [f"{format_gib(used)} GiB used"] if used is not None else []
    known += [f"{format_gib(allocated)} GiB allocated"] if allocated is not None else []
    forms = (f"{lead}{name} {', '.join(known)}", f"{lead}{name} {known[0]}", f"{name} {known[0]}")
    return tuple(dict.fromkeys((*forms, f"{name} {format_gib(_held(device))} GiB", "")))
