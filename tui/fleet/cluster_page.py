"""What is known across nodes, on a page that scrolls."""

from collections.abc import Sequence

from ...analyzers.cluster_state import ClusterPicture
from ...engine.model import Finding
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, fit_line
from ..frame import keys
from ..widgets.line_page import LinePage
from .cluster_lines import describe_cluster


class ClusterPage(LinePage):
    """Shows findings across nodes, and jobs.

    Args:
        glyphs: Characters to draw with.
    """

    BINDINGS = [*keys.CLUSTER_PAGE]
    DEFAULT_CSS = "ClusterPage { height: 1fr; padding: 0 1; }"

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._picture = ClusterPicture()
        self._findings = tuple[Finding, ...]()

    def show(self, picture: ClusterPicture, findings: Sequence[Finding]) -> None:
        """Show all nodes at one moment, and the findings that are open across them."""
        self._picture = picture
        self._findings = tuple(findings)
        self._draw()

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        is_ascii = self._glyphs.name == "ascii"
        ellipsis = self._glyphs.ellipsis
        lines = describe_cluster(self._picture, self._findings, width, self._glyphs)
        return [fit_line(line, width, is_ascii=is_ascii, ellipsis=ellipsis) for line in lines]

    def action_scroll(self, pages: float) -> None:
        """Scroll by lines of the page, in pages."""
        step = max(1, round(abs(pages) * max(1, self.size.height - 1)))
        self.scroll_relative(y=step if pages > 0 else -step, animate=False)
