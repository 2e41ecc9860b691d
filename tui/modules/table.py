"""What is in a block, the largest first: measured beside computed, and each one's share of the block."""

from ...analyzers.breakdown import Basis, BreakdownNode, size_of
from ...engine.units import format_bytes
from ..draw.glyphs import Glyphs
from ..draw.numbers import share_percent
from ..draw.spans import Line, Span, fit_line, fit_text
from ..widgets.line_page import LinePage

_NAME_CELLS = 16
_FIGURE_CELLS = 11


class BreakdownTable(LinePage, can_focus=False):
    """Lists the parts of a block, as many as there are rows.

    Args:
        glyphs: Characters to draw with.
    """

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._node: BreakdownNode | None = None
        self._basis: Basis = "measured"

    def show(self, node: BreakdownNode | None, basis: Basis) -> None:
        """List the parts of a block."""
        self._node = node
        self._basis = basis
        self._draw()

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        node = self._node
        if node is None or not node.children or height < 2:
            return []
        parts = sorted(node.children, key=lambda part: -size_of(part, self._basis))
        cells = max(_NAME_CELLS, width - 3 * _FIGURE_CELLS - 3)
        head = _lay_out("what is in it", "measured", "computed", "share")
        lines: list[Line] = [[Span(f" {fit_text(head[0], cells, '')}{head[1]}", "muted")]]
        lines += [self._draw_part(part, node, cells) for part in parts[: height - 1]]
        if len(parts) > height - 1:
            left = parts[max(0, height - 2) :]
            total = sum(size_of(part, self._basis) for part in left)
            lines[-1] = [Span(f" and {len(left)} more: {format_bytes(total)} {self._basis}", "muted")]
        is_ascii = self._glyphs.name == "ascii"
        return [fit_line(line, width, is_ascii=is_ascii, ellipsis=self._glyphs.ellipsis) for line in lines]

    def _draw_part(self, part: BreakdownNode, whole: BreakdownNode, cells: int) -> Line:
        share = share_percent(size_of(part, self._basis), size_of(whole, self._basis))
        name, figures = _lay_out(
            part.name,
            format_bytes(part.measured_bytes),
            format_bytes(part.computed_bytes),
            "—" if share is None else f"{share:.1f} %",
        )
        return [Span(f" {fit_text(name, cells, self._glyphs.ellipsis)}"), Span(figures)]


def _lay_out(name: str, *figures: str) -> tuple[str, str]:
    return name, "".join(f"{figure:>{_FIGURE_CELLS}}" for figure in figures)
