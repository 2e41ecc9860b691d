"""One row of a fleet as text in roles: labels, and a cell for each device."""

from collections.abc import Collection, Mapping, Sequence

from ...analyzers.fleet.model import FleetDevice, FleetGroup, FleetNode
from ...analyzers.risk import LEVELS
from ..draw.gauge import level_glyph
from ..draw.glyphs import Glyphs
from ..draw.numbers import brief_span_text
from ..draw.spans import Line, Role, Span, fit_text
from .layout import FleetBlock, FleetLayout
from .view import CellFigure

_IN_DANGER = frozenset(LEVELS[LEVELS.index("medium") :])


def draw_cell(device: FleetDevice, figure: CellFigure, glyphs: Glyphs) -> tuple[str, Role]:
    """Return a device as one cell: what is wrong with it, or how full it is, or its level of risk."""
    if device.state == "lost":
        return glyphs.lost, "critical"
    if device.level in _IN_DANGER:
        return glyphs.risk(device.level), device.level
    if device.is_old:
        return glyphs.stale, "medium"
    if figure == "risk":
        return glyphs.risk(device.level), device.level
    share = device.used_share
    if share is None:
        return glyphs.unmeasured, "muted"
    return level_glyph(share, glyphs), "unknown" if device.level == "unknown" else "fill"


def draw_row(
    blocks: Sequence[FleetBlock],
    layout: FleetLayout,
    groups: Sequence[FleetGroup],
    lost: Mapping[str, str],
    cursor: tuple[int, int] | None,
    figure: CellFigure,
    cells: "DrawnCells",
) -> Line:
    """Return a row of the grid.

    Args:
        blocks: What stands in it.
        layout: Where everything stands.
        groups: All groups.
        lost: What is said in place of the cells of nodes that are lost.
        cursor: Group and place of the device under the cursor.
        figure: What a cell shows.
        cells: What draws them, and knows what it drew before.
    """
    line: Line = []
    x = 0
    glyphs = cells.glyphs
    for block in blocks:
        group = groups[block.group]
        if block.x > x:
            line.append(Span(" " * (block.x - x)))
        at = cursor[1] if cursor is not None and cursor[0] == block.group else None
        is_chosen = at is not None and block.start <= at < max(block.stop, block.start + 1)
        line += _draw_label(group, block, layout, glyphs, is_chosen=is_chosen)
        words = lost.get(group.node) if group.node is not None else None
        if words is None:
            line += cells.draw(group, block, at, figure)
            x = block.x + layout.label_cells + block.stop - block.start
        else:
            room = layout.block_cells
            line.append(Span(fit_text(words, room, glyphs.ellipsis), "medium" if at is None else "cursor"))
            x = block.x + layout.label_cells + room
    return line


def _draw_label(
    group: FleetGroup, block: FleetBlock, layout: FleetLayout, glyphs: Glyphs, *, is_chosen: bool
) -> Line:
    """Return the name of a group before its first cells; an edge marks where the cursor is."""
    if not layout.label_cells:
        return []
    name = fit_text(group.name if not block.start else "", layout.label_cells - 1, glyphs.ellipsis)
    return (
        [Span(name, "strong"), Span(glyphs.selected, "accent")] if is_chosen else [Span(f"{name} ", "muted")]
    )


class DrawnCells:
    """Draws the cells of groups, and those anew of which a device is another.

    Args:
        glyphs: Characters to draw with.
    """

    def __init__(self, glyphs: Glyphs) -> None:
        self.glyphs = glyphs
        self._drawn: dict[tuple[str, int, int], tuple[tuple[FleetDevice, ...], CellFigure, Line]] = {}

    def draw(self, group: FleetGroup, block: FleetBlock, at: int | None, figure: CellFigure) -> Line:
        """Return the cells of a block, those of one look as one span.

        Args:
            group: Whose devices they are.
            block: Which of them.
            at: Place of the device under the cursor in the group; None where it is elsewhere.
            figure: What a cell shows.
        """
        if at is not None:
            return self._draw(group, block, at, figure)
        key = group.name, block.start, block.stop
        known = self._drawn.get(key)
        if known is None or known[0] is not group.devices or known[1] != figure:
            known = self._drawn[key] = group.devices, figure, self._draw(group, block, None, figure)
        return known[2]

    def keep(self, names: Collection[str]) -> None:
        """Forget groups that are no longer there."""
        self._drawn = {key: it for key, it in self._drawn.items() if key[0] in names}

    def _draw(self, group: FleetGroup, block: FleetBlock, at: int | None, figure: CellFigure) -> Line:
        line: Line = []
        run: str = ""
        look: Role = "cursor"
        for place in range(block.start, block.stop):
            glyph, role = draw_cell(group.devices[place], figure, self.glyphs)
            role = "cursor" if place == at else role
            if role != look and run:
                line.append(Span(run, look))
                run = ""
            run = run + glyph
            look = role
        if run:
            line.append(Span(run, look))
        return line


def describe_silence(node: FleetNode, waited_s: float, room: int) -> str:
    """Return what stands in place of the cells of a node that is lost: since when, as there is room.

    Args:
        node: The node.
        waited_s: Seconds since it was said for how long it has been silent.
        room: Cells for the words.
    """
    if node.silent_s is None:
        return "lost"
    age = brief_span_text(node.silent_s + waited_s)
    return f"lost {age}" if len(age) + 5 <= room else age
