"""The screen of one process: who it is, and its memory, load and processor time over the last minutes."""

from collections.abc import Callable, Sequence
from math import floor
from typing import NamedTuple

from textual import events, on
from textual.app import ComposeResult

from ...analyzers.findings.driver_tools import NVIDIA, find_tools
from ...engine.clock import Clock
from ...engine.history import History
from ...engine.units import format_bytes
from ..draw.bars import wrap_pieces
from ..draw.glyphs import Glyphs
from ..draw.graphs import dots_of, draw_history, history_levels
from ..draw.numbers import moment_text
from ..draw.spans import Line, Span, right_text
from ..frame import keys
from ..live.arrangement import KEYS_FROM_ROWS, TITLE_FROM_ROWS
from ..live.device_graphs import Fit, TimeSpan, draw_axis, fit_history, spread_levels
from ..live.dialogs import begin_signal, show_environment
from ..live.process_rows import ProcessRow, SortOrder, collect_rows, runs_text, sort_rows
from ..live.process_signals import SignalPolicy
from ..screens.snapshot_screen import SnapshotScreen
from ..widgets.device_view import spell_label
from ..widgets.line_page import LinePage
from .history import INTERVAL_S, ProcessHistories, ProcessPoint, describe_reading, key_of

# Most that is shown: as much as is kept, at a reading every two seconds.
WINDOW_S = 1200.0
# A reading counts until the next one, but no longer.
HOLDS_S = 6.0
LEAST_GRAPH_ROWS = 2
MOST_GRAPH_ROWS = 8
AXIS_CELLS = 10


class ProcessContent(NamedTuple):
    """What the page is drawn from."""

    # As it was last seen.
    row: ProcessRow
    is_there: bool
    now_s: float
    points: Sequence[ProcessPoint]


class _Graph(NamedTuple):
    name: str
    value: Callable[[ProcessPoint], float | None]
    text: str
    # Top of the scale for the highest value that is shown.
    scale: Callable[[float], float]
    unit: Callable[[float], str]


class ProcessPage(LinePage):
    """One process in full; scrolls where it does not fit."""

    BINDINGS = [*keys.PROCESS_PAGE]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._content: ProcessContent | None = None

    def show(self, content: ProcessContent | None) -> None:
        """Draw a process; None where the process is gone."""
        self._content = content
        self._draw()

    def action_move(self, lines: int) -> None:
        self.scroll_relative(y=lines, animate=False, immediate=True)

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 1))

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        if self._content is None or width <= 0:
            return []
        return [self.fit(line, width) for line in draw_process(self._content, width, height, self.glyphs)]


def draw_process(content: ProcessContent, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return who the process is, and a graph of each value; the graphs share the rows that are left."""
    head = _draw_head(content, width)
    graphs = _list_graphs(content)
    rows = (height - len(head) - 2) // len(graphs) - 1
    rows = max(LEAST_GRAPH_ROWS, min(MOST_GRAPH_ROWS, rows))
    cells = max(1, width - AXIS_CELLS - 1)
    span = TimeSpan(content.now_s, WINDOW_S, INTERVAL_S)
    seen_s = content.now_s - content.points[0].time_s if content.points else 0.0
    fit = fit_history(span, 2 * cells, seen_s)
    lines = [*head, []]
    for graph in graphs:
        lines += _draw_graph(graph, content, fit, rows, glyphs)
    return [*lines, [Span(" "), *draw_axis(cells, fit, span, glyphs)]]


def _draw_head(content: ProcessContent, width: int) -> list[Line]:
    row = content.row
    process = row.process
    name = f" process {process.pid}"
    state = [] if content.is_there else [Span("  ended", "medium")]
    rank = [Span(f"  {row.rank_name}", "accent")] if row.rank_name else []
    note = [Span(f"  ({row.note})", "muted")] if row.note else []
    first: Line = [Span(name, "strong"), *state, *rank, *note, Span(f"  {row.command}")]
    facts = [
        ("GPU", f"{spell_label(row.device)} {row.device.name or ''}".strip()),
        ("user", process.user or "—"),
        ("type", process.kind or "—"),
        ("parent", "—" if process.parent_pid is None else str(process.parent_pid)),
        ("threads", "—" if process.threads is None else f"{process.threads:,}"),
        ("runs", runs_text(row.runs_s)),
        ("started", "—" if process.started_s is None else moment_text(process.started_s, "wall")),
    ]
    pieces = [[Span(f"{name} ", "muted"), Span(f"{value} ")] for name, value in facts]
    return [first, *([Span(" "), *line] for line in wrap_pieces(pieces, max(1, width - 1)))]


def _list_graphs(content: ProcessContent) -> list[_Graph]:
    process = content.row.process
    total_bytes = content.row.device.memory.total_bytes
    share = content.row.share_percent
    used = format_bytes(process.used_bytes)
    of_device = "" if share is None else f", {share:.0f} % of the device"
    bandwidth = process.memory_bandwidth_percent
    more = "" if bandwidth is None else f", memory bandwidth {bandwidth:.0f} %"
    return [
        _Graph(
            "device memory",
            lambda point: point.used_bytes,
            f"{used}{of_device}",
            lambda most: float(total_bytes or most),
            _bytes_text,
        ),
        _Graph(
            "SM" if find_tools(content.row.device) is NVIDIA else "busy",
            lambda point: point.sm_percent,
            f"{_percent_text(process.sm_percent)}{more}",
            lambda most: 100.0,
            _percent_text,
        ),
        _Graph(
            "CPU",
            lambda point: point.cpu_percent,
            f"{_percent_text(process.cpu_percent)} of one core",
            lambda most: 100.0 * max(1, -(-int(most) // 100)),
            _percent_text,
        ),
        _Graph(
            "host memory",
            lambda point: point.resident_bytes,
            format_bytes(process.resident_bytes),
            _round_up,
            _bytes_text,
        ),
    ]


def _draw_graph(graph: _Graph, content: ProcessContent, fit: Fit, rows: int, glyphs: Glyphs) -> list[Line]:
    """Return the heading with the newest value, and the graph with its scale at the right."""
    values = [value for point in content.points if (value := graph.value(point)) is not None]
    heading: Line = [Span(f" {graph.name} ", "strong"), Span(graph.text)]
    if not values:
        return [[Span(f" {graph.name} ", "strong"), Span("—  not measured", "muted")]]
    if max(values) > min(values):
        least, most = graph.unit(min(values)), graph.unit(max(values))
        heading.append(Span(f"   seen {least} to {most}", "muted"))
    scale = graph.scale(max(values))
    low, high = _fold(content, graph.value, fit)
    levels = history_levels(low, high, scale, dots_of(rows, glyphs))
    drawn = draw_history(spread_levels(levels, fit, 0, fit.columns), rows, glyphs)
    lines: list[Line] = []
    for number, line in enumerate(drawn):
        label = graph.unit(scale) if number == 0 else graph.unit(0.0) if number == rows - 1 else ""
        axis = right_text(label, AXIS_CELLS, glyphs.ellipsis)
        lines.append([Span(" "), *line, Span(axis, "faint")])
    return [heading, *lines]


def _fold(
    content: ProcessContent, value: Callable[[ProcessPoint], float | None], fit: Fit
) -> tuple[list[float | None], list[float | None]]:
    """Return the least and the most of each bucket; a reading counts until the next one."""
    low: list[float | None] = [None] * fit.buckets
    high: list[float | None] = [None] * fit.buckets
    points = content.points
    for number, point in enumerate(points):
        found = value(point)
        if found is None:
            continue
        next_s = points[number + 1].time_s if number + 1 < len(points) else content.now_s
        until_s = min(next_s, point.time_s + HOLDS_S)
        first = floor(point.time_s / fit.bucket_s) - fit.first
        last = floor(until_s / fit.bucket_s) - fit.first
        for at in range(max(0, first), min(fit.buckets - 1, max(first, last)) + 1):
            known_low, known_high = low[at], high[at]
            low[at] = found if known_low is None else min(known_low, found)
            high[at] = found if known_high is None else max(known_high, found)
    return low, high


def _round_up(value_bytes: float) -> float:
    """Return the next power of two: a scale that stays while memory grows a little."""
    scale = 1 << 20
    while scale < value_bytes:
        scale *= 2
    return float(scale)


def _bytes_text(value_bytes: float) -> str:
    return format_bytes(round(value_bytes))


def _percent_text(percent: float | None) -> str:
    return "—" if percent is None else f"{percent:,.0f} %"


class ProcessScreen(SnapshotScreen):
    """One process; keys go to the others in the order of the list it was opened from."""

    BINDINGS = [*keys.PROCESS]

    def __init__(
        self,
        row: ProcessRow,
        histories: ProcessHistories,
        order: SortOrder,
        history: History,
        clock: Clock,
        signal_policy: SignalPolicy,
    ) -> None:
        super().__init__(history, clock)
        self.row = row
        self._histories = histories
        self._order = order
        self._signal_policy = signal_policy
        self.page = ProcessPage(id="page")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._verdict
        yield self.page
        yield self._overview
        yield self._time_bar
        yield self._keys

    def on_mount(self) -> None:
        self.page.focus()
        self._show()

    @on(events.Resize)
    def fit(self, event: events.Resize) -> None:
        self._title.display = event.size.height >= TITLE_FROM_ROWS
        self._keys.display = event.size.height >= KEYS_FROM_ROWS
        self._fit_time_bar()

    def _list_rows(self) -> list[ProcessRow]:
        sample = self.snapshot.sample
        if sample is None:
            return []
        return sort_rows(collect_rows(sample.devices, sample.ranks, sample.time_s), self._order)

    def _show(self) -> None:
        self._show_head()
        self._keys.hide(("signal", "show_environment") if self.snapshot.replay is not None else ())
        sample = self.snapshot.sample
        # The process as it is now; another one that got its number is not it.
        key = self.row.key
        started_s = self.row.process.started_s
        rows = (row for row in self._list_rows() if row.key == key)
        found = next((row for row in rows if row.process.started_s == started_s), None)
        self.row = found or self.row
        if sample is not None:
            points = self._histories.of(key_of(self.row.device.uuid, self.row.process))
            if found is not None and points and points[-1].time_s < sample.time_s:
                # Not each reading is kept, but all that is shown of now is of the same one.
                points += (describe_reading(sample.time_s, found.process),)
            self.page.show(ProcessContent(self.row, found is not None, sample.time_s, points))

    def action_step_process(self, places: int) -> None:
        """Show the process that many places further; after the last comes the first."""
        rows = self._list_rows()
        if not rows:
            return
        listed = [row.key for row in rows]
        at = listed.index(self.row.key) + places if self.row.key in listed else 0
        self.row = rows[at % len(rows)]
        self.page.scroll_home(animate=False)
        self._show()

    def action_signal(self) -> None:
        if self.snapshot.sample is not None:
            begin_signal(self.app, self.snapshot.sample, [self.row], self._signal_policy)

    def action_show_environment(self) -> None:
        if self.snapshot.sample is not None:
            show_environment(self.app, self.snapshot.sample, self.row.process, self._signal_policy)

    async def action_leave(self) -> None:
        await self.run_action("app.leave_process")
