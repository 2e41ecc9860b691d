"""A measure over all the time it was seen, in bounded memory: spans that double when they grow too many."""

from collections.abc import Sequence
from statistics import median

from ..robust_slope import find_slope
from .model import FragmentationTrend, Measure, TrendDescription

MOST_POINTS = 256
_MOST_SPANS = 32
_STABLE_CHANGE = 0.01
"""Change over the whole time, as a share, below which nothing happened."""
_CLEAR_CHANGE = 0.05
"""Change from which it is a trend, where it is also most of the range."""
_MOST_OF_RANGE = 0.5
"""Share of the range that a trend must explain: what swings comes back, so its change is small."""


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
        """Take the value of one sample.

        Args:
            time_s: Time of the sample; later than that of the one before.
            value: The measure, 0 to 1.
        """
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
        """Return the trend so far; None before the first value."""
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
        """Join the spans two by two."""
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
    that of the last, which sees a jump too; against the range of the values.

    Args:
        points: Time in seconds and value, oldest first; not empty.
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
