"""Findings on a figure: a line at their time, and above it a mark whose shape says how severe they are."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .model import Marker
from .style import MARKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LINES = 40
"""Findings past this many have their mark, and no line through the figure."""
_MOST_IN_LEGEND = 6


def draw_markers(axes: "Axes", markers: Sequence[Marker], top: float) -> None:
    """Mark findings at the upper edge of the axes.

    Args:
        axes: Whose limits are settled.
        markers: The findings.
        top: The upper edge, in data.
    """
    groups: dict[tuple[str, str], list[Marker]] = {}
    for marker in markers:
        groups.setdefault((marker.label, marker.severity), []).append(marker)
    for marker in markers[:_MOST_LINES]:
        axes.axvline(marker.time_s, color=MARKS[marker.severity].colour, linewidth=0.7, alpha=0.8, zorder=1.5)
    for number, ((label, severity), group) in enumerate(groups.items()):
        style = MARKS[group[0].severity]
        axes.scatter(
            [marker.time_s for marker in group],
            [top] * len(group),
            s=26,
            marker=style.shape,
            color=style.colour,
            edgecolors="white",
            linewidths=0.4,
            clip_on=False,
            zorder=5,
            label=_name_group(label, severity, len(group)) if number < _MOST_IN_LEGEND else None,
        )


def _name_group(label: str, severity: str, count: int) -> str:
    times = "" if count == 1 else f" ×{count}"
    return f"{label.replace('_', ' ')} ({severity}){times}"
