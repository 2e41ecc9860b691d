"""Nodes, a line each: their state and age, their clock, what their devices come to, how their agent fares."""

from collections.abc import Sequence

from ...analyzers.fleet.fleet import NodeSummary
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, fit_line
from ..frame import keys
from ..widgets.cursor_list import CursorList
from .node_lines import draw_node, draw_node_heading


class NodeList(CursorList):
    """Lists nodes below a line of titles.

    Args:
        glyphs: Characters to draw with.
    """

    BINDINGS = [*keys.NODE_LIST]
    DEFAULT_CSS = "NodeList { height: 1fr; padding: 0 1; }"

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._listed: Sequence[NodeSummary] = ()
        self._now_s = 0.0

    @property
    def current(self) -> NodeSummary | None:
        """The node under the cursor."""
        return self._listed[self.chosen] if self.chosen < len(self._listed) else None

    @property
    def heading(self) -> Line:
        """Titles of the columns."""
        return self._fit(draw_node_heading(self._label_cells, self._width))

    def show(self, nodes: Sequence[NodeSummary], now_s: float) -> None:
        """List nodes; the cursor stays on its own, wherever that is now.

        Args:
            nodes: In order.
            now_s: The moment of which ages are told, by our wall clock.
        """
        name = None if self.current is None else self.current.node.name
        places = {it.node.name: place for place, it in enumerate(nodes)}
        self._listed = nodes
        self._now_s = now_s
        self.chosen = places.get(name or "", min(self.chosen, max(0, len(nodes) - 1)))
        self._draw()

    @property
    def _count(self) -> int:
        return len(self._listed)

    @property
    def _label_cells(self) -> int:
        return max((len(it.node.name) for it in self._listed), default=4)

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        label = self._label_cells
        return [
            self._fit(
                draw_node(
                    it,
                    self._now_s,
                    label,
                    width,
                    self._glyphs,
                    is_chosen=place == self.chosen and self.has_focus,
                )
            )
            for place, it in enumerate(self._listed)
        ]

    def _fit(self, line: Line) -> Line:
        is_ascii = self._glyphs.name == "ascii"
        return fit_line(line, self._width, is_ascii=is_ascii, ellipsis=self._glyphs.ellipsis)
