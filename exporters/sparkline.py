"""A small graph in one line of text, on a scale that starts at 0 and is said beside it."""

from collections.abc import Sequence

_BARS = " ▁▂▃▄▅▆▇█"
UNMEASURED_MARK = "·"


def draw_sparkline(values: Sequence[float | None], top: float, width: int) -> str:
    """Return values as bars of eighths, the most of each part; None as a dot.

    Args:
        values: Evenly spaced, oldest first.
        top: What a full bar stands for.
        width: Cells at most; values are joined where there are more.
    """
    cells = max(1, min(width, len(values)))
    parts = [values[len(values) * cell // cells : len(values) * (cell + 1) // cells] for cell in range(cells)]
    return "".join(_draw_bar([value for value in part if value is not None], top) for part in parts)


def _draw_bar(values: Sequence[float], top: float) -> str:
    if not values:
        return UNMEASURED_MARK
    most = max(values)
    if most <= 0 or top <= 0:
        return _BARS[0]
    # A little is shown as the least bar, not as nothing.
    return _BARS[max(1, min(len(_BARS) - 1, round((len(_BARS) - 1) * most / top)))]
