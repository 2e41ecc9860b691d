"""The list of nodes: which are there, how old their values are, whose clock is off, whose agent has
trouble.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from textual import events, on
from textual.app import ComposeResult
from textual.message import Message

from ...analyzers.fleet.fleet import Fleet, NodeSummary, order_by_need
from ...analyzers.fleet.verdict import judge_fleet
from ...analyzers.verdict import Remedy
from ...engine.clock import Clock
from ...engine.units import format_bytes, format_share
from ..draw.columns import join_columns
from ..draw.glyphs import Glyphs
from ..draw.numbers import brief_span_text
from ..draw.pieces import Piece
from ..draw.spans import Line, Role, Span
from ..frame import keys
from ..frame.keys import KEYS_OF_THE_VIEW
from ..terminal.compositor import ThriftyScreen
from ..widgets.line_page import RowTable
from ..widgets.one_line import KeyLine, OneLine
from ..widgets.verdict_line import VerdictLine

MOST_LABEL_CELLS = 24


class _Column(NamedTuple):
    title: str
    cells: int
    # Width of the whole line from which it is shown.
    from_width: int
    # Empty where unmeasured.
    format: Callable[[NodeSummary], str]


def _format_offset(summary: NodeSummary) -> str:
    """Return how far the clock is off; "in step" is within the delay of messages."""
    offset_s = summary.node.clock_offset_s
    if offset_s is None:
        return "in step" if summary.node.state == "live" else ""
    return f"{'+' if offset_s > 0 else '-'}{brief_span_text(abs(offset_s))}"


_COLUMNS = (
    _Column("devices", 7, 30, lambda it: f"{it.device_count:,}"),
    _Column("used", 5, 40, lambda it: "" if it.used_share is None else format_share(it.used_share)),
    _Column("clock", 9, 56, _format_offset),
    _Column("missed", 7, 70, lambda it: f"{it.samples_dropped:,}"),
    _Column("viewers", 7, 90, lambda it: "" if it.viewers is None else f"{it.viewers:,}"),
    _Column("agent CPU", 9, 100, lambda it: "" if it.cpu_percent is None else f"{it.cpu_percent:.1f} %"),
    _Column("agent RSS", 9, 110, lambda it: "" if it.rss_bytes is None else format_bytes(it.rss_bytes)),
    _Column("version", 9, 120, lambda it: it.version or ""),
)
_AGE_CELLS = 12
_GAP_CELLS = 2


def draw_node_heading(label_cells: int, width: int) -> Line:
    """Return the titles of the columns that fit."""
    label = min(label_cells, MOST_LABEL_CELLS)
    columns = [it for it in _COLUMNS if width >= it.from_width]
    titles = ("node", "age", *(it.title for it in columns))
    # All names may be shorter than the title of their column.
    widths = (max(label, len("node")), _AGE_CELLS, *(it.cells for it in columns))
    text = join_columns(titles, widths, "ll" + "r" * len(columns), "", gap=_GAP_CELLS)
    return [Span(f"   {text}", "muted")]


def draw_node(
    summary: NodeSummary, now_s: float, label_cells: int, width: int, glyphs: Glyphs, *, is_chosen: bool
) -> Line:
    """Return a node in one line, with the reason where it is not live; `now_s` is the wall time for
    its age.
    """
    label = min(label_cells, MOST_LABEL_CELLS)
    state, role = _format_age(summary, now_s)
    columns = [it for it in _COLUMNS if width >= it.from_width]
    figures = join_columns(
        [it.format(summary) or glyphs.unmeasured for it in columns],
        [it.cells for it in columns],
        "r" * len(columns),
        glyphs.ellipsis,
        gap=_GAP_CELLS,
    )
    trouble = describe_trouble(summary)
    return [
        Span(glyphs.selected if is_chosen else " ", "accent"),
        Span(f"{glyphs.risk(summary.level)} ", summary.level),
        Span(summary.node.name[:label].ljust(label), "strong" if is_chosen else "text"),
        Span(f"  {state:<{_AGE_CELLS}}", role),
        Span(f"  {figures}"),
        Span(f"  {trouble}" if trouble else "", "muted"),
    ]


def describe_trouble(summary: NodeSummary) -> str:
    """Return why a node is not live, or what its agent could not do; empty where all is well."""
    return summary.node.reason or "" if summary.node.state != "live" else "; ".join(summary.notes)


def describe_facts(summary: NodeSummary) -> str:
    """Return a node's trouble, and the name its agent uses if that differs."""
    own = "" if summary.own_name is None else f"its agent calls it {summary.own_name}"
    return "; ".join(filter(None, (describe_trouble(summary), own)))


def _format_age(summary: NodeSummary, now_s: float) -> tuple[str, Role]:
    """Return how old the values are: of a live node since they came, of a lost one since it fell silent."""
    node = summary.node
    age_s = None if node.heard_s is None else max(0.0, now_s - node.heard_s)
    if node.state == "lost":
        since_s = node.silent_s if age_s is None else age_s
        return ("lost" if since_s is None else f"lost {brief_span_text(since_s)}"), "medium"
    if node.state == "connecting" or age_s is None:
        return "connecting", "muted"
    return brief_span_text(age_s), "text"


class NodeList(RowTable[NodeSummary]):
    BINDINGS = [*keys.NODE_LIST]
    DEFAULT_CSS = "NodeList { height: 1fr; padding: 0 1; }"
    _now_s = 0.0
    _label_cells = 4

    @property
    def heading(self) -> Line:
        width = self.scrollable_content_region.width
        return self.fit(draw_node_heading(self._label_cells, width), width)

    def show(self, nodes: Sequence[NodeSummary], now_s: float) -> None:
        """List nodes in order; the cursor stays on its node. `now_s` is the wall time for which ages are
        shown.
        """
        self._now_s = now_s
        self._label_cells = max((len(it.node.name) for it in nodes), default=4)
        self.list_rows(nodes, key=lambda it: it.node.name)

    def _draw_row(self, place: int, row: NodeSummary, width: int) -> Line:
        is_chosen = self.is_marked(place)
        return draw_node(row, self._now_s, self._label_cells, width, self.glyphs, is_chosen=is_chosen)


TITLE_FROM_ROWS = 11
HEADING_FROM_ROWS = 5
KEYS_FROM_ROWS = 13
FACTS_FROM_ROWS = 8
AGE_TICK_S = 1.0


class NodesScreen(ThriftyScreen[None]):
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

    def __init__(self, fleet: Fleet, clock: Clock, remedy: Remedy | None = None) -> None:
        super().__init__()
        self._fleet = fleet
        self._remedy = remedy
        self._clock = clock
        self._title = OneLine(id="title")
        self._verdict = VerdictLine(id="verdict")
        self._heading = OneLine(id="heading")
        self.nodes = NodeList(id="nodes")
        self._facts = OneLine(id="facts")
        self._keys = KeyLine(id="keys")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._verdict
        yield self._heading
        yield self.nodes
        yield self._facts
        yield self._keys

    def on_mount(self) -> None:
        self.nodes.focus()
        self._keys.hide(KEYS_OF_THE_VIEW)
        self.set_interval(AGE_TICK_S, self.draw, name="ages of nodes")
        self._fit()

    @on(events.Resize)
    def _fit(self) -> None:
        height = self.size.height
        self._title.display = height >= TITLE_FROM_ROWS
        self._heading.display = height >= HEADING_FROM_ROWS
        self._keys.display = height >= KEYS_FROM_ROWS
        self._facts.display = height >= FACTS_FROM_ROWS
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        if not self.is_mounted:
            return
        with self.drawn_at_once():
            summaries = order_by_need([self._fleet.summarize(name) for name in self._fleet.names])
            coverage = self._fleet.coverage
            role: Role = "medium" if coverage.is_partial else "strong"
            title = [Piece(coverage.text, role)]
            if coverage.nodes_left_out:
                title.append(Piece(f"  {coverage.followed_text}", "muted"))
            self._title.set_pieces(title, [Piece("lost first, then by risk", "muted")])
            self._verdict.show(judge_fleet(self._fleet.picture.census, coverage, self._remedy))
            self.nodes.show(summaries, self._clock.wall_s())
            self._heading.set_pieces([Piece(span.text, span.role) for span in self.nodes.heading])
            self._write_facts()

    @on(RowTable.Chosen)
    def _write_facts(self) -> None:
        """Show in full the trouble of the node under the cursor, and its agent's name for it."""
        chosen = self.nodes.current
        facts = "" if chosen is None else describe_facts(chosen)
        self._facts.set_pieces(
            [Piece(chosen.node.name, "strong"), Piece(f"  {facts}")] if chosen and facts else []
        )

    @on(RowTable.Opened)
    def open_current(self, message: RowTable.Opened) -> None:
        message.stop()
        if self.nodes.current is not None:
            self.post_message(self.NodeChosen(self.nodes.current.node.name))
