"""One device's idle-held memory: how long it has computed nothing while processes hold its memory."""

import math

import msgspec

from ...engine.model import DeviceSample, Evidence, Finding, make_finding_id
from ...engine.units import format_age, format_bytes
from ..closing import close_finding
from ..crossing import Crossing
from ..device_names import name_device
from ..finding_evidence import read_evidence

KIND = "idle_held"

IDLE_S = 1800.0
"""Seconds without utilisation from which held memory is worth a word; loading and waiting take minutes."""
HELD_SHARE = 0.10
"""Share of the capacity that must be held; the driver's own part is well below."""
RELIEVED_SHARE = 0.08
UPDATE_SHARE = 0.05
"""Share of the capacity by which the held bytes must change to publish again."""

_HELD = "least held"
_CAPACITY = "capacity"
_SINCE = "idle since"
_IDLE = "idle for"
_OF_THE_HOST = ("unified", "cpu")
"""Kinds of devices whose memory is the host's, which others hold for other purposes."""
_METHOD = (
    f"Utilisation (NVML's share of time in which a kernel ran) was 0 % in every sample of {IDLE_S / 60:.0f} "
    f"minutes, and at least {HELD_SHARE:.0%} of the capacity was used in each"
)
_ADVICE = (
    "The processes on the device hold memory and compute nothing: end those that are forgotten, or call "
    "torch.cuda.empty_cache() in one that only waits, so that others can have it"
)


class IdleTrack:
    """How long one device has been idle with memory held, and the finding that says so."""

    def __init__(self) -> None:
        self.finding: Finding | None = None
        self._since_s: float | None = None
        self._least_bytes = 0
        self._relief = Crossing()
        self._absence = Crossing()
        self._known_s: float | None = None
        self._settled_until_s = float("-inf")

    @classmethod
    def adopt(cls, finding: Finding) -> "IdleTrack":
        """Return a track that goes on with a finding that a predecessor opened."""
        track = cls()
        since_s = read_evidence(finding, _SINCE)
        held = read_evidence(finding, _HELD)
        track.finding = finding
        track._since_s = since_s if isinstance(since_s, float) else finding.opened_s
        track._least_bytes = held if isinstance(held, int) else 0
        track._settled_until_s = finding.updated_s
        return track

    def start_anew(self) -> None:
        """Forget everything but the open finding: nobody knows what happened since."""
        if self.finding is None:
            self._since_s = None
        self._known_s = None
        self._relief.restart()
        self._absence.restart()

    def observe(self, node: str, device: DeviceSample, time_s: float, gap_s: float) -> Finding | None:
        """Count one sample in which the device is listed; return its finding if that changed."""
        self._absence.restart()
        used = device.memory.used_bytes
        total = device.memory.total_bytes
        busy = device.utilization_percent
        is_told = busy is not None and math.isfinite(busy) and device.kind not in _OF_THE_HOST
        if used is None or not total or busy is None or not is_told:
            return None
        if self._known_s is not None and time_s - self._known_s > gap_s:
            self.start_anew()
        self._known_s = time_s
        is_busy = round(busy) > 0  # the history ring keeps whole percents
        if self.finding is None:
            return self._watch(node, device, time_s, is_idle=not is_busy and used >= HELD_SHARE * total)
        self._relief.observe(time_s, is_beyond=is_busy or used < RELIEVED_SHARE * total, is_back=False)
        if time_s <= self._settled_until_s:
            return None
        if self._relief.is_due:
            return self._close(
                time_s, "the device computed again" if is_busy else "its memory was given back"
            )
        return self._update(device, used, total, time_s)

    def observe_absence(self, time_s: float, *, is_lost: bool) -> Finding | None:
        """Count one sample in which the device is lost or not listed; return its finding if that closed."""
        if self.finding is None:
            return None
        self._absence.observe(time_s, is_beyond=True, is_back=False)
        if not self._absence.is_due or time_s <= self._settled_until_s:
            return None
        return self._close(time_s, "the device was lost" if is_lost else "the device is no longer listed")

    def is_forgotten(self, time_s: float, gap_s: float) -> bool:
        """Tell whether nothing is open and its device was silent for longer than a gap."""
        return self.finding is None and (self._known_s is None or time_s - self._known_s > gap_s)

    def _watch(self, node: str, device: DeviceSample, time_s: float, *, is_idle: bool) -> Finding | None:
        used = device.memory.used_bytes or 0
        if not is_idle:
            self._since_s = None
            return None
        if self._since_s is None:
            self._since_s = time_s
            self._least_bytes = used
        self._least_bytes = min(self._least_bytes, used)
        if time_s - self._since_s < IDLE_S:
            return None
        return self._open(node, device, time_s, self._since_s)

    def _open(self, node: str, device: DeviceSample, time_s: float, since_s: float) -> Finding:
        opened = Finding(
            id=make_finding_id(KIND, node, device.uuid, time_s),
            kind=KIND,
            node=node,
            device_uuid=device.uuid,
            device=device.label,
            severity="low",
            title="",
            opened_s=time_s,
            updated_s=time_s,
            evidence=(Evidence(_SINCE, since_s, "s"),),
            method=_METHOD,
            advice=_ADVICE,
        )
        self.finding = self._restate(opened, device, time_s)
        return self.finding

    def _update(self, device: DeviceSample, used: int, total: int, time_s: float) -> Finding | None:
        """Return the finding anew where the idle time doubled, or what is held changed by a whole step."""
        finding = self.finding
        idle_s = 0.0
        since_s = self._since_s
        if finding is None or since_s is None:
            return None
        told_s = read_evidence(finding, _IDLE)
        told = read_evidence(finding, _HELD)
        idle_s = time_s - since_s
        is_longer = isinstance(told_s, float) and idle_s >= 2 * told_s
        is_other = isinstance(told, int) and abs(used - told) >= UPDATE_SHARE * total
        if not (is_longer or is_other) or self._relief.is_asked:
            return None
        self._least_bytes = used if is_other else self._least_bytes
        self.finding = self._restate(finding, device, time_s)
        return self.finding

    def _restate(self, finding: Finding, device: DeviceSample, time_s: float) -> Finding:
        since_s = self._since_s if self._since_s is not None else finding.opened_s
        idle_s = time_s - since_s
        held = format_bytes(self._least_bytes)
        name = name_device(device)
        return msgspec.structs.replace(
            finding,
            device=device.label,
            title=f"{held} held on {name}, which has computed nothing for {format_age(idle_s)}",
            updated_s=max(time_s, finding.opened_s),
            evidence=(
                Evidence(_HELD, self._least_bytes, "bytes"),
                Evidence(_CAPACITY, device.memory.total_bytes, "bytes"),
                Evidence(_SINCE, since_s, "s"),
                Evidence(_IDLE, idle_s, "s"),
            ),
        )

    def _close(self, time_s: float, because: str) -> Finding | None:
        finding = self.finding
        self.finding = None
        self._since_s = None
        self._relief = Crossing()
        self._absence = Crossing()
        return None if finding is None else close_finding(finding, time_s, because)
