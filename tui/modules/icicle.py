"""The icicle of modules with its cursor, and the table of the block under it."""

from collections.abc import Sequence

from textual import events
from textual.message import Message

from ...analyzers.modules import Basis, BreakdownNode, find_node, lay_out_icicle, size_of
from ...engine.units import format_bytes, share_percent
from ...exporters.text import show_number
from ..draw.blocks import HitBox, Icicle, draw_icicle
from ..draw.columns import join_columns
from ..draw.spans import Line, Span, fit_line
from ..frame import keys
from ..widgets.line_page import LinePage

_NAME_CELLS = 16
_FIGURE_CELLS = 11


class BreakdownTable(LinePage, can_focus=False):
    """Lists the parts of a block, as many as there are rows."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._node: BreakdownNode | None = None
        self._basis: Basis = "measured"

    def show(self, node: BreakdownNode | None, basis: Basis) -> None:
        self._node = node
        self._basis = basis
        self._draw()

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        node = self._node
        if node is None or not node.children or height < 2:
            return []
        parts = sorted(node.children, key=lambda part: -size_of(part, self._basis))
        cells = max(_NAME_CELLS, width - 3 * _FIGURE_CELLS - 3)
        heading = ("contents", "measured", "computed", "share")
        lines: list[Line] = [[Span(self._lay_out(heading, cells), "muted")]]
        lines += [self._draw_part(part, node, cells) for part in parts[: height - 1]]
        if len(parts) > height - 1:
            left = parts[max(0, height - 2) :]
            total = sum(size_of(part, self._basis) for part in left)
            lines[-1] = [Span(f" and {len(left)} more: {format_bytes(total)} {self._basis}", "muted")]
        is_ascii = self.glyphs.name == "ascii"
        return [fit_line(line, width, is_ascii=is_ascii) for line in lines]

    def _draw_part(self, part: BreakdownNode, whole: BreakdownNode, cells: int) -> Line:
        share = share_percent(size_of(part, self._basis), size_of(whole, self._basis))
        texts = (
            part.name,
            format_bytes(part.measured_bytes),
            format_bytes(part.computed_bytes),
            show_number(share, ".1f", " %"),
        )
        return [Span(self._lay_out(texts, cells))]

    def _lay_out(self, texts: Sequence[str], name_cells: int) -> str:
        widths = (name_cells, *[_FIGURE_CELLS] * 3)
        return f" {join_columns(texts, widths, 'lrrr', self.glyphs.ellipsis, gap=0)}"


Path = tuple[str, ...]


class BreakdownIcicle(LinePage):
    """Draws a tree as far down as there are rows."""

    BINDINGS = [*keys.ICICLE]

    class Moved(Message):
        """The block under the cursor has changed, or the one that fills the width."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tree: BreakdownNode | None = None
        self._basis: Basis = "measured"
        self._drawn = Icicle((), (), 0)
        # Path of the block that fills the width.
        self.zoom: Path = ()
        # Path of the block under the cursor, from the whole tree's root.
        self.chosen: Path = ()

    @property
    def narrow(self) -> int:
        return self._drawn.narrow

    @property
    def depth(self) -> int:
        return len(self._drawn.lines)

    def show(self, tree: BreakdownNode | None, basis: Basis) -> None:
        """Draw a tree; zoom and cursor stay where they are, or move up to the nearest block that it has."""
        self._tree = tree
        self._basis = basis
        self.zoom, self.chosen = self._find_known(self.zoom), self._find_known(self.chosen)
        if self.chosen[: len(self.zoom)] != self.zoom:
            self.chosen = self.zoom
        self._draw()

    def _find_known(self, path: Path) -> Path:
        """Return as much of a path as the tree has."""
        while path and (self._tree is None or find_node(self._tree, path) is None):
            path = path[:-1]
        return path

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        root = None if self._tree is None else find_node(self._tree, self.zoom)
        cells = () if root is None else lay_out_icicle(root, self._basis, max(0, height - 1))
        chosen = self.chosen[len(self.zoom) :]
        self._drawn = draw_icicle(cells, width, self.glyphs, chosen)
        while chosen and self._find_box(chosen) is None:
            chosen = chosen[:-1]
            self._drawn = draw_icicle(cells, width, self.glyphs, chosen)
        self.chosen = (*self.zoom, *chosen)
        return list(self._drawn.lines)

    def _find_box(self, path: Path) -> HitBox | None:
        return next((box for box in self._drawn.boxes if box.cell.path == path), None)

    def go_to(self, path: Path, zoom: Path | None = None) -> None:
        """Put the cursor on a block, and fill the width with `zoom`, if any."""
        before = (self.chosen, self.zoom)
        self.chosen = path
        self.zoom = self.zoom if zoom is None else zoom
        self._draw()
        if (self.chosen, self.zoom) != before:
            self.post_message(self.Moved())

    def action_zoom(self) -> None:
        self.go_to(self.chosen, self.chosen)

    def action_zoom_out(self) -> None:
        """Fill the width with the parent of the present block."""
        self.go_to(self.chosen, self.zoom[:-1])

    def action_move_up(self) -> None:
        """Go to the block above; at the top, zoom out."""
        if self.chosen == self.zoom:
            self.go_to(self.zoom[:-1], self.zoom[:-1])
        else:
            self.go_to(self.chosen[:-1])

    def action_move_down(self) -> None:
        """Go to the first block below; where it is not drawn, zoom into this one first."""
        node = None if self._tree is None else find_node(self._tree, self.chosen)
        if node is None or not node.children:
            return
        below = self._find_below()
        if below is None and self.chosen != self.zoom:
            self.action_zoom()
            below = self._find_below()
        if below is not None:
            self.go_to((*self.zoom, *below.cell.path))

    def _find_below(self) -> HitBox | None:
        above = self.chosen[len(self.zoom) :]
        return next((it for it in self._drawn.boxes if it.cell.path and it.cell.path[:-1] == above), None)

    def action_move_across(self, places: int) -> None:
        depth = len(self.chosen) - len(self.zoom)
        row = [(*self.zoom, *box.cell.path) for box in self._drawn.boxes if box.row == depth]
        if self.chosen in row:
            self.go_to(row[max(0, min(row.index(self.chosen) + places, len(row) - 1))])

    def on_click(self, event: events.Click) -> None:
        """Choose the block; a second click zooms into it."""
        for box in self._drawn.boxes:
            if box.row == event.y and box.first <= event.x < box.end:
                self.go_to((*self.zoom, *box.cell.path))
                if event.chain > 1:
                    self.action_zoom()
                return
