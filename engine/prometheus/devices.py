"""A device sample of the newest figures of a device."""

import re

from ..model import AllocatorReading, DeviceKind, DeviceSample, MemoryReading
from ..model.device import DeviceState
from .metrics import MEMORY_FIELDS
from .readings import Subject, parse_whole

_NUMBER = re.compile(r"(\d{1,9})(?::(\d{1,9}))?$", re.ASCII)
_KINDS: dict[str, DeviceKind] = {
    kind: kind for kind in ("gpu", "mig", "unified", "vgpu", "trace", "simulated", "cpu")
}
_EVER = -1.0


def read_device(key: str, subject: Subject, time_s: float, since_s: float) -> DeviceSample | None:
    """Return a device at a moment; None where nothing but its name is known.

    Args:
        key: By what it is known.
        subject: Its figures.
        time_s: The moment.
        since_s: A figure that is older than this is not of the present.
    """
    newest_s = subject.newest_s(MEMORY_FIELDS)
    up = subject.read("up", since_s)
    if newest_s is None and up is None:
        return None
    age_s = None if newest_s is None else max(0.0, time_s - newest_s)
    state, reason = _judge(newest_s, up, since_s, age_s)
    # Of a device that does not answer the last figures are kept, with their age.
    memory_since_s = since_s if state == "ok" else _EVER
    index, mig_index = _read_place(subject)
    return DeviceSample(
        uuid=key,
        index=index,
        name=subject.info.get("name") or subject.label("modelName", "model"),
        kind=_read_kind(subject),
        parent_uuid=subject.info.get("parent_uuid") or (key.rpartition("/")[0] or None),
        mig_index=mig_index,
        state=state,
        reason=reason,
        age_s=age_s,
        memory=_read_memory(subject, memory_since_s),
        allocator=read_allocator(subject, since_s),
        utilization_percent=subject.read("utilization", since_s),
        temperature_c=subject.read("temperature", since_s),
        power_w=subject.read("power", since_s),
        step=subject.read_bytes("step", since_s),
    )


def read_allocator(subject: Subject, since_s: float) -> AllocatorReading | None:
    """Return what an allocator says of itself; None where nothing is told."""
    names = (
        "allocated",
        "allocated_max",
        "reserved",
        "requested",
        "active",
        "inactive_split",
        "retries",
        "ooms",
    )
    values = [subject.read_bytes(name, since_s) for name in names]
    return None if all(value is None for value in values) else AllocatorReading(*values)


def _judge(
    newest_s: float | None, up: float | None, since_s: float, age_s: float | None
) -> tuple[DeviceState, str | None]:
    if up == 0:
        return "lost", "its agent says that it does not answer"
    if newest_s is None:
        return "unsupported", "its memory is not told"
    if newest_s < since_s:
        return "stale", f"its exporter has not told of it for {age_s or 0:.0f} s, and tells of others"
    return "ok", None


def _read_memory(subject: Subject, since_s: float) -> MemoryReading:
    """Return memory; of what the driver reserved for itself neither used nor free is part."""
    used, free = (subject.read_bytes(name, since_s) for name in ("used", "free"))
    total = subject.read_bytes("total", since_s)
    if total is None and used is not None and free is not None:
        total = used + free + (subject.read_bytes("reserved_by_driver", since_s) or 0)
    least, most = (subject.read_bytes(name, since_s) for name in ("used_min", "used_max"))
    return MemoryReading(
        total_bytes=total,
        used_bytes=used,
        free_bytes=free,
        used_min_bytes=used if least is None else least,
        used_max_bytes=used if most is None else most,
    )


def _read_place(subject: Subject) -> tuple[int, int | None]:
    """Return the number of a device, and that of its MIG instance."""
    told = _NUMBER.search(subject.label("gpu", "device", "minor_number") or "")
    index = subject.read_bytes("index", _EVER)
    if index is None:
        index = int(told[1]) if told else 0
    mig = subject.label("GPU_I_ID") or (told[2] if told else None)
    return index, parse_whole(mig)


def _read_kind(subject: Subject) -> DeviceKind:
    if subject.label("GPU_I_ID"):
        return "mig"
    return _KINDS.get(subject.info.get("kind", ""), "gpu")
