"""Cells of a heat map: the highest value of each device in each column of time."""

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Literal

from .curve import Curve
from .model import FigureClock, HeatMap
from .time_axis import find_span

COLUMNS = 48


def make_heat_map(
    shares: Mapping[str, Curve],
    *,
    unit: Literal["%", "GiB"],
    clock: FigureClock,
    columns: int = COLUMNS,
    subtitle: str = "",
) -> HeatMap:
    """Return the cells of a heat map; a cell without any value is unmeasured.

    Args:
        shares: Curve of each device by its label, in the unit.
        unit: Of the values.
        clock: Of the times.
        columns: Columns of time; fewer where the curves are shorter.
        subtitle: What the figures are of.
    """
    start_s, end_s = find_span([curve.times_s for curve in shares.values()]) or (0.0, 0.0)
    if end_s <= start_s:
        start_s = start_s - 0.5
        end_s = end_s + 0.5
    count = max(1, min(columns, max((len(curve) for curve in shares.values()), default=1)))
    edges_s = tuple(start_s + (end_s - start_s) * number / count for number in range(count + 1))
    return HeatMap(
        devices=tuple(shares),
        edges_s=edges_s,
        values=tuple(_fill(curve, edges_s) for curve in shares.values()),
        unit=unit,
        clock=clock,
        subtitle=subtitle,
    )


def _fill(curve: Curve, edges_s: tuple[float, ...]) -> tuple[float | None, ...]:
    most: list[float | None] = [None] * (len(edges_s) - 1)
    for time_s, high in zip(curve.times_s, curve.high, strict=True):
        if math.isnan(high):
            continue
        at = min(bisect_right(edges_s, time_s) - 1, len(most) - 1)
        known = most[at]
        most[at] = high if known is None else max(known, high)
    return tuple(most)
