"""Findings on a figure: a line at their time and a mark whose shape and colour say of what kind they are."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...analyzers.out_of_memory import SIZE
from ...engine.model import Finding
from ...engine.units import format_bytes
from .curve import Curve
from .model import Marker
from .style import MARKS, OTHER, MarkStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LINES = 40
"""Findings past this many have their mark, and no line through the figure."""
_MOST_IN_LEGEND = 6
_EDGE = 0.035
_ROW = 0.05
"""Of the height of the axes: above the first row of marks, and each row; a mark stays inside the axes."""
_SIDE = 0.015
"""Of the width of the axes, left at either side so that a mark at the end stays inside."""
_NAMES = {"oom_met": "out of memory", "oom": "forecast: out of memory"}


def make_marker(finding: Finding) -> Marker:
    """Return the mark of a finding."""
    return Marker(
        time_s=finding.opened_s,
        severity=finding.severity,
        label=finding.kind,
        request_bytes=SIZE.read_count(finding),
    )


def find_failed_peak(marker: Marker, curves: Mapping[str, Curve]) -> int | None:
    """Return what would have been held if the request that failed had been met; None where it is not known.

    Args:
        marker: An out-of-memory error.
        curves: Of the device, by what they show; the first that was measured by then counts.
    """
    if marker.request_bytes is None:
        return None
    for name in ("allocated", "reserved", "used"):
        curve = curves.get(name)
        if curve is None:
            continue
        pairs = zip(curve.times_s, curve.high, strict=True)
        known = [value for time_s, value in pairs if time_s <= marker.time_s and value == value]  # noqa: PLR0124
        if known:
            return round(known[-1]) + marker.request_bytes
    return None


def make_room(markers: Iterable[Marker]) -> float:
    """Return by how much axes have to be higher so that these marks do not cover what is drawn."""
    rows = len({_find_kind(marker) for marker in markers})
    return 1 / (1 - _EDGE - _ROW * rows) if rows else 1.0


def widen(axes: "Axes", markers: Sequence[Marker]) -> None:
    """Leave room at both sides for marks at the ends of the axis of time."""
    if markers:
        start, end = axes.get_xlim()
        axes.set_xlim(start - _SIDE * (end - start), end + _SIDE * (end - start))


def draw_markers(
    axes: "Axes",
    markers: Sequence[Marker],
    top: float,
    peaks: Mapping[Marker, tuple[float, float]] | None = None,
) -> None:
    """Mark findings below the upper edge of the axes, each kind in a row of its own.

    Args:
        axes: Whose limits are settled.
        markers: The findings; one outside the axis of time stands at its end.
        top: The upper edge, in data.
        peaks: Of requests that failed: what was held, and the peak that was not reached, in data.
    """
    raised = peaks or {}
    start, end = axes.get_xlim()
    inside = _SIDE * (end - start)
    places = {marker: min(max(marker.time_s, start + inside / 2), end - inside / 2) for marker in markers}
    in_rows = (_find_kind(marker) for marker in markers if marker not in raised)
    rows = {kind: row for row, kind in enumerate(dict.fromkeys(in_rows))}
    groups: dict[tuple[str, str], list[Marker]] = {}
    for marker in markers:
        groups.setdefault((marker.label, marker.severity), []).append(marker)
    for marker in markers[:_MOST_LINES]:
        axes.axvline(places[marker], color=_find_style(marker).colour, linewidth=0.7, alpha=0.8, zorder=1.5)
    for marker, heights in raised.items():
        colour = _find_style(marker).colour
        at = places[marker]
        axes.plot([at, at], heights, color=colour, linestyle=(0, (1, 1)), linewidth=2.6, zorder=4)
    for number, group in enumerate(groups.values()):
        first = group[0]
        style = _find_style(first)
        row = rows.get(_find_kind(first), 0)
        at = top * (1 - _EDGE - _ROW * row)
        axes.scatter(
            [places[marker] for marker in group],
            [raised[marker][1] if marker in raised else at for marker in group],
            s=30,
            marker=style.shape,
            color=style.colour,
            edgecolors="white",
            linewidths=0.4,
            zorder=5,
            label=_name_group(group) if number < _MOST_IN_LEGEND else None,
        )


def _find_kind(marker: Marker) -> str:
    return marker.label if marker.label in MARKS else OTHER


def _find_style(marker: Marker) -> MarkStyle:
    return MARKS[_find_kind(marker)]


def _name_group(group: Sequence[Marker]) -> str:
    first = group[0]
    times = "" if len(group) == 1 else f" ×{len(group)}"
    name = _NAMES.get(first.label, first.label.replace("_", " "))
    asked = [marker.request_bytes for marker in group if marker.request_bytes is not None]
    refused = f"\n{format_bytes(max(asked))} refused: the mark\nis the peak that failed" if asked else ""
    return f"{name} ({first.severity}){times}{refused}"
