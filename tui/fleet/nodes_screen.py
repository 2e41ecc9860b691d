"""The list of nodes: who is there, how old its figures are, whose clock is off, whose agent is in trouble."""

from textual import events, on
from textual.app import ComposeResult
from textual.message import Message

from ...analyzers.fleet.fleet import Fleet, order_by_need
from ...analyzers.fleet.verdict import judge_fleet
from ...engine.clock import Clock
from ..draw.glyphs import Glyphs
from ..draw.spans import Role
from ..frame import keys
from ..frame.keys import KEYS_OF_THE_VIEW
from ..terminal.compositor import ThriftyScreen
from ..widgets.cursor_list import CursorList
from ..widgets.key_line import KeyLine
from ..widgets.one_line import OneLine, Piece
from ..widgets.verdict_line import VerdictLine
from .node_lines import describe_facts
from .node_list import NodeList

TITLE_FROM_ROWS = 11
HEADING_FROM_ROWS = 5
KEYS_FROM_ROWS = 13
FACTS_FROM_ROWS = 8
AGE_TICK_S = 1.0


class NodesScreen(ThriftyScreen[None]):
    """Lists the nodes of a fleet.

    Args:
        fleet: What is known of the nodes.
        glyphs: Characters to draw with.
        clock: Where time is read.
    """

    BINDINGS = [*keys.NODES_SCREEN]
    DEFAULT_CSS = """
    NodesScreen {
        layout: vertical;
        #verdict { background: $surface; }
        #keys { background: $surface; }
    }
    """

    class NodeChosen(Message):
        """A node is to be shown."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, fleet: Fleet, glyphs: Glyphs, clock: Clock) -> None:
        super().__init__()
        self._fleet = fleet
        self._clock = clock
        self._title = OneLine(id="title")
        self._verdict = VerdictLine(glyphs, id="verdict")
        self._heading = OneLine(id="heading")
        self.nodes = NodeList(glyphs, id="nodes")
        self._facts = OneLine(id="facts")
        self._keys = KeyLine(id="keys")

    def compose(self) -> ComposeResult:
        """Yield the parts, top to bottom."""
        yield self._title
        yield self._verdict
        yield self._heading
        yield self.nodes
        yield self._facts
        yield self._keys

    def on_mount(self) -> None:
        """Give the list the keys, and let ages grow."""
        self.nodes.focus()
        self._keys.hide(KEYS_OF_THE_VIEW)
        self.set_interval(AGE_TICK_S, self.draw, name="ages of nodes")
        self._fit()

    @on(events.Resize)
    def _fit(self) -> None:
        """Choose anew which lines fit."""
        height = self.size.height
        self._title.display = height >= TITLE_FROM_ROWS
        self._heading.display = height >= HEADING_FROM_ROWS
        self._keys.display = height >= KEYS_FROM_ROWS
        self._facts.display = height >= FACTS_FROM_ROWS
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Draw what is known now."""
        if not self.is_mounted:
            return
        with self.drawn_at_once():
            summaries = order_by_need([self._fleet.summarize(name) for name in self._fleet.names])
            coverage = self._fleet.coverage
            role: Role = "medium" if coverage.is_partial else "strong"
            told = [Piece(coverage.text, role)]
            if coverage.nodes_left_out:
                told.append(Piece(f"  {coverage.followed_text}", "muted"))
            self._title.set_pieces(told, [Piece("lost first, then by risk", "muted")])
            self._verdict.show(judge_fleet(self._fleet.picture.census, coverage))
            self.nodes.show(summaries, self._clock.wall_s())
            self._heading.set_pieces([Piece(span.text, span.role) for span in self.nodes.heading])
            self._write_facts()

    @on(CursorList.Chosen)
    def _write_facts(self) -> None:
        """Say in full what is wrong with the node under the cursor, and by what other name it goes."""
        chosen = self.nodes.current
        told = "" if chosen is None else describe_facts(chosen)
        self._facts.set_pieces(
            [Piece(chosen.node.name, "strong"), Piece(f"  {told}")] if chosen and told else []
        )

    @on(CursorList.Opened)
    def open_current(self, message: CursorList.Opened) -> None:
        """Ask for the node under the cursor."""
        message.stop()
        if self.nodes.current is not None:
            self.post_message(self.NodeChosen(self.nodes.current.node.name))
