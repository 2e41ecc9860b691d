"""The screen of what is known across nodes: findings, jobs over nodes, their stages beside the plan."""

from textual import events, on
from textual.app import ComposeResult

from ...analyzers.fleet.fleet import Fleet
from ...analyzers.fleet.verdict import judge_fleet
from ..draw.glyphs import Glyphs
from ..frame import keys
from ..frame.keys import KEYS_OF_THE_VIEW
from ..terminal.compositor import ThriftyScreen
from ..widgets.key_line import KeyLine
from ..widgets.verdict_line import VerdictLine
from .cluster_order import order_by_gravity
from .cluster_page import ClusterPage
from .cluster_watch import ClusterWatch

KEYS_FROM_ROWS = 13


class ClusterScreen(ThriftyScreen[None]):
    """Shows a cluster when told to.

    Args:
        fleet: What is known of the nodes.
        cluster: What is concluded across them.
        glyphs: Characters to draw with.
    """

    BINDINGS = [*keys.CLUSTER_SCREEN]
    DEFAULT_CSS = """
    ClusterScreen {
        layout: vertical;
        #verdict { background: $surface; }
        #keys { background: $surface; }
    }
    """

    def __init__(self, fleet: Fleet, cluster: ClusterWatch, glyphs: Glyphs) -> None:
        super().__init__()
        self._fleet = fleet
        self._cluster = cluster
        self._verdict = VerdictLine(glyphs, id="verdict")
        self.page = ClusterPage(glyphs, id="page")
        self._keys = KeyLine(id="keys")

    def compose(self) -> ComposeResult:
        """Yield the parts, top to bottom."""
        yield self._verdict
        yield self.page
        yield self._keys

    def on_mount(self) -> None:
        """Give the page the keys."""
        self.page.focus()
        self._keys.hide(KEYS_OF_THE_VIEW)
        self._fit()

    @on(events.Resize)
    def _fit(self) -> None:
        """Choose anew which lines fit."""
        self._keys.display = self.size.height >= KEYS_FROM_ROWS
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Draw what is known now."""
        if not self.is_mounted:
            return
        with self.drawn_at_once():
            self._verdict.show(judge_fleet(self._fleet.picture.census, self._fleet.coverage))
            self.page.show(self._cluster.picture, order_by_gravity(self._cluster.findings))
