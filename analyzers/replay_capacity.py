"""Capacity that a replay was asked about: recorded use above it is a fact from the first sample on.

Only recorded samples are judged: the capacity of a measured device cannot be exceeded. `docs/verdicts.md`
explains the terms.
"""

from collections.abc import Sequence

import msgspec

from ..engine.model import DeviceSample, Finding, Sample
from ..engine.units import format_bytes, format_gib, format_seconds
from .findings.evidence import EvidenceKey
from .findings.lifecycle import begin_finding, close_finding, restate
from .findings.subjects import name_device

KIND = "capacity"

_CAPACITY = EvidenceKey("capacity asked about", "bytes")
_PEAK_TIME = EvidenceKey("time of the peak", "s")
_ALLOCATED = EvidenceKey("allocated at the peak", "bytes")
_USED_PEAK = EvidenceKey("peak device used", "bytes")
_ALLOCATED_PEAK = EvidenceKey("peak allocated", "bytes")


class CapacityAnalyzer:
    """Opens one finding per recorded rank, once, and publishes it whenever its peak rises."""

    name = KIND

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Finding] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        if sample.clock != "trace":
            return []
        judged = (self._judge(sample, device) for device in sample.devices if device.state == "ok")
        return [finding for finding in judged if finding is not None]

    def restore(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            if finding.kind == KIND and finding.is_open and finding.device_uuid is not None:
                self._open[finding.node, finding.device_uuid] = finding

    def _judge(self, sample: Sample, device: DeviceSample) -> Finding | None:
        capacity_bytes = device.memory.total_bytes
        if not capacity_bytes:
            return None
        finding = self._open.get((sample.node, device.uuid))
        if finding is not None and (_CAPACITY.read_count(finding) or 0) != capacity_bytes:
            # The next sample answers for the new capacity.
            del self._open[sample.node, device.uuid]
            return close_finding(finding, sample.time_s, "a different capacity was given")
        most = _read_most(device)
        if most is None or most.value_bytes <= (peak_bytes(finding) if finding else capacity_bytes):
            return None
        opened = finding or begin_finding(
            KIND,
            sample.node,
            sample.time_s,
            device_uuid=device.uuid,
            device=device.label,
            severity="critical",
        )
        stated = _state(opened, device, most, sample.time_s)
        self._open[sample.node, device.uuid] = stated
        return stated


class _Most(msgspec.Struct, frozen=True):
    """The most bytes that a rank is known to have held within one tick."""

    value_bytes: int
    # Device used was not recorded; the bytes are those of live tensors alone.
    is_allocated: bool
    allocated_bytes: int | None


def peak_bytes(finding: Finding) -> int:
    """Return the recorded peak that a finding of this kind rests on."""
    return max(key.read_count(finding) or 0 for key in (_USED_PEAK, _ALLOCATED_PEAK))


def _read_most(device: DeviceSample) -> _Most | None:
    memory = device.memory
    allocator = device.allocator
    used_bytes = memory.used_max_bytes if memory.used_max_bytes is not None else memory.used_bytes
    allocated_bytes = None
    if allocator is not None:
        last_bytes = allocator.allocated_bytes
        most_bytes = allocator.allocated_max_bytes
        allocated_bytes = most_bytes if most_bytes is not None else last_bytes
    if used_bytes is not None:
        return _Most(used_bytes, is_allocated=False, allocated_bytes=allocated_bytes)
    if allocated_bytes is not None:
        return _Most(allocated_bytes, is_allocated=True, allocated_bytes=allocated_bytes)
    return None


def _state(finding: Finding, device: DeviceSample, most: _Most, time_s: float) -> Finding:
    capacity_bytes = device.memory.total_bytes or 0
    evidence = [
        (_ALLOCATED_PEAK if most.is_allocated else _USED_PEAK)(most.value_bytes),
        _PEAK_TIME(time_s),
        _CAPACITY(capacity_bytes),
    ]
    if most.allocated_bytes is not None and not most.is_allocated:
        evidence.append(_ALLOCATED(most.allocated_bytes))
    return restate(
        finding,
        time_s,
        device=device.label,
        title=_entitle(device, most, capacity_bytes, time_s),
        evidence=tuple(evidence),
        method=_explain_method(most),
        advice=_advise(most, capacity_bytes),
    )


def _entitle(device: DeviceSample, most: _Most, capacity_bytes: int, time_s: float) -> str:
    capacity = format_gib(capacity_bytes)
    peak = f"{format_gib(most.value_bytes)} GiB"
    if peak == f"{capacity} GiB":
        peak = f"{format_bytes(most.value_bytes - capacity_bytes)} more"
    verb = "allocated" if most.is_allocated else "used"
    return f"would not fit {capacity} GiB: {name_device(device)} {verb} {peak} at {format_seconds(time_s)}"


def _explain_method(most: _Most) -> str:
    recorded = "allocated bytes" if most.is_allocated else "device used (NVML, everything on the device)"
    return (
        f"Recorded {recorded}, the most within each tick, compared with the capacity: that of the file, else "
        "the given one (--capacity); one sample above it is enough"
    )


def _advise(most: _Most, capacity_bytes: int) -> str:
    remedy = "lower the micro-batch size, recompute activations or shard further"
    allocated = f"{format_gib(most.allocated_bytes)} GiB"
    if most.allocated_bytes is None:
        return f"To fit in this capacity, {remedy}"
    if most.allocated_bytes > capacity_bytes:
        return f"Live tensors alone took {allocated}, so freeing the cache would not help: {remedy}"
    return (
        f"Live tensors took {allocated} at that time; the rest is cache, which the allocator frees "
        f"before it fails, and memory outside the allocator. To be safe, {remedy}"
    )
