"""An analyzer as a plug-in: finds memory that is held while nothing computes."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from vramscope.engine.model import DeviceSample, Evidence, Finding, Sample, make_finding_id

IDLE_S = 600.0
HELD_SHARE = 0.1


class IdleMemoryAnalyzer:
    """Opens a finding when a device holds a tenth of its memory at 0 % utilisation for ten minutes."""

    name = "idle-memory"

    def __init__(self) -> None:
        self._idle_since_s: dict[str, float] = {}
        self._open: dict[str, Finding] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        """Take one sample and return the findings it opened, updated or closed."""
        findings = (self._observe_device(sample, device) for device in sample.devices)
        return [finding for finding in findings if finding is not None]

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt findings that a predecessor opened before the first sample that will be observed."""
        self._open |= {finding.device_uuid: finding for finding in findings if finding.device_uuid}

    def _observe_device(self, sample: Sample, device: DeviceSample) -> Finding | None:
        state = judge(device)
        if state == "unknown":
            return None
        if state == "busy":
            self._idle_since_s.pop(device.uuid, None)
            return self._close(device.uuid, sample.time_s)
        since_s = self._idle_since_s.setdefault(device.uuid, sample.time_s)
        if sample.time_s - since_s < IDLE_S or device.uuid in self._open:
            return None
        finding = self._describe(sample, device, since_s)
        self._open[device.uuid] = finding
        return finding

    def _close(self, uuid: str, time_s: float) -> Finding | None:
        finding = self._open.pop(uuid, None)
        return finding and msgspec.structs.replace(finding, updated_s=time_s, closed_s=time_s)

    def _describe(self, sample: Sample, device: DeviceSample, since_s: float) -> Finding:
        return Finding(
            id=make_finding_id(self.name, sample.node, device.uuid, sample.time_s),
            kind=self.name,
            node=sample.node,
            device_uuid=device.uuid,
            device=device.label,
            severity="low",
            title=f"GPU {device.label} holds memory and has computed nothing for 10 minutes",
            opened_s=sample.time_s,
            updated_s=sample.time_s,
            evidence=(
                Evidence("used_bytes", device.memory.used_bytes, "bytes"),
                Evidence("idle_s", sample.time_s - since_s, "s"),
            ),
            method="utilisation 0 % in every sample of ten minutes, a tenth of the memory or more in use",
            advice="end the process if it is forgotten; the process list shows whose it is",
        )


def judge(device: DeviceSample) -> Literal["idle", "busy", "unknown"]:
    """Return whether a device holds memory without computing; what was not measured is unknown."""
    memory = device.memory
    if device.utilization_percent is None or memory.used_bytes is None or not memory.total_bytes:
        return "unknown"
    is_held = memory.used_bytes >= HELD_SHARE * memory.total_bytes
    return "idle" if is_held and device.utilization_percent == 0 else "busy"
