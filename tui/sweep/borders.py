"""The capacity staircase of a grid: where what ran meets what did not fit, as edges between its cells."""

from typing import NamedTuple

from ...exporters.sweep.figure_cells import DrawnGrid, find_borders
from ..draw.glyphs import Glyphs

Edge = tuple[int, int]
"""Row and column of the cell below, or to the right of, an edge."""


class Borders(NamedTuple):
    """Edges, and of each whether it is known that memory ended there."""

    above: dict[Edge, bool]
    """Along the upper side of a cell."""
    before: dict[Edge, bool]
    """Along the left side of a cell."""


def trace_borders(drawn: DrawnGrid) -> Borders:
    """Return the staircase of a grid."""
    borders = Borders({}, {})
    for is_known in (False, True):
        for (left, top), (right, bottom) in find_borders(drawn, is_known=is_known):
            edges = borders.before if left == right else borders.above
            edges[min(top, bottom), min(left, right)] = is_known
    return borders


def draw_edge(is_known: bool | None, glyphs: Glyphs, *, is_upright: bool) -> str:
    """Return the character of an edge: dashed where the cause is not known, a blank where there is none."""
    if is_known is None:
        return " "
    if glyphs.name == "ascii":
        return ("|" if is_known else ":") if is_upright else ("=" if is_known else "-")
    return ("┃" if is_known else "╏") if is_upright else ("━" if is_known else "╍")


def draw_joint(borders: Borders, row: int, column: int, glyphs: Glyphs) -> str:
    """Return the character where the edges around the upper left corner of a cell meet."""
    up = (row - 1, column) in borders.before
    down = (row, column) in borders.before
    left = (row, column - 1) in borders.above
    right = (row, column) in borders.above
    if not (up or down or left or right):
        return " "
    if glyphs.name == "ascii":
        return "+"
    return _JOINTS[up, down, left, right]


_JOINTS = {
    (up, down, left, right): character
    for character, sides in {
        "━": "lr l r",
        "┃": "ud u d",
        "┏": "dr",
        "┓": "dl",
        "┗": "ur",
        "┛": "ul",
        "┣": "udr",
        "┫": "udl",
        "┳": "dlr",
        "┻": "ulr",
        "╋": "udlr",
    }.items()
    for side in sides.split()
    for up, down, left, right in [tuple(letter in side for letter in "udlr")]
}
