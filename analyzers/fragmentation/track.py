"""One allocator: its window, its trend, and the open finding on its fragmentation."""

from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple

import msgspec

from ...engine.model import SEVERITIES, Finding
from ...engine.units import format_bytes
from ..findings.evidence import PROCESS, STARTED, EvidenceKey
from ..findings.lifecycle import Crossing, OpenFinding, begin_finding, restate
from ..findings.subjects import Subject, SubjectKey
from ..floors.rate import find_slope
from .segment_maps import MapFragmentation
from .window import (
    FLUSHES,
    FLUSHES_S,
    LEAST_S,
    REFUSED_S,
    RETRY_S,
    Cost,
    Extremes,
    Refusals,
    Tick,
    Window,
    weigh,
)

# The fragmentation of one allocator. None is unmeasured; shares are from 0 to 1.

# Terms: PyTorch's memory statistics. External fragmentation is 1 - largest free block / free bytes, as for
# any allocator; memory cached in whole segments can be given back and is no fragmentation.

# What a ratio measures: free blocks too small for a large request, by a segment map; free bytes in segments
# with live ones, relative to what is reserved; bytes reserved and not allocated, without distinguishing cache
# from stranded bytes.

Measure = Literal["external", "stranded", "unused"]
Level = Literal["low", "moderate", "high", "severe"]
TrendDescription = Literal[
    "Stable", "Increasing fragmentation", "Decreasing fragmentation", "Minor fluctuation"
]

_BANDS: tuple[tuple[float, Level], ...] = ((0.8, "severe"), (0.6, "high"), (0.4, "moderate"))


class FragmentationReading(msgspec.Struct, frozen=True, gc=False):
    """One allocator at its newest sample, and over the minutes before it."""

    key: SubjectKey
    node: str
    device_uuid: str | None
    # Label of the device.
    device: str | None
    device_index: int | None
    pid: int | None
    rank: int | None
    time_s: float
    allocated_bytes: int | None
    reserved_bytes: int | None
    active_bytes: int | None
    requested_bytes: int | None
    # 1 - requested / allocated: lost within live blocks to rounding and to remainders.
    internal: float | None
    # Free and not to be given back, at this moment.
    stranded_bytes: int | None
    # PyTorch's counter of inactive split bytes, or a segment map, which expandable segments need.
    stranded_source: Literal["counter", "map"] | None
    # Stranded at the fullest moments of the window: what even the peaks of the steps did not use.
    persistent_bytes: int | None
    # Reserved less active: kept for the next request; not fragmentation by itself.
    cached_bytes: int | None
    # Reserved less allocated.
    unused_bytes: int | None
    # Least of that within the window, at the fullest moment, as a share of what was reserved.
    unused_share: float | None
    # Most allocated / most reserved since it was first seen.
    utilization: float | None
    # Most that the allocator can really reserve.
    limit_bytes: int | None
    # That limit less the most that was allocated within the window.
    headroom_bytes: int | None
    retries: int | None
    # The one number for a report: external, or else stranded / reserved; None where neither is known.
    ratio: float | None
    # What `ratio` measures; `unused` where only `unused_share` is known.
    measure: Measure | None
    # What the values rest on, in one sentence.
    method: str
    # 1 - largest free block / free bytes of the pool with the most free bytes; only from a segment map.
    external: float | None = None
    # From a segment map.
    free_blocks: int | None = None
    # From a segment map, without private pools.
    largest_free_bytes: int | None = None
    # When the newest segment map was made.
    map_s: float | None = None


class FragmentationTrend(msgspec.Struct, frozen=True):
    """How one measure went since the allocator was first seen."""

    measure: Measure
    # Time in seconds and the least within the span from there to the next point.
    points: tuple[tuple[float, float], ...]
    duration_s: float
    current: float
    least: float
    most: float
    average: float
    # Robust slope (Theil-Sen) over at most 32 spans.
    slope_per_s: float | None
    description: TrendDescription


def level_of(ratio: float | None) -> Level | None:
    """Return the word for a fragmentation ratio: low, moderate from 0.4, high from 0.6, severe from 0.8."""
    if ratio is None:
        return None
    return next((level for least, level in _BANDS if ratio >= least), "low")


# Texts of a finding on fragmentation.

_COUNTED = (
    "Inactive split bytes (PyTorch's counter: free, next to live blocks in a segment), the minimum "
    "over the fullest moments of several steps, compared with the limit less the peak"
)
_REFUSED = (
    f"{_COUNTED}; and the device refused a segment (num_alloc_retries) within {RETRY_S / 60:.0f} minutes"
)
_NEEDED = (
    "Allocated and inactive split bytes between steps (PyTorch's counters: what the device cannot have back) "
    "plus the most that a step took above its floor within half an hour, compared with the limit; and what "
    "is pinned changes, so that free blocks that fit now need not fit later"
)
_FLUSHED = (
    f"Reserved memory fell from the limit {FLUSHES} times or more within {FLUSHES_S / 60:.0f} minutes, "
    "as when the cache is flushed, and each time at least this much stayed reserved but not allocated"
)
_ENDURED = "; it needed as much before, and every request was served"
_ADVICE = (
    "Try PYTORCH_ALLOC_CONF=expandable_segments:True, or sort lengths into a few buckets; `vramscope "
    "inspect` of a memory snapshot replays the job's own trace with other settings"
)


class Words(NamedTuple):
    title: str
    method: str
    advice: str


def word_finding(name: str, cost: Cost) -> Words:
    stranded = format_bytes(cost.stranded_bytes)
    rest = format_bytes(cost.rest_bytes)
    if cost.retries:
        times = "once" if cost.retries == 1 else f"{cost.retries} times"
        title = f"{name} was refused memory {times} while {stranded} of its own were stranded in segments"
        return Words(title, _REFUSED, _ADVICE)
    if cost.flushes >= FLUSHES:
        title = f"{name} flushes its cache at the limit, and {stranded} stays reserved and unused each time"
        return Words(title, _FLUSHED, _ADVICE)
    if cost.needs_holes:
        missing = cost.need_bytes - cost.limit_bytes
        step = f"needs {format_bytes(missing)} of it" if missing > 0 else f"leaves {format_bytes(-missing)}"
        title = f"{name} has {stranded} stranded in segments, and its largest step {step}"
        return Words(title, _NEEDED, _ADVICE)
    title = f"{name} has {stranded} stranded in segments even at its peaks, and only {rest} left"
    return Words(title, _COUNTED, _ADVICE)


def word_method(measure: Measure | None) -> str:
    """Return in a sentence what the values of a reading rest on."""
    if measure == "external":
        return "External fragmentation of a segment map: 1 - largest free block / free bytes"
    if measure == "stranded":
        return "PyTorch's counter of inactive split bytes, as a share of the reserved bytes"
    if measure == "unused":
        return (
            "Only allocated and reserved bytes are known: this is reserved less allocated, at its "
            "minimum within the window; it mixes cache and fragmentation"
        )
    return "No allocator data: device memory alone does not show fragmentation"


# A measure over all the time it was seen, in bounded memory: spans that double when they grow too many.

MOST_POINTS = 256
_MOST_SPANS = 32
# Change over the whole time, as a share, below which the measure is stable.
_STABLE_CHANGE = 0.01
# Change from which it is a trend, where it is also most of the range.
_CLEAR_CHANGE = 0.05
# Share of the range that a trend must explain: what swings comes back, so its change is small.
_MOST_OF_RANGE = 0.5


class TrendHistory:
    """The least value of each span of samples; the spans double in length when there are too many."""

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self._points: list[tuple[float, float]] = []
        self._stride = 1
        self._filled = 0
        self._newest_s = 0.0
        self._current = 0.0

    def __len__(self) -> int:
        return len(self._points)

    def add(self, time_s: float, value: float) -> None:
        self._newest_s = time_s
        self._current = value
        points = self._points
        if self._filled % self._stride == 0:
            if len(points) == MOST_POINTS:
                self._double()
                points = self._points
            points.append((time_s, value))
        elif value < points[-1][1]:
            points[-1] = (points[-1][0], value)
        self._filled += 1

    def describe(self) -> FragmentationTrend | None:
        if not self._points:
            return None
        times, values = zip(*self._points, strict=True)
        slope, description = describe_points(self._points)
        return FragmentationTrend(
            measure=self.measure,
            points=tuple(self._points),
            duration_s=self._newest_s - times[0],
            current=self._current,
            least=min(values),
            most=max(values),
            average=sum(values) / len(values),
            slope_per_s=slope,
            description=description,
        )

    def _double(self) -> None:
        old = self._points
        self._points = [
            (old[at][0], min(old[at][1], old[at + 1][1])) if at + 1 < len(old) else old[at]
            for at in range(0, len(old), 2)
        ]
        self._stride *= 2
        self._filled = len(self._points) * self._stride


def _merge_spans(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Return at most so many spans of equal numbers of points, each with its least value."""
    size = -(-len(points) // most)
    parts = [points[at : at + size] for at in range(0, len(points), size)]
    return [(part[0][0], min(value for _, value in part)) for part in parts]


def describe_points(points: Sequence[tuple[float, float]]) -> tuple[float | None, TrendDescription]:
    """Return the robust slope a second of a measure, and the word for how it went.

    The change is that of the robust slope over the time, or the shift from the median of the first third to
    that of the last, which sees a jump too; compared with the range of the values. Points are seconds and
    values, oldest first; not empty.
    """
    spans = _merge_spans(points, _MOST_SPANS)
    values = [value for _, value in spans]
    slope = find_slope([time_s for time_s, _ in spans], values)
    swing = max(values) - min(values)
    if slope is None or swing < _STABLE_CHANGE:
        return slope, "Stable"
    third = max(1, len(values) // 3)
    shift = median(values[-third:]) - median(values[:third])
    change = max(slope * (spans[-1][0] - spans[0][0]), shift, key=abs)
    if abs(change) < max(_CLEAR_CHANGE, _MOST_OF_RANGE * swing) or shift * change <= 0:
        return slope, "Minor fluctuation"
    return slope, "Increasing fragmentation" if change > 0 else "Decreasing fragmentation"


KIND = "fragmentation"
# Share of the limit by which stranded bytes must change to publish again.
UPDATE_SHARE = 0.05

# With so many segment maps their trend is better than that of the counters.
LEAST_MAPS = 3
_BEST_FIRST: tuple[Measure, ...] = ("external", "stranded", "unused")
_STRANDED = EvidenceKey("stranded", "bytes")
_PEAK = EvidenceKey("peak allocated", "bytes")
_LIMIT = EvidenceKey("limit", "bytes")
_REST = EvidenceKey("room left beside", "bytes")
_NEED = EvidenceKey("needed if nothing stranded fits", "bytes")
_RETRIES = EvidenceKey("refusals in 5 min")
_FLUSHES = EvidenceKey("flushes in 15 min")


class FragmentationTrack(OpenFinding):
    """One allocator over the last minutes."""

    def __init__(self) -> None:
        super().__init__()
        self.window = Window()
        self.subject: Subject | None = None
        # The newest segment map.
        self.map: MapFragmentation | None = None
        # From the newest window that was long enough.
        self.extremes: Extremes | None = None
        self.peak_bytes: int | None = None
        self.peak_reserved_bytes: int | None = None
        self._trends: dict[Measure, TrendHistory] = {}
        self._refusals = Refusals()
        self._crossing = Crossing()
        # Most that was needed in the present time of refusals or of holes that must fit, and in earlier ones.
        self._strained_bytes = 0
        self._endured_bytes = 0

    def adopt(self, finding: Finding) -> None:
        super().adopt(finding)
        self._crossing = Crossing(is_active=True)

    def find_trend(self, measure: Measure | None = None) -> TrendHistory | None:
        """Return the trend of a measure, or of the best there is: of segment maps from the third on."""
        if measure is not None:
            return self._trends.get(measure)
        found = [trend for measure in _BEST_FIRST if (trend := self._trends.get(measure)) is not None]
        several = [trend for trend in found if trend.measure != "external" or len(trend) >= LEAST_MAPS]
        return next(iter(several or found), None)

    def start_anew(self) -> None:
        self.window.clear()
        self._refusals.clear()
        self._crossing.restart()

    def take_map(self, found: MapFragmentation) -> None:
        """Store a segment map; it decides nothing, since a restarted worker will not see it."""
        self.map = found
        if found.external is not None:
            self._note_trend("external", found.time_s, found.external)

    def observe(self, subject: Subject) -> Sequence[Finding]:
        self.subject = subject
        tick = read_tick(subject)
        self._note_levels(tick)
        is_moved = self.window.add(tick)
        limit = subject.limit_bytes
        self._refusals.observe(tick, limit, self.window.newest_peak_bytes)
        if not is_moved:
            return ()
        is_refused = self._refusals.has_any(tick.time_s)
        self.extremes = self.window.measure(REFUSED_S if is_refused else LEAST_S)
        need = self.window.find_need()
        extremes = self.extremes if need is None else self.extremes or self.window.newest
        if extremes is None or self.is_settled(tick.time_s):
            return ()
        cost = weigh(extremes, self._refusals, limit, tick.time_s, need)
        if cost is None or (self.extremes is None and not cost.needs_holes):
            return ()
        return self._conclude(subject, self._compare_with_endured(cost), tick.time_s)

    def _compare_with_endured(self, cost: Cost) -> Cost:
        """Return the cost with what was endured before; remember what is needed now until it is over."""
        if cost.retries or cost.needs_holes:
            self._strained_bytes = max(self._strained_bytes, cost.most_bytes)
        elif self._strained_bytes and cost.is_quiet:
            self._endured_bytes = max(self._endured_bytes, self._strained_bytes)
            self._strained_bytes = 0
        return cost._replace(endured_bytes=self._endured_bytes)

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

    def _conclude(self, subject: Subject, cost: Cost, time_s: float) -> Sequence[Finding]:
        self._crossing.observe(time_s, is_beyond=cost.is_beyond, is_back=cost.is_back)
        is_due = self._crossing.is_due or ((cost.has_cost or cost.needs_holes) and self.finding is None)
        if is_due and self.finding is None:
            self._crossing = Crossing(is_active=True)
            opened = begin_finding(
                KIND, subject.sample.node, time_s, device_uuid=subject.device_uuid, about=subject.about
            )
            return self.state(_state(opened, subject, cost, time_s))
        if is_due:
            self._crossing = Crossing()
            return self.close(time_s, "enough room is left besides the stranded bytes")
        return self._update(subject, cost, time_s)

    def _update(self, subject: Subject, cost: Cost, time_s: float) -> Sequence[Finding]:
        """Return the finding restated where its severity rose or fell back, or much more is stranded."""
        finding = self.finding
        if finding is None or cost.is_back:
            return ()
        told = _STRANDED.read_count(finding)
        change = 0 if told is None else abs(cost.stranded_bytes - told)
        is_other = change >= UPDATE_SHARE * cost.limit_bytes
        is_graver = SEVERITIES.index(cost.severity) > SEVERITIES.index(finding.severity)
        is_over = (finding.severity == "critical" and not cost.has_cost) or (
            finding.severity == "high" and not cost.needs_holes
        )
        if not (is_other or is_graver or is_over):
            return ()
        return self.state(_state(finding, subject, cost, time_s))


def read_tick(subject: Subject) -> Tick:
    """Return the deciding values of one sample, in the units of the history ring."""
    allocator = subject.allocator
    rank = subject.rank
    allocated = allocator.allocated_bytes
    peak = allocated
    for most in (allocator.allocated_max_bytes, None if rank is None else rank.peak_max_bytes):
        if most is not None and (peak is None or most > peak):
            peak = most
    return Tick(
        time_s=subject.sample.time_s,
        interval_s=subject.sample.interval_s,
        stranded_bytes=_round(allocator.inactive_split_bytes),
        allocated_bytes=_round(allocated),
        peak_bytes=_round(peak),
        reserved_bytes=_round(allocator.reserved_bytes),
        step=subject.step,
        retries=allocator.retries,
        floor_bytes=_round(None if rank is None else rank.floor_min_bytes),
    )


def _round(value_bytes: int | None) -> int | None:
    """Round bytes up to 512, as the history ring keeps those of a process."""
    return None if value_bytes is None else -(-value_bytes // 512) * 512


def _state(finding: Finding, subject: Subject, cost: Cost, time_s: float) -> Finding:
    rank = subject.rank
    words = word_finding(subject.name, cost)
    who = () if rank is None else (PROCESS(rank.pid), STARTED(rank.started_s))
    return restate(
        finding,
        time_s,
        device=subject.device_label,
        severity=cost.severity,
        title=words.title,
        evidence=(
            *who,
            _STRANDED(cost.stranded_bytes),
            _PEAK(cost.peak_bytes),
            _LIMIT(cost.limit_bytes),
            _REST(cost.rest_bytes),
            _NEED(cost.need_bytes or None),
            _RETRIES(cost.retries),
            _FLUSHES(cost.flushes),
        ),
        method=f"{words.method}{_ENDURED}"
        if (cost.has_cost or cost.needs_holes) and cost.was_endured
        else words.method,
        advice=words.advice,
    )
