"""Devices that stopped answering: lost by the driver, or stale because a call does not return.

A device's state is known at every sample; a finding opens once it has lasted, and a lost device is never
reported as stale too. `docs/verdicts.md` explains the rules.
"""

import re
from collections.abc import Sequence

from ..engine.model import DeviceKind, DeviceSample, DeviceState, Finding, Sample
from .findings.driver_tools import find_tools
from .findings.evidence import EvidenceKey
from .findings.lifecycle import (
    DWELL_S,
    Crossing,
    CrossingTrack,
    DeviceTracks,
    begin_finding,
    find_gap_s,
    restate,
)
from .findings.subjects import name_device

LOST = "device_lost"
STALE = "device_stale"
KINDS = (LOST, STALE)

# Seconds for which a device must have been stale for its finding to become high.
HIGH_FROM_S = 60.0

# Kinds that no driver answers for: a stale one is a trace or a job that has ended.
_MODELLED: frozenset[DeviceKind] = frozenset({"trace", "simulated", "cpu"})
_ANSWERING: frozenset[DeviceState] = frozenset({"ok", "unsupported"})
# What counts the seconds would be news in every sample.
_AGE = re.compile(r" (?:for \d+ s|yet)$")

_SINCE = EvidenceKey("since", "s")
_LAST_ANSWER = EvidenceKey("last answer", "s")
_CAUSE = EvidenceKey("reported")

_METHODS = {
    LOST: f"In every sample of {DWELL_S:.0f} s the driver said that the device is gone",
    STALE: (
        f"In every sample of {DWELL_S:.0f} s a call to the driver about this device did not return, or "
        f"failed; high from {HIGH_FROM_S:.0f} s on"
    ),
}
_ADVICE = {
    LOST: (
        "Processes on it cannot continue: restart the job without it. The kernel log has the cause "
        "(`{log}`); reset the device ({reset}, once nothing uses it) or reboot the node. If it is lost "
        "again, have power, cooling and slot checked"
    ),
    STALE: (
        "Its values are old and nothing is concluded from them; other devices are not affected. If it stays "
        "so, look for driver errors in the kernel log (`{log}`) and for processes in state D; a "
        "driver that hangs usually needs a reset of the device or a reboot"
    ),
}


def _advise(kind: str, device: DeviceSample) -> str:
    """Return what to do, with the commands of the device's maker."""
    tools = find_tools(device)
    return _ADVICE[kind].format(log=tools.log, reset=tools.word_reset(device))


class StateTrack(CrossingTrack):
    """Whether one device answers, and its open finding, if any."""

    def __init__(self) -> None:
        super().__init__()
        self._lost = Crossing()
        self._stale = Crossing()
        self._answered_s: float | None = None

    @property
    def crossings(self) -> tuple[Crossing, ...]:
        return self._lost, self._stale

    def adopt(self, finding: Finding) -> None:
        super().adopt(finding)
        self._lost = Crossing(is_active=finding.kind == LOST)
        self._stale = Crossing(is_active=finding.kind == STALE)
        self._answered_s = _LAST_ANSWER.read_number(finding)

    def restart(self) -> None:
        super().restart()
        self._answered_s = None

    def observe(self, sample: Sample, device: DeviceSample, gap_s: float) -> Sequence[Finding]:
        time_s = sample.time_s
        self.note_time(time_s, gap_s)
        self.absence.restart()
        is_answering = device.state in _ANSWERING
        if is_answering:
            self._answered_s = time_s
        self._lost.observe(time_s, is_beyond=device.state == "lost", is_back=is_answering)
        is_stale = device.state == "stale" and not self._lost.is_active
        self._stale.observe(time_s, is_beyond=is_stale, is_back=is_answering)
        return () if self.is_settled(time_s) else self._conclude(sample, device)

    def _conclude(self, sample: Sample, device: DeviceSample) -> Sequence[Finding]:
        time_s = sample.time_s
        for kind, crossing in ((LOST, self._lost), (STALE, self._stale)):
            if not crossing.is_due:
                continue
            since_s = crossing.asked_since_s
            crossing.flip()
            if not crossing.is_active:
                return self.close(time_s, "the device answers again")
            before = self.close(time_s, "the driver has lost the device")
            if kind == LOST:
                self._stale = Crossing()
            opened = begin_finding(
                kind,
                sample.node,
                time_s,
                device_uuid=device.uuid,
                evidence=(_SINCE(since_s), _LAST_ANSWER(self._answered_s)),
            )
            return (*before, *self.state(_restate(opened, time_s, device)))
        # The finding restated where its severity or the reported cause changed.
        finding = self.finding
        if finding is None or device.state in _ANSWERING:
            return ()
        changed = _restate(finding, time_s, device)
        is_news = (changed.severity, changed.title) != (finding.severity, finding.title)
        return self.state(changed) if is_news else ()


def _restate(finding: Finding, time_s: float, device: DeviceSample) -> Finding:
    since_s = _SINCE.read_number(finding)
    lasted_s = 0.0 if since_s is None else time_s - since_s
    cause = _CAUSE.read(finding)
    # A lost device that is being looked for is stale meanwhile: why it was lost stays.
    is_own = (device.state == "lost") == (finding.kind == LOST)
    if device.reason is not None and is_own:
        cause = _AGE.sub("", device.reason.rstrip("."))
    head = f"{name_device(device)} {'lost' if finding.kind == LOST else 'stale'}"
    kept = (evidence for evidence in finding.evidence if evidence.name != _CAUSE.name)
    return restate(
        finding,
        time_s,
        device=device.label,
        severity="high" if finding.kind == LOST or lasted_s >= HIGH_FROM_S else "medium",
        # What to do is in the advice.
        title=f"{head}: {str(cause).partition('; ')[0]}" if cause else head,
        evidence=(*kept, *([_CAUSE(cause)] if cause else [])),
        method=_METHODS[finding.kind],
        advice=_advise(finding.kind, device),
    )


class DeviceStateAnalyzer:
    """Opens one finding for each device that stopped answering, and closes it when it answers again."""

    name = "device_state"

    def __init__(self) -> None:
        self._tracks = DeviceTracks(StateTrack)

    def observe(self, sample: Sample) -> Sequence[Finding]:
        if not self._tracks.accept(sample):
            return ()
        gap_s = find_gap_s(sample.interval_s)
        judged = {device.uuid: device for device in sample.devices if _is_judged(device, sample)}
        found: list[Finding] = []
        for uuid, device in judged.items():
            found += self._tracks.see(sample.node, uuid).observe(sample, device, gap_s)
        if len(self._tracks) > len(judged):
            found += self._tracks.observe_absent(
                sample.node, judged.keys(), lambda _, track: track.note_absence(sample.time_s, gap_s)
            )
        return found

    def restore(self, findings: Sequence[Finding]) -> None:
        self._tracks.restore(findings, KINDS)


def _is_judged(device: DeviceSample, sample: Sample) -> bool:
    """Return whether a driver answers for a device, and nothing else says already that it does not.

    A MIG instance goes with its GPU.
    """
    if device.kind in _MODELLED:
        return False
    if device.parent_uuid is None or device.state in _ANSWERING:
        return True
    return not any(it.uuid == device.parent_uuid and it.state == device.state for it in sample.devices)
