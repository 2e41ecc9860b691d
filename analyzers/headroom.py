"""The largest step that would fit, for every process that reports the sizes of its steps.

It opens no findings: it adds an estimate to the assessment of the process. Sizes are not kept in the ring of
history, so that a restarted worker learns them from new steps; no decision depends on them.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import NormalDist
from typing import NamedTuple

import msgspec

from ..engine.model import Assessment, Finding, HeadroomEstimate, Sample, StepReading
from ..engine.units import format_share
from .findings.lifecycle import is_visible
from .findings.subjects import Subject, SubjectKey, subjects_of
from .floors.rate import find_slope, median_of_sorted

# Seconds for which a process must not be listed before its steps are forgotten.
FORGOTTEN_AFTER_S = 60.0


class HeadroomAnalyzer:
    """Adds estimates from steps of different sizes to assessments."""

    name = "headroom"

    def __init__(self) -> None:
        self._tracks: dict[SubjectKey, HeadroomTrack] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        if self._tracks or any(rank.sized_steps for rank in sample.ranks):
            self._observe_ranks(sample)
        return ()

    def restore(self, findings: Sequence[Finding]) -> None:
        """Do nothing: there are no findings of this kind."""

    def annotate(self, changed: Sequence[Assessment]) -> Sequence[Assessment]:
        """Return changed assessments with estimates, and those whose estimate alone changed."""
        if not self._tracks:
            return changed
        annotated: list[Assessment] = []
        keys = set()
        for assessment in changed:
            key = (
                assessment.node,
                assessment.device_uuid or "",
                assessment.pid,
                assessment.started_s,
            )
            track = self._tracks.get(key)
            annotated.append(assessment if track is None else track.annotate(assessment))
            keys.add(key)
        renewed = [track.take_changed() for key, track in self._tracks.items() if key not in keys]
        return [*annotated, *(assessment for assessment in renewed if assessment is not None)]

    def _observe_ranks(self, sample: Sample) -> None:
        for subject in subjects_of(sample):
            steps = () if subject.rank is None else subject.rank.sized_steps
            track = self._tracks.get(subject.key)
            if track is None and steps:
                track = self._tracks[subject.key] = HeadroomTrack()
            if track is not None:
                track.observe(subject, steps)
        for key in list(self._tracks):
            age_s = sample.time_s - self._tracks[key].seen_s
            if key[0] == sample.node and not 0.0 <= age_s < FORGOTTEN_AFTER_S:
                del self._tracks[key]


# Between two estimates, once many sizes are known.
EVERY_S = 10.0
# Up to so many sizes, each new one brings an estimate at once.
FEW_SIZES = 8
KEPT_LIMITS = 32
KEPT_EXACT = 256
# Steps of a process that are left out: optimizers make their state in the first.
WARM_UP_STEPS = 1
# Largest share of the limit that is surely usable: the last segment must fit whole.
MOST_USED = 0.95
# Change of a value, as a share, that a person would notice.
SEEN_SHARE = 0.02


class HeadroomTrack:
    """Collects the steps of one process and adds an estimate to its assessment."""

    def __init__(self) -> None:
        self.seen_s = 0.0
        self._advisors = (HeadroomAdvisor("tokens"), HeadroomAdvisor("samples"))
        self._newest_index = 0
        # Numbers of the newest steps with exact peaks, which are reported more than once.
        self._exact: deque[int] = deque(maxlen=KEPT_EXACT)
        self._sizes: set[tuple[int | None, int | None]] = set()
        self._limits: deque[int] = deque(maxlen=KEPT_LIMITS)
        self._estimated_s = float("-inf")
        self._is_due = False
        self._most_allocated = self._most_reserved = 0
        self._published: tuple[HeadroomEstimate, ...] = ()
        self._assessment: Assessment | None = None

    def observe(self, subject: Subject, steps: Sequence[StepReading]) -> None:
        self.seen_s = subject.sample.time_s
        limit_bytes = subject.limit_bytes
        if limit_bytes is not None:
            self._limits.append(limit_bytes)
        allocator = subject.allocator
        self._most_allocated = max(self._most_allocated, allocator.allocated_max_bytes or 0)
        self._most_reserved = max(self._most_reserved, allocator.reserved_bytes or 0)
        for step in steps:
            if step.index not in self._exact and (step.is_peak_exact or step.index > self._newest_index):
                self._add_step(step)
        if steps:
            self._newest_index = max(self._newest_index, *(step.index for step in steps))

    def annotate(self, assessment: Assessment) -> Assessment:
        self._assessment = assessment
        self._estimate()
        return msgspec.structs.replace(assessment, headroom=self._published)

    def take_changed(self) -> Assessment | None:
        """Return the newest assessment if its estimate changed since the last one returned; None
        otherwise.
        """
        return None if self._assessment is None or not self._estimate() else self.annotate(self._assessment)

    def _add_step(self, step: StepReading) -> None:
        if step.peak_bytes is None or step.index <= WARM_UP_STEPS:
            return
        self._most_allocated = max(self._most_allocated, step.peak_bytes)
        if step.is_peak_exact:
            self._exact.append(step.index)
        for advisor, size in zip(self._advisors, (step.tokens, step.batch), strict=True):
            if size:
                add = advisor.add if step.index > self._newest_index else advisor.add_older
                add(StepSize(size, step.peak_bytes, step.floor_bytes, step.is_peak_exact))
        if len(self._sizes) < FEW_SIZES and (step.tokens, step.batch) not in self._sizes:
            self._sizes.add((step.tokens, step.batch))
            self._estimated_s = float("-inf")
        self._is_due = True

    def _estimate(self) -> bool:
        """Estimate if that is due; return whether a person would notice a difference."""
        known = self._assessment
        is_early = 0.0 <= self.seen_s - self._estimated_s < EVERY_S
        if known is None or not self._is_due or is_early or not self._limits:
            return False
        self._is_due = False
        self._estimated_s = self.seen_s
        # Share of reserved bytes that is surely usable by a peak. Segments are larger than their content, by
        # how much changes with every size. What was kept from other sizes would be given back first; how
        # much that is nobody reports, and so it counts as lost.
        utilization = MOST_USED
        if self._most_reserved:
            utilization = min(MOST_USED, self._most_allocated / self._most_reserved)
        ceiling_bytes = min(self._limits)
        limit_bytes = min(ceiling_bytes, known.capacity_bytes or ceiling_bytes)
        found = tuple(
            advisor.estimate(limit_bytes, utilization=utilization, ceiling_bytes=ceiling_bytes)
            for advisor in self._advisors
            if advisor.has_steps
        )
        is_other = len(found) != len(self._published) or any(map(_is_other, self._published, found))
        if is_other:
            self._published = found
        return is_other


def _is_other(shown: HeadroomEstimate, newest: HeadroomEstimate) -> bool:
    if shown.reason != newest.reason:
        return True
    pairs = (
        (shown.largest_size, newest.largest_size),
        (shown.too_large_size, newest.too_large_size),
        (shown.per_unit_bytes, newest.per_unit_bytes),
        (shown.limit_bytes, newest.limit_bytes),
        (shown.largest_seen, newest.largest_seen),
    )
    return any(is_visible(before, after, SEEN_SHARE) for before, after in pairs)


# What steps of each size needed: exact peaks as they are, sampled ones only where there are many.

# A sampled peak is a lower bound. Between two steps live bytes rise and fall about evenly, so that a random
# moment finds any level with equal chance, and the most of n such moments falls short of the peak by 1 / (n +
# 1) of it: the end of a uniform distribution is estimated by its greatest value times 1 + 1 / n.

# Steps of about one size with sampled peaks before they count.


LEAST_SAMPLED = 32
# Largest size over the smallest that count as about one.
MOST_STRETCH = 1.1


class StepSize(msgspec.Struct, frozen=True, gc=False):
    """One step: its size in tokens, samples or whatever the program counts, and its memory."""

    size: float
    peak_bytes: int
    # Live bytes between steps; what grows there is not charged to the size.
    floor_bytes: int | None = None
    # Whether the allocator reported the peak; else it is a lower bound.
    is_exact: bool = True


class Needs(NamedTuple):
    """What steps needed beyond their floors."""

    # Bytes by size, sizes ascending.
    by_size: dict[float, list[float]]
    # How many of them rest on sampled peaks.
    sampled_sizes: int
    # The newest floor; 0 where none is known, and the needs are the peaks themselves.
    floor_bytes: float


class _Bound(NamedTuple):
    size: float
    need: float


def collect_needs(steps: Sequence[StepSize]) -> Needs:
    with_floor = [step for step in steps if step.floor_bytes is not None]
    usable = with_floor or steps
    exact: dict[float, list[float]] = {}
    bounds: list[_Bound] = []
    for step in sorted(usable, key=lambda step: step.size):
        need = float(step.peak_bytes - (step.floor_bytes or 0))
        if step.is_exact:
            exact.setdefault(step.size, []).append(need)
        else:
            bounds.append(_Bound(step.size, need))
    sampled = dict(_lift([bound for bound in bounds if bound.size not in exact]))
    found = {**exact, **{size: [need] for size, need in sampled.items()}}
    floor = float(with_floor[-1].floor_bytes or 0) if with_floor else 0.0
    return Needs(dict(sorted(found.items())), len(sampled), floor)


def _lift(bounds: Sequence[_Bound]) -> Iterator[_Bound]:
    """Yield the estimated needs of steps of about one size, from lower bounds; sizes ascend."""
    group: list[_Bound] = []
    for at, bound in enumerate(bounds):
        if group and bound.size > MOST_STRETCH * group[0].size:
            group = []
        group.append(bound)
        is_last_of_size = at + 1 == len(bounds) or bounds[at + 1].size != bound.size
        if is_last_of_size and len(group) >= LEAST_SAMPLED:
            most = max(group, key=lambda each: each.need)
            yield _Bound(most.size, most.need * (1 + 1 / len(group)))
            group = []


# Steps of one process as they end, kept in bounded memory for the headroom estimate.

MOST_STEPS = 2048


class HeadroomAdvisor:
    """Collects steps with their sizes and estimates what would fit; `unit` is the plural of what
    sizes count.
    """

    def __init__(self, unit: str = "tokens") -> None:
        self._unit = unit
        self._steps: deque[StepSize] = deque(maxlen=MOST_STEPS)

    @property
    def has_steps(self) -> bool:
        return bool(self._steps)

    def add(self, step: StepSize) -> None:
        self._steps.append(step)

    def add_older(self, step: StepSize) -> None:
        """Add a step that ended before the others; it is left out where there is no room."""
        if len(self._steps) < MOST_STEPS:
            self._steps.appendleft(step)

    def estimate(
        self, limit_bytes: int, *, utilization: float | None = None, ceiling_bytes: int | None = None
    ) -> HeadroomEstimate:
        """Return the largest size that would fit, see `estimate_headroom`."""
        return estimate_headroom(
            self._steps, limit_bytes, unit=self._unit, utilization=utilization, ceiling_bytes=ceiling_bytes
        )


# Memory per token, and the largest batch that would fit: a robust line through the peaks of steps.

# Method: Theil-Sen line through what each step needed beyond its floor, by its size; the answer is the size
# at which the upper end of the prediction interval (Student's t on the robust spread of the residuals) meets
# the limit, and the size at which its lower end does. It is refused where sizes hardly differ, peaks do not
# follow them, or not in a straight line: attention without a fused kernel grows with the square of the
# length.

# Least number of distinct sizes that shows a line rather than a bend.
LEAST_SIZES = 3
# Least distance of the sizes, as a share of the largest.
LEAST_RANGE = 0.2
MOST_SIZES = 64
# Most by which the slopes of the smaller and the larger half may differ, as a share of the whole's.
BEND_SHARE = 0.15
# And standard errors that they must differ by, since slopes of few steps differ by chance.
SIGMAS = 4.0
# Most by which needs of small sizes may differ to count as alike, as a share of the range of all.
FLAT_SHARE = 0.02
# Most that the spread may be, as a share of what the line rises.
BLUR_SHARE = 0.25
# How many times the largest size seen the answer may be at most.
FARTHEST = 4.0
CONFIDENCE = 0.9


class _Line:
    """A robust line through the peaks."""

    def __init__(self, sizes: Sequence[float], needs: Sequence[float]) -> None:
        self.sizes = sizes
        self.needs = needs
        self.slope = find_slope(sizes, needs) or 0.0
        offsets = sorted(need - self.slope * size for size, need in zip(sizes, needs, strict=True))
        self.offset = median_of_sorted(offsets) or 0.0

    def predict(self, size: float) -> float:
        return self.offset + self.slope * size

    def find_error(self) -> float:
        """Return the standard error of the slope, by how far its own points deviate from it."""
        residuals = [need - self.predict(size) for size, need in zip(self.sizes, self.needs, strict=True)]
        return find_spread(residuals, len(self.sizes)) / math.sqrt(_sum_squares(self.sizes))


class _Prediction:
    """The interval of the need of one more step, by a line and how far steps deviate from it."""

    def __init__(self, line: _Line, spread: float, confidence: float) -> None:
        self.line = line
        self._spread = spread
        self._count = len(line.sizes)
        self._mean = sum(line.sizes) / self._count
        self._squares = _sum_squares(line.sizes)
        self._t = find_t(confidence, self._count - 2)

    def upper(self, size: float) -> float:
        return self.line.predict(size) + self._error(size)

    def lower(self, size: float) -> float:
        """Return what a step of a size needs at least, with the confidence."""
        return self.line.predict(size) - self._error(size)

    def _error(self, size: float) -> float:
        distance = (size - self._mean) ** 2 / self._squares
        return self._t * self._spread * math.sqrt(1 + 1 / self._count + distance)


class _Room(NamedTuple):
    """Bytes beyond the floor that a step may use: surely, and in the best case."""

    sure_bytes: float
    best_bytes: float


def estimate_headroom(
    points: Iterable[StepSize],
    limit_bytes: int,
    *,
    unit: str = "tokens",
    utilization: float | None = None,
    ceiling_bytes: int | None = None,
    confidence: float = CONFIDENCE,
) -> HeadroomEstimate:
    """Estimate the memory per unit of size and the largest size that would fit, or why that is unknown.

    Args:
        points: Steps of one process, in order.
        limit_bytes: Most that its allocator can reserve, or less where not all of that can be live.
        unit: What sizes count, in the plural.
        utilization: Peak allocated / peak reserved of the process, where known: the limit holds reserved
            bytes, and only so much of them can be live.
        ceiling_bytes: Most that could be live in the best case; None for the limit.
        confidence: Probability that the largest size fits, above 0.5 and below 1.
    """
    steps = [point for point in points if point.size > 0]
    needs = collect_needs(steps)
    sizes = sorted({step.size for step in steps})
    empty = HeadroomEstimate(
        unit=unit,
        limit_bytes=limit_bytes,
        steps=len(steps),
        sizes=len(sizes),
        largest_seen=max(sizes, default=None),
        confidence=confidence,
        sampled_sizes=needs.sampled_sizes,
    )
    reason = _refuse_sizes(sizes) or _refuse_needs(list(needs.by_size), len(sizes))
    if reason is not None:
        return msgspec.structs.replace(empty, reason=reason)
    sure_bytes = limit_bytes * (utilization or 1.0)
    best_bytes = max(ceiling_bytes or 0, limit_bytes)
    room = _Room(sure_bytes - needs.floor_bytes, best_bytes - needs.floor_bytes)
    return _answer(empty, _leave_flat(needs.by_size), needs.floor_bytes, room)


def _thin(by_size: dict[float, list[float]]) -> tuple[list[float], list[float]]:
    """Return sizes with the median of their needs; if there are many sizes, evenly chosen ones."""
    sizes = list(by_size)
    if len(sizes) > MOST_SIZES:
        last = len(sizes) - 1
        sizes = [sizes[round(at * last / (MOST_SIZES - 1))] for at in range(MOST_SIZES)]
    return sizes, [median_of_sorted(sorted(by_size[size])) or 0.0 for size in sizes]


def _leave_flat(by_size: dict[float, list[float]]) -> dict[float, list[float]]:
    """Leave out the needs of small sizes that are alike: their peak has another cause.

    Where the optimizer's step needs more than a small batch does, the peak is that of the optimizer.
    """
    middles = {size: median_of_sorted(sorted(needs)) or 0.0 for size, needs in by_size.items()}
    least = min(middles.values(), default=0.0)
    most = max(middles.values(), default=0.0)
    flat = [size for size, need in middles.items() if need <= least + FLAT_SHARE * (most - least)]
    rising = {size: needs for size, needs in by_size.items() if size not in flat}
    is_unlike = bool(flat) and max(flat) - min(flat) >= LEAST_RANGE * max(flat)
    return rising if is_unlike and not _refuse_needs(list(rising), len(by_size)) else by_size


def _refuse_sizes(sizes: list[float]) -> str | None:
    if len(sizes) < LEAST_SIZES:
        count = "one size" if len(sizes) == 1 else f"{len(sizes) or 'no'} sizes"
        return f"{count} of steps seen; at least {LEAST_SIZES} are needed"
    if sizes[-1] - sizes[0] < LEAST_RANGE * sizes[-1]:
        return f"the sizes seen differ by less than {format_share(LEAST_RANGE)}"
    return None


def _refuse_needs(sizes: list[float], seen: int) -> str | None:
    """Return why the known peaks are not enough for an estimate; None where they are."""
    if len(sizes) < LEAST_SIZES or sizes[-1] - sizes[0] < LEAST_RANGE * sizes[-1]:
        known = f"{len(sizes)} of {seen}"
        return (
            f"the peaks of {known} sizes are known well enough; at least {LEAST_SIZES} different ones "
            "are needed"
        )
    return None


def _refuse_line(line: _Line, spread: float) -> str | None:
    rise = line.slope * (line.sizes[-1] - line.sizes[0])
    if rise <= 0:
        return "the peaks do not grow with the size"
    if spread > BLUR_SHARE * rise:
        return "other things change the peaks as much as the size does"
    if len(line.sizes) > LEAST_SIZES and _is_bent(line):
        return "the peaks do not grow in a straight line with the size"
    return None


def _is_bent(line: _Line) -> bool:
    """Return whether the larger sizes grow at another rate than the smaller ones, beyond what spread does."""
    middle = len(line.sizes) // 2
    halves = [_Line(line.sizes[part], line.needs[part]) for part in (slice(middle + 1), slice(middle, None))]
    bend = abs(halves[1].slope - halves[0].slope)
    error = math.sqrt(sum(half.find_error() ** 2 for half in halves))
    return bend > BEND_SHARE * line.slope and bend > SIGMAS * error


def _sum_squares(sizes: Sequence[float]) -> float:
    mean = sum(sizes) / len(sizes)
    return sum((size - mean) ** 2 for size in sizes)


def _answer(
    empty: HeadroomEstimate, by_size: dict[float, list[float]], floor: float, room: _Room
) -> HeadroomEstimate:
    """Estimate by a line through the needs, or say why there is none."""
    line = _Line(*_thin(by_size))
    residuals = [need - line.predict(size) for size, needs in by_size.items() for need in needs]
    spread = find_spread(residuals, len(line.sizes))
    reason = _refuse_line(line, spread)
    if reason is not None:
        return msgspec.structs.replace(empty, reason=reason)
    prediction = _Prediction(line, spread, empty.confidence)
    farthest = int(FARTHEST * line.sizes[-1])
    expected = ((room.sure_bytes + room.best_bytes) / 2 - line.offset) / line.slope
    largest = _find_last(
        lambda size: prediction.upper(size) <= room.sure_bytes, max(0, min(int(expected), farthest))
    )
    # What still may fit in the best case; the next size does not.
    possible = _find_last(lambda size: prediction.lower(size) <= room.best_bytes, farthest)
    return msgspec.structs.replace(
        empty,
        per_unit_bytes=line.slope,
        base_bytes=round(floor + line.offset),
        expected_size=max(0, int(expected)),
        largest_size=largest,
        too_large_size=None if possible >= farthest else possible + 1,
        is_extrapolated=largest > (empty.largest_seen or 0),
        is_bounded=largest >= farthest,
    )


def _find_last(is_true: Callable[[int], bool], most: int) -> int:
    """Return the last number up to `most` for which a condition is true that is true for all below."""
    low = 0
    high = most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_true(middle) else (low, middle - 1)
    return low


# Standard deviation of a normal distribution over its median absolute deviation.
TO_DEVIATION = 1.4826
# Least spread: below the granularity of what splits off a block, sizes mean nothing.
LEAST_BYTES = float(1 << 20)


def find_spread(residuals: Sequence[float], sizes: int) -> float:
    """Return the robust standard deviation of residuals in bytes; the line spent two of the distinct
    `sizes`.
    """
    deviation = TO_DEVIATION * (median_of_sorted(sorted(abs(each) for each in residuals)) or 0.0)
    # A tenth of the steps may be far off and leave the median where it is; they count for what they are.
    tail = sorted(abs(each) for each in residuals)[int(0.9 * (len(residuals) - 1))] / 1.645
    # Few residuals hug their line; the share is that of a median of so few (found by simulation).
    return max(deviation, tail, LEAST_BYTES) * sizes / max(1, sizes - 2)


def find_t(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t distribution; `probability` is above 0.5 and below 1.

    Exact for one and two degrees of freedom; else the expansion of Cornish and Fisher (Abramowitz and Stegun,
    26.7.5), right to three digits from three degrees on.
    """
    if freedom <= 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        share = 2 * probability - 1
        return share * math.sqrt(2 / (1 - share * share))
    z = NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
