"""One allocator: its window, its trend, and the finding that is open on its fragmentation."""

import msgspec

from ...engine.model import SEVERITIES, Evidence, Finding, make_finding_id
from ..closing import close_finding
from ..crossing import Crossing
from ..finding_evidence import PROCESS, STARTED, read_evidence
from ..subjects import Subject
from .cost import Cost, Refusals, weigh
from .model import Measure
from .segment_maps import MapFragmentation
from .trend import TrendHistory
from .window import LEAST_S, REFUSED_S, Extremes, Tick, Window
from .words import word_finding

KIND = "fragmentation"
UPDATE_SHARE = 0.05
"""Share of the limit by which what is stranded must change to publish again."""

LEAST_MAPS = 3
"""Segment maps from which their trend says more than that of the counters."""
_BEST_FIRST: tuple[Measure, ...] = ("external", "stranded", "unused")
_STRANDED = "stranded"
_PEAK = "peak allocated"
_LIMIT = "limit"
_REST = "room left beside"
_RETRIES = "refusals in 5 min"
_FLUSHES = "flushes in 15 min"


class FragmentationTrack:
    """What one allocator did lately."""

    def __init__(self) -> None:
        self.finding: Finding | None = None
        self.window = Window()
        self.subject: Subject | None = None
        """As it was last seen."""
        self.map: MapFragmentation | None = None
        """The newest segment map that was handed in."""
        self.extremes: Extremes | None = None
        """Of the newest window that was long enough."""
        self.peak_bytes: int | None = None
        self.peak_reserved_bytes: int | None = None
        self._trends: dict[Measure, TrendHistory] = {}
        self._refusals = Refusals()
        self._crossing = Crossing()
        self._settled_until_s = float("-inf")

    @classmethod
    def adopt(cls, finding: Finding) -> "FragmentationTrack":
        """Return a track that goes on with a finding that a predecessor opened."""
        track = cls()
        track.finding = finding
        track._crossing = Crossing(is_active=True)
        track._settled_until_s = finding.updated_s
        return track

    def find_trend(self, measure: Measure | None = None) -> TrendHistory | None:
        """Return the trend of a measure, or of the best there is: of segment maps from the third on."""
        if measure is not None:
            return self._trends.get(measure)
        found = [trend for measure in _BEST_FIRST if (trend := self._trends.get(measure)) is not None]
        several = [trend for trend in found if trend.measure != "external" or len(trend) >= LEAST_MAPS]
        return next(iter(several or found), None)

    def start_anew(self) -> None:
        """Forget everything but the open finding and the trend."""
        self.window.clear()
        self._refusals.clear()
        self._crossing.restart()

    def take_map(self, found: MapFragmentation) -> None:
        """Take what a segment map says; it decides nothing, since a restarted worker will not see it."""
        self.map = found
        if found.external is not None:
            self._note_trend("external", found.time_s, found.external)

    def observe(self, subject: Subject) -> Finding | None:
        """Count one sample; return the finding if that changed."""
        self.subject = subject
        tick = read_tick(subject)
        self._note_levels(tick)
        is_moved = self.window.add(tick)
        limit = subject.limit_bytes
        self._refusals.observe(tick, limit, self.window.newest_peak_bytes)
        if not is_moved:
            return None
        is_refused = self._refusals.has_any(tick.time_s)
        self.extremes = self.window.measure(REFUSED_S if is_refused else LEAST_S)
        if self.extremes is None or tick.time_s <= self._settled_until_s:
            return None
        cost = weigh(self.extremes, self._refusals, limit, tick.time_s)
        return None if cost is None else self._conclude(subject, cost, tick.time_s)

    def end(self, time_s: float, because: str) -> Finding | None:
        """Return the finding as closed, because its subject is gone."""
        finding = self.finding
        self.finding = None
        return None if finding is None else close_finding(finding, time_s, because)

    def _note_levels(self, tick: Tick) -> None:
        reserved = tick.reserved_bytes
        peak = tick.peak_bytes if tick.peak_bytes is not None else tick.allocated_bytes
        if peak is not None and (self.peak_bytes is None or peak > self.peak_bytes):
            self.peak_bytes = peak
        if not reserved:
            return
        if self.peak_reserved_bytes is None or reserved > self.peak_reserved_bytes:
            self.peak_reserved_bytes = reserved
        if tick.stranded_bytes is not None:
            self._note_trend("stranded", tick.time_s, tick.stranded_bytes / reserved)
        elif peak is not None:
            self._note_trend("unused", tick.time_s, max(0.0, 1 - peak / reserved))

    def _note_trend(self, measure: Measure, time_s: float, value: float) -> None:
        trend = self._trends.get(measure)
        if trend is None:
            trend = self._trends[measure] = TrendHistory(measure)
        trend.add(time_s, value)

    def _conclude(self, subject: Subject, cost: Cost, time_s: float) -> Finding | None:
        self._crossing.observe(time_s, is_beyond=cost.is_beyond, is_back=cost.is_back)
        is_due = self._crossing.is_due or (cost.has_cost and self.finding is None)
        if is_due and self.finding is None:
            self._crossing = Crossing(is_active=True)
            return self._open(subject, cost, time_s)
        if is_due:
            self._crossing = Crossing()
            return self.end(time_s, "enough room is left beside what is stranded")
        return self._update(subject, cost, time_s)

    def _open(self, subject: Subject, cost: Cost, time_s: float) -> Finding:
        rank = subject.rank
        uuid = subject.device_uuid
        about = uuid if rank is None else f"{uuid or ''}#{rank.pid}"
        opened = Finding(
            id=make_finding_id(KIND, subject.sample.node, about, time_s),
            kind=KIND,
            node=subject.sample.node,
            device_uuid=uuid,
            device=None,
            severity="low",
            title="",
            opened_s=time_s,
            updated_s=time_s,
        )
        self.finding = _state(opened, subject, cost, time_s)
        return self.finding

    def _update(self, subject: Subject, cost: Cost, time_s: float) -> Finding | None:
        """Return the finding anew where its severity rose or fell back, or much more is stranded."""
        finding = self.finding
        if finding is None or cost.is_back:
            return None
        told = read_evidence(finding, _STRANDED)
        change = abs(cost.stranded_bytes - told) if isinstance(told, int) else 0
        is_other = change >= UPDATE_SHARE * cost.limit_bytes
        is_graver = SEVERITIES.index(cost.severity) > SEVERITIES.index(finding.severity)
        is_over = finding.severity == "critical" and not cost.has_cost
        if not (is_other or is_graver or is_over):
            return None
        self.finding = _state(finding, subject, cost, time_s)
        return self.finding


def read_tick(subject: Subject) -> Tick:
    """Return what decides in one sample, in the units in which the history ring keeps it."""
    allocator = subject.allocator
    rank = subject.rank
    allocated = allocator.allocated_bytes
    most = allocator.allocated_max_bytes
    of_steps = None if rank is None else rank.peak_max_bytes
    return Tick(
        time_s=subject.sample.time_s,
        interval_s=subject.sample.interval_s,
        stranded_bytes=_round(allocator.inactive_split_bytes),
        allocated_bytes=_round(allocated),
        peak_bytes=_round(
            max([peak for peak in (allocated, most, of_steps) if peak is not None], default=None)
        ),
        reserved_bytes=_round(allocator.reserved_bytes),
        step=subject.step,
        retries=allocator.retries,
    )


def _round(value_bytes: int | None) -> int | None:
    """Return bytes as the history ring keeps those of a process: rounded up to 512."""
    return None if value_bytes is None else -(-value_bytes // 512) * 512


def _state(finding: Finding, subject: Subject, cost: Cost, time_s: float) -> Finding:
    """Return a finding with what is known of it at a sample."""
    rank = subject.rank
    device = subject.device
    words = word_finding(subject.name, cost)
    who = () if rank is None else (Evidence(PROCESS, rank.pid), Evidence(STARTED, rank.started_s, "s"))
    return msgspec.structs.replace(
        finding,
        device=None if device is None else device.label,
        severity=cost.severity,
        title=words.title,
        updated_s=max(time_s, finding.opened_s),
        evidence=(
            *who,
            Evidence(_STRANDED, cost.stranded_bytes, "bytes"),
            Evidence(_PEAK, cost.peak_bytes, "bytes"),
            Evidence(_LIMIT, cost.limit_bytes, "bytes"),
            Evidence(_REST, cost.rest_bytes, "bytes"),
            Evidence(_RETRIES, cost.retries),
            Evidence(_FLUSHES, cost.flushes),
        ),
        method=words.method,
        advice=words.advice,
    )
