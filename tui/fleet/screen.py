"""The screen of a fleet: a verdict on all nodes, every device as a cell, the chosen one in words."""

from collections.abc import Mapping, Sequence
from typing import cast

from rich.segment import Segment
from textual import events, on
from textual.app import ComposeResult
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer
from textual.widgets import Input

from ...analyzers.findings.subjects import drop_name
from ...analyzers.fleet.fleet import Census, Coverage, Fleet, group_fleet
from ...analyzers.fleet.model import (
    EXAMPLE,
    GROUPINGS,
    SORTS,
    FleetDevice,
    FleetNode,
    FleetSort,
    Grouping,
    compile_filter,
    find_worst,
    hold_worst,
)
from ...analyzers.fleet.verdict import judge_fleet
from ...analyzers.risk import LEVELS
from ...analyzers.trend_words import NO_FORECAST, grade_trend, word_trend
from ...analyzers.verdict import Remedy
from ...engine.clock import Clock
from ...engine.errors import UsageError
from ...engine.units import format_age, format_share
from ...exporters.status.document import FleetExport
from ..draw.glyphs import Glyphs
from ..draw.numbers import gib_text
from ..draw.pieces import Piece
from ..frame import keys
from ..frame.theme import find_look
from ..screens.dialogs import ChoiceScreen
from ..terminal.compositor import ThriftyScreen
from ..widgets.filter_bar import FilterBar
from ..widgets.line_page import MarkingWidget
from ..widgets.one_line import KeyLine, OneLine
from ..widgets.verdict_line import VerdictLine
from ..widgets.verdict_words import word_lost
from .cluster import ClusterWatch, describe_worst, order_by_gravity
from .grid import FleetGrid, FleetView, describe_silence, mark_risk

# Height of the screen from which lost nodes have so many rows; below that one.
ROWS_FROM = ((32, 4), (24, 3), (18, 2))


class LostLines(MarkingWidget):
    """Names lost nodes with how long they are lost and why; reasons shorten where rows are few."""

    DEFAULT_CSS = """
    LostLines {
        height: 1;
        width: 1fr;
        padding: 0 1;
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lost: tuple[Sequence[FleetNode], float] = ((), 0.0)
        self._rows: list[str] = []

    @property
    def _head(self) -> str:
        return f"{self.glyphs.risk('medium')} lost  "

    def show(self, lost: Sequence[FleetNode], waited_s: float) -> None:
        """Show these nodes, in order; `waited_s` is the seconds since their silence was last updated."""
        self._lost = (lost, waited_s)
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        style = self.rich_style
        if not 0 <= y < len(self._rows):
            return Strip.blank(max(0, width), style)
        head = self._head if y == 0 else " " * len(self._head)
        row = [
            Segment(head, style + find_look(self.app, "medium")),
            Segment(self._rows[y], style + find_look(self.app, "muted")),
        ]
        return Strip(row).adjust_cell_length(width, style)

    def _arrange(self) -> None:
        if not self.is_mounted or not self.is_attached:  # its screen may be leaving, and draws to the last
            return
        height = self.screen.size.height
        most = next((rows for least, rows in ROWS_FROM if height >= least), 1)
        rows = word_lost(*self._lost, self.size.width - len(self._head), most)
        if rows == self._rows:
            return
        if len(rows) != len(self._rows):
            self.styles.height = max(1, len(rows))
        self._rows = rows
        self.repaint()


_GAP = Piece("   ")
_EVEN_CHANCE = 0.5


def describe_fleet(
    census: Census, wanted: int, coverage: Coverage, view: FleetView, glyphs: Glyphs
) -> tuple[list[Piece], list[Piece]]:
    """Return the title: coverage, and devices by level of risk; at its right what the user chose.

    `wanted` is the number of devices that pass the filter.
    """
    if coverage.is_partial:
        pieces = [Piece(f"{glyphs.risk('medium')} {coverage.text}", "medium")]
    else:
        pieces = [Piece(coverage.followed_text or coverage.text, "strong")]
    total = f"{census.total:,}"
    counts = census.levels
    if coverage.is_partial and coverage.nodes_left_out:
        pieces += [_GAP, Piece(coverage.followed_text, "muted")]
    pieces += [_GAP, Piece(f"devices {total if wanted == census.total else f'{wanted:,} of {total}'}")]
    if coverage.devices_left_out:
        pieces += [Piece(f", {coverage.devices_left_out:,} not followed", "muted")]
    for level in reversed(LEVELS):
        if level in counts:
            pieces += [_GAP, Piece(f"{glyphs.risk(level)} {counts[level]:,}", level)]
    if census.filling:
        text = f"{glyphs.trends['filling']} {census.filling:,} filling"
        pieces += [_GAP, Piece(text, grade_trend("filling") or "text")]
    chosen = f"by {view.grouping}   sort {view.sort}"
    filtered = f"   filter {view.filter_text}" if view.filter_text else ""
    return pieces, [Piece(f"{chosen}{filtered}", "muted")]


def describe_device(device: FleetDevice, node: FleetNode, glyphs: Glyphs) -> list[Piece]:
    """Return a device in one line, what matters most first."""
    mark, role = mark_risk(device, glyphs)
    pieces = [
        Piece(f"{device.node} {device.name}", "strong"),
        Piece("  "),
        Piece(f"{mark} {_describe_risk(device)}".rstrip(), role),
        Piece(f"  {_describe_memory(device, glyphs)}"),
    ]
    return pieces + [Piece(f"  {text}", "muted") for text in _list_facts(device, node)]


def _describe_risk(device: FleetDevice) -> str:
    if device.oom_in_s is not None:
        within = device.probability or 0.0  # the next ten minutes: small where the error is expected later
        chance = f" ({format_share(within)})" if within >= _EVEN_CHANCE else ""
        return f"out of memory in {format_age(device.oom_in_s)}{chance}"
    if device.level == "unknown":
        trend = device.device_trend
        if trend is not None:
            forms = word_trend(trend, trend.time_s)
            # Without how long; what it does not forecast is said behind the numbers.
            return next(it for it in forms[1:] or forms if NO_FORECAST not in it)
        return "" if device.lacks_probe else device.reason
    reason = drop_name(device.reason, device.name)
    return f"{device.level}: {reason}" if reason else device.level


def _describe_memory(device: FleetDevice, glyphs: Glyphs) -> str:
    share = device.used_share
    percent = "" if share is None else f" ({format_share(share)})"
    label = " simulated" if device.is_simulated else ""
    used = gib_text(device.used_bytes, glyphs)
    total = gib_text(device.total_bytes, glyphs)
    return f"{used} / {total} GiB{percent}{label}"


def _list_facts(device: FleetDevice, node: FleetNode) -> list[str]:
    degrees = [
        f"{name}{value}" for name in ("tp", "pp", "dp") if (value := getattr(device, name)) is not None
    ]
    rank = [] if device.rank is None else [" ".join((f"rank {device.rank}", *degrees))]
    named = (("job", device.all_jobs), ("pod", device.pods), ("user", device.users))
    jobs, pods, users = ([f"{word} {name}" for name in names[:MOST_OWNERS]] for word, names in named)
    facts = [*rank, *jobs, *pods, *device.kinds, *users]
    if node.clock_offset_s is not None:
        sign = "ahead" if node.clock_offset_s > 0 else "behind"
        facts.insert(0, f"its clock {format_age(abs(node.clock_offset_s))} {sign}")
    if node.state == "lost":
        since = "" if node.silent_s is None else f" {format_age(node.silent_s)}"
        facts.insert(0, f"node lost{since}, data is old")
    elif device.is_old:
        facts.insert(0, device.state)
    return facts if device.full_in_s is None else [*facts, NO_FORECAST]


# Heights from which each line is worth its row.
TITLE_FROM_ROWS = 11
KEYS_FROM_ROWS = 13
FACTS_FROM_ROWS = 5
LOST_FROM_ROWS = 8
ACROSS_FROM_ROWS = 9
AGE_TICK_S = 1.0
# Names of each kind that the line of a device has.
MOST_OWNERS = 2
GROUP_TITLES: Mapping[Grouping, str] = {
    "node": "node",
    "job": "job",
    "tp": "tensor-parallel rank (tp)",
    "pp": "pipeline stage (pp)",
    "dp": "data-parallel rank (dp)",
    "pod": "pod of Kubernetes",
    "namespace": "namespace of Kubernetes",
    "user": "user",
    "none": "none: all devices in one group",
}
SORT_TITLES: Mapping[FleetSort, str] = {"risk": "risk", "used": "device used", "name": "name"}


class FleetScreen(ThriftyScreen[None]):
    """Draws a fleet when the app calls `draw`; changes `view`, which holds what the user chose."""

    BINDINGS = [*keys.FLEET]
    DEFAULT_CSS = """
    FleetScreen {
        layout: vertical;
        #verdict { background: $surface; }
        #keys { background: $surface; }
    }
    """

    class NodeAsked(Message):
        """The device under the cursor is to be shown on its node."""

        def __init__(self, device: FleetDevice) -> None:
            super().__init__()
            self.device = device

    class ClusterAsked(Message):
        """What is known across nodes is to be shown."""

    class NodesAsked(Message):
        """The nodes are to be listed."""

    def __init__(
        self,
        fleet: Fleet,
        cluster: ClusterWatch,
        view: FleetView,
        clock: Clock,
        remedy: Remedy | None = None,
    ) -> None:
        super().__init__()
        self._fleet = fleet
        self._remedy = remedy
        self._cluster = cluster
        self._view = view
        self._clock = clock
        self._drawn_s = clock.monotonic_s()
        self._age_timer: Timer | None = None
        self._picture = fleet.picture
        self._is_paused = False
        self._refusal = ""
        self._wanted = compile_filter("")
        self._kept_text = ""
        self._title = OneLine(id="title")
        self._verdict = VerdictLine(id="verdict")
        self._filter = FilterBar(
            hint="Enter keeps, Esc clears", example="e.g. node:n1* used>90%", id="filter"
        )
        self.grid = FleetGrid(id="grid")
        self._across = OneLine(id="across")
        self._lost = LostLines(id="lost")
        self._facts = OneLine(id="facts")
        self._keys = KeyLine(id="keys")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._verdict
        yield self._filter
        yield self.grid
        yield self._across
        yield self._lost
        yield self._facts
        yield self._keys

    def on_mount(self) -> None:
        self.grid.focus()
        self._keys.hide(("show_fleet",))
        if self._view.filter_text:
            self._filter.query_one(Input).value = self._view.filter_text
        self._apply_filter(self._view.filter_text)
        self._fit()

    @property
    def current(self) -> FleetDevice | None:
        return self.grid.current

    def describe(self) -> FleetExport:
        view = self._view
        fleet = self._fleet
        return FleetExport(
            time=self._clock.wall_s(),
            grouping=view.grouping,
            sort=view.sort,
            filter=view.filter_text,
            nodes=tuple(fleet.node(name) for name in self._picture.nodes),
            devices=tuple(device for group in self.grid.groups for device in group.devices),
            findings=tuple(self._cluster.findings),
        )

    @on(events.Resize)
    def _fit(self) -> None:
        height = self.size.height
        self._title.display = height >= TITLE_FROM_ROWS
        self._keys.display = height >= KEYS_FROM_ROWS
        self._facts.display = height >= FACTS_FROM_ROWS
        self._lost.display = height >= LOST_FROM_ROWS and bool(self._fleet.lost())
        self.draw()

    def show_paused(self, *, is_paused: bool) -> None:
        self._is_paused = is_paused
        self.draw()

    def show_news(self) -> None:
        """Draw what the nodes reported since; a frozen picture stays."""
        self._drawn_s = self._clock.monotonic_s()
        self._picture = self._fleet.picture
        self.draw()

    def draw(self) -> None:
        if not self.is_mounted:
            return
        with self.drawn_at_once():
            picture = self._picture
            view = self._view
            wanted = [it for it in picture.devices if self._wanted(it)] if view.filter_text else None
            groups = group_fleet(picture, view.grouping, view.sort, wanted)
            absence = "No device matches; Esc shows all." if picture.census.total else "No devices yet."
            self.grid.show(groups, self._choose(wanted), view.figure, self._describe_lost, absence)
            self._verdict.show(judge_fleet(picture.census, picture.coverage, self._remedy))
            self._write_title(picture.census.total if wanted is None else len(wanted))
            self._write_facts()
            self._show_across()
            self._show_lost()

    def _choose(self, wanted: list[FleetDevice] | None) -> tuple[str, str] | None:
        """Return the key of the device for the cursor: without a choice by the user, of the one most
        at risk.
        """
        if self._view.selected is not None:
            return self._view.selected
        before = None if self.current is None else self._picture.find(self.current.key)
        if wanted is None:
            worst = hold_worst(self._picture.census.worst, before)
        else:
            is_wanted = before is not None and self._wanted(before)
            worst = hold_worst(find_worst(wanted), before if is_wanted else None)
        return None if worst is None else worst.key

    def _write_title(self, wanted: int) -> None:
        picture = self._picture
        if self._is_paused:
            self._title.set_pieces([Piece("paused", "medium"), Piece("  space resumes", "muted")])
        else:
            title = describe_fleet(picture.census, wanted, picture.coverage, self._view, self.glyphs)
            self._title.set_pieces(*title)

    def _describe_lost(self, room: int) -> dict[str, str]:
        waited_s = self._waited_s
        silences = {node.name: describe_silence(node, waited_s, room) for node in self._fleet.lost()}
        empty = (name for name, its in self._picture.nodes.items() if not its and name not in silences)
        return silences | {name: self._describe_empty(name) for name in empty}

    def _describe_empty(self, name: str) -> str:
        node = self._fleet.node(name)
        if node.mismatch is not None:
            return "no match"
        return "no device" if node.state == "live" else "connecting"

    @property
    def _waited_s(self) -> float:
        return max(0.0, self._clock.monotonic_s() - self._drawn_s)

    def _show_across(self) -> None:
        line = describe_worst(order_by_gravity(self._cluster.findings), self.glyphs)
        is_shown = bool(line) and self.size.height >= ACROSS_FROM_ROWS
        if self._across.display != is_shown:
            self._across.display = is_shown
        self._across.set_pieces([Piece(span.text, span.role) for span in line])

    def _show_lost(self) -> None:
        """Name the lost nodes, and update their age while there are any."""
        lost = self._fleet.lost()
        is_shown = bool(lost) and self.size.height >= LOST_FROM_ROWS
        if self._lost.display != is_shown:
            self._lost.display = is_shown
        self._lost.show(lost, self._waited_s)
        if lost and self._age_timer is None:
            self._age_timer = self.set_interval(AGE_TICK_S, self.draw, name="age of lost nodes")
        elif not lost and self._age_timer is not None:
            self._age_timer.stop()
            self._age_timer = None

    def _write_facts(self) -> None:
        device = self.grid.current
        if self._refusal:
            self._facts.set_pieces([Piece(self._refusal, "medium")])
        elif device is None:
            self._facts.set_pieces([])
        else:
            self._facts.set_pieces(describe_device(device, self._fleet.node(device.node), self.glyphs))

    @on(FleetGrid.Moved)
    def follow_cursor(self, message: FleetGrid.Moved) -> None:
        message.stop()
        self._view.selected = None if self.current is None else self.current.key
        self._write_facts()

    @on(FleetGrid.Opened)
    def open_current(self, message: FleetGrid.Opened) -> None:
        message.stop()
        if self.current is not None:
            self.post_message(self.NodeAsked(self.current))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: a key typed into the filter is text."""
        return action not in ("filter", "ask_nodes", "ask_cluster") or not isinstance(self.focused, Input)

    def action_filter(self) -> None:
        self._kept_text = self._view.filter_text
        self._filter.open()

    @on(FilterBar.TextChanged)
    def filter_devices(self, message: FilterBar.TextChanged) -> None:
        """Filter while typing; an incomplete term leaves the filter as it was."""
        message.stop()
        self._apply_filter(message.text)
        self.draw()

    def _apply_filter(self, text: str) -> None:
        try:
            self._wanted = compile_filter(text)
            self._refusal = ""
            self._view.filter_text = " ".join(text.split())
        except UsageError as error:
            self._refusal = str(error)
            self._view.filter_text = self._kept_text
            self._wanted = compile_filter(self._kept_text)

    @on(FilterBar.Closed)
    def end_filter(self, message: FilterBar.Closed) -> None:
        """Return the focus to the grid; a filter that is not valid is named with an example."""
        message.stop()
        self.grid.focus()
        if self._refusal:
            self.notify(f"{self._refusal} · e.g. {EXAMPLE}", severity="warning")
            self._refusal = ""
            self.draw()

    def action_choose_grouping(self) -> None:
        def group(name: str | None) -> None:
            if name is not None:
                self._view.grouping = cast("Grouping", name)
                self.draw()

        choices: dict[str, str] = {name: GROUP_TITLES[name] for name in GROUPINGS}
        self.app.push_screen(ChoiceScreen("Group devices by", choices, chosen=self._view.grouping), group)

    def action_choose_sort(self) -> None:
        def sort(name: str | None) -> None:
            if name is not None:
                self._view.sort = cast("FleetSort", name)
                self.draw()

        choices: dict[str, str] = {name: SORT_TITLES[name] for name in SORTS}
        self.app.push_screen(ChoiceScreen("Sort the fleet by", choices, chosen=self._view.sort), sort)

    def action_ask_cluster(self) -> None:
        self.post_message(self.ClusterAsked())

    def action_ask_nodes(self) -> None:
        self.post_message(self.NodesAsked())

    def action_switch_figure(self) -> None:
        self._view.figure = "risk" if self._view.figure == "used" else "used"
        self.draw()

    def action_leave(self) -> None:
        """Drop the filter, or let the cursor follow the device most at risk again."""
        if self._view.filter_text:
            self._filter.action_clear()
        else:
            self._view.selected = None
            self.draw()
