"""One rank of a group: how far it is apart, and the findings that are open on it."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from ...engine.model import SEVERITIES, Evidence, Finding, Severity, make_finding_id
from ..closing import close_finding
from ..crossing import Crossing
from ..finding_evidence import JOB, PROCESS, STARTED, read_evidence
from ..subjects import Subject
from .scales import BAND_BYTES, BAND_SHARE, Rise
from .words import KIND, Words, word_growth, word_straggler

SOON_SHARE, NOW_SHARE = 0.10, 0.05
"""Share of the limit that is left above its peak, below which growth is `medium`, and `high`."""
LIMITED_SHARE, EASED_SHARE = 0.92, 0.88
"""Share of the limit that the peaks of a straggler reach, and below which it is none."""
AHEAD_SHARE, NEAR_SHARE = 0.10, 0.07
"""Share of the limit by which its peaks are above the middle one."""
STRAGGLING_S = 600.0

_ABOVE, _BEFORE, _BLOCKS = "above the middle", "above it before", "rose over"
_PEAK, _MIDDLE, _LIMIT, _FLOOR = "peak", "middle peak", "limit", "floor"
_WHAT = "what"
_GROWTH, _STRAGGLER = "growth", "straggler"


@dataclass(slots=True)
class Standing:
    """What a block of time says of one rank and its group."""

    subject: Subject
    time_s: float
    """When the block was over."""
    floor_bytes: int
    peak_bytes: int
    limit_bytes: int | None
    above_bytes: int
    """Its floor less the middle one of the group."""
    middle_floor_bytes: int
    middle_peak_bytes: int
    """Of its peers."""
    peers: int

    @property
    def band_bytes(self) -> float:
        """What counts as apart."""
        return max(BAND_SHARE * self.middle_floor_bytes, BAND_BYTES)

    @property
    def left_bytes(self) -> int | None:
        """Room above its peak."""
        return None if self.limit_bytes is None else max(0, self.limit_bytes - self.peak_bytes)


class Member:
    """One rank, block after block."""

    def __init__(self) -> None:
        self._growth: Finding | None = None
        self._straggling: Finding | None = None
        self._back = Crossing()
        self._since_s: float | None = None
        self._settled_until_s = float("-inf")

    @property
    def is_open(self) -> bool:
        """Whether a finding is open."""
        return self._growth is not None or self._straggling is not None

    @property
    def is_growing(self) -> bool:
        """Whether it is known to grow apart."""
        return self._growth is not None

    def adopt(self, finding: Finding) -> None:
        """Go on with a finding that a predecessor opened."""
        if read_evidence(finding, _WHAT) == _STRAGGLER:
            self._straggling = finding
        else:
            self._growth = finding
        self._settled_until_s = max(self._settled_until_s, finding.updated_s)

    def start_anew(self) -> None:
        """Forget everything but what is open."""
        self._back.restart()
        self._since_s = None

    def observe_growth(self, now: Standing, rise: Rise | None, *, is_first: bool) -> Iterator[Finding]:
        """Count one block; yield the finding on growth if it changed."""
        finding = self._growth
        if now.time_s <= self._settled_until_s:
            return
        if finding is None:
            if rise is not None:
                self._growth = self._tell_growth(_begin(now, _GROWTH), now, rise.start_bytes, is_first)
                yield self._growth
            return
        before = _number(finding, _BEFORE)
        grown = now.above_bytes - before
        self._back.observe(now.time_s, is_beyond=grown < now.band_bytes / 2, is_back=False)
        if self._back.is_due:
            self._growth, self._back = None, Crossing()
            yield close_finding(finding, now.time_s, "it is back among its peers")
        elif grown >= 2 * (_number(finding, _ABOVE) - before) or _is_graver(_judge_growth(now), finding):
            was_first = " first:" in finding.title
            self._growth = self._tell_growth(finding, now, before, was_first)
            yield self._growth

    def observe_peak(self, now: Standing, *, is_comparable: bool) -> Iterator[Finding]:
        """Count one block; yield the finding on a straggler if it changed."""
        limit = now.limit_bytes
        if not limit or not is_comparable or now.time_s <= self._settled_until_s:
            return
        ahead = now.peak_bytes - now.middle_peak_bytes
        is_limited = now.peak_bytes >= LIMITED_SHARE * limit and ahead >= AHEAD_SHARE * limit
        is_eased = now.peak_bytes < EASED_SHARE * limit or ahead < NEAR_SHARE * limit
        if not (is_limited if self._straggling is None else is_eased):
            self._since_s = None
            return
        if self._since_s is None:
            self._since_s = now.time_s
        if now.time_s - self._since_s < STRAGGLING_S:
            return
        self._since_s = None
        if self._straggling is None:
            self._straggling = _tell_straggler(_begin(now, _STRAGGLER), now)
            yield self._straggling
        else:
            finding, self._straggling = self._straggling, None
            yield close_finding(finding, now.time_s, "its peaks are among those of its peers")

    def end(self, time_s: float, because: str) -> Iterator[Finding]:
        """Yield what is open as closed: the rank or its group is gone."""
        for finding in (self._growth, self._straggling):
            if finding is not None:
                yield close_finding(finding, time_s, because)
        self._growth = self._straggling = None

    def _tell_growth(self, finding: Finding, now: Standing, before: int, is_first: bool) -> Finding:
        grown = max(0, now.above_bytes - before)
        words = word_growth(now.subject.name, now.peers, grown, is_first=is_first)
        evidence = (
            Evidence(_ABOVE, now.above_bytes, "bytes"),
            Evidence(_BEFORE, before, "bytes"),
            Evidence(_FLOOR, now.floor_bytes, "bytes"),
            Evidence(_LIMIT, now.limit_bytes, "bytes"),
        )
        return _state(finding, now, _GROWTH, words, _judge_growth(now), evidence)


def _tell_straggler(finding: Finding, now: Standing) -> Finding:
    limit = now.limit_bytes or 0
    words = word_straggler(now.subject.name, now.peers, now.peak_bytes, now.middle_peak_bytes, limit)
    evidence = (
        Evidence(_PEAK, now.peak_bytes, "bytes"),
        Evidence(_MIDDLE, now.middle_peak_bytes, "bytes"),
        Evidence(_LIMIT, limit, "bytes"),
    )
    return _state(finding, now, _STRAGGLER, words, "low", evidence)


def _judge_growth(now: Standing) -> Severity:
    """Return the severity of growth: by the room that is left above the peak, where that is known."""
    left, limit = now.left_bytes, now.limit_bytes
    if left is None or not limit or left >= SOON_SHARE * limit:
        return "low"
    return "high" if left < NOW_SHARE * limit else "medium"


def _is_graver(severity: Severity, finding: Finding) -> bool:
    return SEVERITIES.index(severity) > SEVERITIES.index(finding.severity)


def _begin(now: Standing, what: str) -> Finding:
    subject = now.subject
    pid = None if subject.rank is None else subject.rank.pid
    about = f"{subject.device_uuid or ''}#{pid or ''}#{what}"
    return Finding(
        id=make_finding_id(KIND, subject.sample.node, about, now.time_s),
        kind=KIND,
        node=subject.sample.node,
        device_uuid=subject.device_uuid,
        device=None,
        severity="low",
        title="",
        opened_s=now.time_s,
        updated_s=now.time_s,
    )


def _state(
    finding: Finding,
    now: Standing,
    what: str,
    words: Words,
    severity: Severity,
    evidence: tuple[Evidence, ...],
) -> Finding:
    rank, device = now.subject.rank, now.subject.device
    who: tuple[Evidence, ...] = ()
    if rank is not None:
        who = (Evidence(PROCESS, rank.pid), Evidence(STARTED, rank.started_s, "s"), Evidence(JOB, rank.job))
    return msgspec.structs.replace(
        finding,
        device=None if device is None else device.label,
        severity=severity,
        title=words.title,
        updated_s=max(now.time_s, finding.opened_s),
        evidence=(*who, Evidence(_WHAT, what), *evidence),
        method=words.method,
        advice=words.advice,
    )


def _number(finding: Finding, name: str) -> int:
    value = read_evidence(finding, name)
    return value if isinstance(value, int) else 0
