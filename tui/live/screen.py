"""The live screen: the verdict, every device, their processes, alerts and the host."""

from collections.abc import Sequence
from textwrap import wrap

from textual import events, on
from textual.app import ComposeResult
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from ...analyzers.finding_words import name_kind
from ...analyzers.findings.subjects import name_found_device
from ...analyzers.serving_places import list_elsewhere
from ...engine.alerts.state import AlertState, count_muted
from ...engine.clock import Clock
from ...engine.history import HOST_KEY, History
from ...engine.model import DeviceSample, Finding, HostSample, MemoryReading, Sample
from ...engine.units import GIB, share_percent
from ...exporters.text import show_number
from ..draw.bars import draw_gauge
from ..draw.glyphs import Glyphs
from ..draw.graphs import dots_of, draw_history, history_levels
from ..draw.numbers import percent_text
from ..draw.pieces import Piece, cut_pieces, join_pieces, measure_pieces
from ..draw.spans import Line, Role, Span, fit_line
from ..frame import keys
from ..frame.theme import find_looks, to_strip
from ..widgets.one_line import OneLine
from ..widgets.title_words import format_time
from .arrangement import Arrangement, arrange, has_host, has_notes, measure_needs
from .device_graphs import DeviceGraphs, TimeSpan, spread_levels
from .device_panels import DevicePanels
from .node_screen import NodeScreen
from .process_signals import SignalPolicy
from .process_table import ProcessTable
from .server_rows import ServerRows

SEPARATOR = "   "
# Cells below which a note is not begun.
LEAST_CELLS = 24


class NoteLine(OneLine):
    """Shows the notes that fit; the key next to them shows all."""

    _notes: tuple[str, ...] = ()

    def show(self, notes: Sequence[str]) -> None:
        self._notes = tuple(notes)
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        heading = [Piece("Notes   ", "muted")]
        left, right = fit_notes(self._notes, self.size.width - measure_pieces(heading))
        self.set_pieces([*heading, *left], right)


def fit_notes(notes: Sequence[str], room: int) -> tuple[list[Piece], list[Piece]]:
    """Return the notes that fit, the most important first, and which key shows the others."""
    every = join_pieces([[Piece(note)] for note in notes], SEPARATOR)
    if measure_pieces(every) <= room:
        return every, []
    count = "the note" if len(notes) == 1 else f"all {len(notes)} notes"
    key = [Piece("i", "accent", "screen.notes"), Piece(f" {count}", "muted", "screen.notes")]
    room -= measure_pieces(key) + 2
    if room < LEAST_CELLS:
        return [], key
    for shown in range(len(notes) - 1, 0, -1):
        pieces = join_pieces([[Piece(note)] for note in notes[:shown]], SEPARATOR)
        if measure_pieces(pieces) <= room:
            return pieces, key
    return cut_pieces([Piece(notes[0])], room), key


class AlertLine(OneLine):
    """Shows findings with their time and device."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._alerts: list[Piece] = []
        self._notes: tuple[str, ...] = ()

    def show(
        self,
        findings: Sequence[Finding],
        sample: Sample | None,
        notes: Sequence[str] = (),
        state: AlertState = AlertState(),  # noqa: B008 - frozen
    ) -> None:
        """Show findings in the given order, as many as fit; muted ones only as a count.

        `notes` are those without a line of their own.
        """
        unmuted = [finding for finding in findings if state.mute_of(finding) is None]
        groups = [
            _describe(finding, sample, self.glyphs, is_acknowledged=state.is_acknowledged(finding))
            for finding in unmuted
        ]
        muted = count_muted(findings, state)
        alerts = join_pieces(groups, SEPARATOR) if groups else [Piece("none", "muted")]
        heading = [Piece("Alerts  ", "muted", "app.show_alerts")]
        # Before the others, so that the count itself is not cut off.
        heading += [Piece(f"{muted} muted{SEPARATOR}", "muted", "app.show_alerts")] if muted else []
        self._alerts = [*heading, *alerts]
        self._notes = tuple(notes)
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        if not self._notes:
            self.set_pieces(self._alerts)
            return
        heading = Piece(f"{SEPARATOR}Notes  ", "muted")
        left, right = fit_notes(self._notes, self.size.width - measure_pieces([*self._alerts, heading]))
        self.set_pieces([*self._alerts, heading, *left] if left else self._alerts, right)


def _describe(
    finding: Finding, sample: Sample | None, glyphs: Glyphs, *, is_acknowledged: bool
) -> list[Piece]:
    clock = "wall" if sample is None else sample.clock
    time = format_time(finding.opened_s, clock)
    mark = glyphs.risk(finding.severity)
    what = " ".join(filter(None, (name_kind(finding.kind), name_found_device(finding, sample))))
    if finding.closed_s is not None:
        closed = format_time(finding.closed_s, clock)
        return [Piece(f"{time} {mark} {what}, closed {closed}", "muted")]
    if is_acknowledged:
        return [Piece(f"{time} {mark} {what}, {finding.severity}, acknowledged", "muted")]
    return [Piece(f"{time} "), Piece(f"{mark} {what}, {finding.severity}", finding.severity)]


# Use of the host's memory from which it is drawn as a warning.
SCARCE_PERCENT = 95.0


class HostLine(OneLine):
    """Shows what the host, or the container around us, has left."""

    _groups: tuple[list[Piece], ...] = ()

    def show(self, host: HostSample | None, *, is_recorded: bool = False, has_memory: bool = True) -> None:
        """Show the host; unmeasured values are `—`, and a recording without a host shows nothing.

        `has_memory` is False where something else shows its memory.
        """
        if host is None:
            self._groups = () if is_recorded else ([Piece("host —", "muted")],)
        else:
            memory = (_describe_memory(host),) if has_memory else ()
            share = "—" if host.cpu_percent is None else f"{host.cpu_percent:3.0f} %"
            processor = [Piece("cpu ", "muted"), Piece(share)]
            load = host.load_average
            tasks = () if load is None else ([Piece("load ", "muted"), Piece(f"{load:.1f}")],)
            self._groups = (*memory, _describe_swap(host), processor, *tasks)
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        """Show only complete groups; the first stays, cut if it must be."""
        count = len(self._groups)
        while count > 1 and measure_pieces(join_pieces(self._groups[:count], SEPARATOR)) > self.size.width:
            count -= 1
        self.set_pieces(join_pieces(self._groups[:count], SEPARATOR))


def _describe_memory(host: HostSample) -> list[Piece]:
    label = "container limit" if host.limit == "cgroup" else "host"
    role: Role = "text"
    share = ""
    if host.used_bytes is not None and host.total_bytes:
        percent = 100 * host.used_bytes / host.total_bytes
        share = f"  {percent:2.0f} %"
        role = "medium" if percent >= SCARCE_PERCENT else "text"
    return [Piece(f"{label} ", "muted"), Piece(_ratio(host.used_bytes, host.total_bytes) + share, role)]


def _describe_swap(host: HostSample) -> list[Piece]:
    if host.swap_total_bytes == 0:
        return [Piece("no swap", "muted")]
    return [Piece("swap ", "muted"), Piece(_ratio(host.swap_used_bytes, host.swap_total_bytes))]


def _ratio(used_bytes: int | None, total_bytes: int | None) -> str:
    """Return used of total in GiB; the used number keeps the width of the total one."""
    total = "—" if total_bytes is None else f"{total_bytes / GIB:,.1f}"
    used = "—" if used_bytes is None else f"{used_bytes / GIB:,.1f}"
    return f"{used:>{len(total)}}/{total} GiB"


HISTORY_WINDOW_S = 600.0
MAX_GRAPH_ROWS = 8
# How to go on, in one sentence or two.
GO_ON = (
    "`vramscope doctor` lists what was found and what to do. To see the screens without a GPU, "
    "replay recorded memory traces with `vramscope replay DIR`."
)


def describe_examples(demo_refusal: str | None) -> str:
    """Name the keys that show the screens on a node without a GPU."""
    demo = (
        "Press `d` to watch a small job run out of memory on a simulated GPU, `r` to replay a recording of it"
        if demo_refusal is None
        else f"Press `r` to replay a recorded job on a simulated GPU ({demo_refusal})"
    )
    return f"{demo}, `?` for help. `vramscope doctor` lists what was found and what to do."


NO_DEVICE = "No GPU was found on this node."
PLAY_ON = "`space` resumes, `k` skips 10 s ahead, `n` goes to the next finding, `g` to a time."


class HostPanel(Widget):
    """The host's memory with its history, and in words why no device is shown."""

    DEFAULT_CSS = "HostPanel { height: 1fr; padding: 0 1; }"

    def __init__(self, glyphs: Glyphs, *, go_on: str = GO_ON, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._go_on = go_on
        self._graphs = DeviceGraphs(glyphs)
        self._history: History | None = None
        self._sample: Sample | None = None
        self._is_replayed = False
        self._reason = ""
        self._lines: list[Line] = []

    def explain(self, reason: str) -> None:
        """Show in full why nothing is known about the node; what to do may need several lines."""
        self._sample = None
        self._reason = reason
        self._draw()

    def show(self, sample: Sample, history: History, *, is_replayed: bool = False) -> None:
        """Draw a sample without devices; for a replayed one, this machine's driver is not mentioned."""
        self._sample = sample
        self._history = history
        self._is_replayed = is_replayed
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        lines = self._compose_lines(self.size.width, self.size.height)
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def render_line(self, y: int) -> Strip:
        looks = find_looks(self)
        line = self._lines[y] if y < len(self._lines) else [Span("")]
        return to_strip(fit_line(line, self.size.width), looks)

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        """Return all lines: the numbers first, the words where there is room."""
        sample = self._sample
        if width <= 0:
            return []
        if sample is None:
            return [[Span("")], *([Span(text)] for text in wrap(self._reason, width))][: max(0, height)]
        words = self._words(sample, width)
        figures = self._figures(sample, width) if sample.host is not None else []
        graph_rows = min(MAX_GRAPH_ROWS, height - len(words) - len(figures) - 3)
        graph = self._graph(sample, width, graph_rows) if figures and graph_rows >= 2 else []
        blank: list[Line] = [[Span("")]] if height > len(figures) + len(words) + 1 else []
        return [*blank, *figures, *graph, *blank, *words][: max(0, height)]

    def _figures(self, sample: Sample, width: int) -> list[Line]:
        host = sample.host or HostSample()
        title = "container memory" if host.limit == "cgroup" else "host memory"
        share = percent_text(share_percent(host.used_bytes, host.total_bytes), self._glyphs)
        figure = f"used {_gib(host.used_bytes)}/{_gib(host.total_bytes)} GiB"
        heading = [Span(title, "strong"), Span(f"   {figure}"), Span(share, "strong")]
        if host.available_bytes is not None:
            heading.append(Span(f"   available {_gib(host.available_bytes)} GiB", "muted"))
        memory = MemoryReading(used_bytes=host.used_bytes)
        return [heading, draw_gauge(memory, host.total_bytes, width, self._glyphs)]

    def _graph(self, sample: Sample, width: int, rows: int) -> list[Line]:
        total_bytes = (sample.host.total_bytes if sample.host else None) or 0
        scale = f"  0 to {_gib(total_bytes)} GiB"
        cells = width - len(scale)
        if self._history is None or cells <= 0:
            return []
        is_live = sample.clock == "wall"
        span = TimeSpan(
            sample.time_s, HISTORY_WINDOW_S, sample.interval_s, is_live, uuids=(HOST_KEY,), clock=sample.clock
        )
        fit = self._graphs.fit(self._history, 2 * cells, span)
        columns = self._history.columns(
            HOST_KEY, "used", fit.end_s - fit.bucket_s / 2, fit.bucket_s, fit.buckets
        )
        levels = history_levels(columns.minimum, columns.maximum, total_bytes, dots_of(rows, self._glyphs))
        graph = draw_history(spread_levels(levels, fit, 0, fit.columns), rows, self._glyphs)
        axis = self._graphs.draw_axis(self._history, cells, span)
        return [*graph, [*axis, Span(scale, "faint")]]

    def _words(self, sample: Sample, width: int) -> list[Line]:
        absence = "No device was recorded at this moment." if self._is_replayed else NO_DEVICE
        notes = sample.notes or (absence,)
        lines: list[Line] = []
        for note in notes:
            lines += [[Span(text)] for text in wrap(note, width)]
        return [
            *lines,
            *([Span(text, "muted")] for text in wrap(PLAY_ON if self._is_replayed else self._go_on, width)),
        ]


def _gib(value_bytes: int | None) -> str:
    return show_number(value_bytes, ",.1f", per=GIB)


def find_fullest(devices: Sequence[DeviceSample]) -> DeviceSample:
    """Return the device that is nearest to its capacity; the first where unknown."""
    return max(devices, key=lambda it: share_percent(it.memory.used_bytes, it.memory.total_bytes) or 0.0)


class LiveScreen(NodeScreen):
    """One node, live. Small panes keep the verdict and one line a device."""

    BINDINGS = [*keys.LIVE]

    class DeviceAsked(Message):
        """A device is to be shown in full."""

        def __init__(self, uuid: str) -> None:
            super().__init__()
            self.uuid = uuid

    def __init__(
        self, history: History, clock: Clock, signal_policy: SignalPolicy, *, go_on: str = GO_ON
    ) -> None:
        """Make the screen; `go_on` says what to do on a node without a device."""
        super().__init__(history, clock, signal_policy)
        self._arranged_for: tuple[object, ...] = ()
        self._host_panel = HostPanel(self.glyphs, go_on=go_on, id="host-panel")
        self._host = HostLine(id="host")
        self._alerts = AlertLine(id="alerts")
        self._notes = NoteLine(id="notes")
        self._servers = ServerRows(id="servers")
        self._servers.display = False
        self.devices = DevicePanels(id="devices")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._verdict
        yield self.devices
        yield self._servers
        yield self._host_panel
        yield self._filter
        yield self.processes
        yield self._alerts
        yield self._notes
        yield self._host
        yield self._overview
        yield self._time_bar
        yield self._keys

    def on_mount(self) -> None:
        """Focus the devices and draw what has arrived meanwhile."""
        self.devices.focus()
        self._show()

    @on(events.Resize)
    def fit(self, event: events.Resize) -> None:
        self._fit_time_bar()
        self._arrange(event.size.width, event.size.height)

    @property
    def has_room_for_both_charts(self) -> bool:
        return self.devices.has_room_for_both

    def _show(self) -> None:
        sample = self.snapshot.sample
        devices = sample.devices if sample else ()
        why_unknown = self.snapshot.reason if sample is None and self.snapshot.connection == "lost" else None
        has_devices = bool(devices) or (sample is None and why_unknown is None)
        self._show_head()
        self._keys.rename({} if self.place is None else {"switch_part": "next node"})
        self.set_class(not has_devices, "-no-devices")
        if has_devices:
            self.devices.show(self.snapshot, self._history)
            self.processes.show(devices, sample.ranks if sample else (), sample.time_s if sample else None)
            self.look_for_relatives()
        elif sample is not None:
            self._host_panel.show(sample, self._history, is_replayed=self.snapshot.replay is not None)
        else:
            self._host_panel.explain(why_unknown or "")
        self._servers.show(list_elsewhere(sample) if sample else (), self.snapshot.findings)
        self._notes.show(sample.notes if sample else ())
        self._host.show(
            sample.host if sample else None, is_recorded=not has_host(sample), has_memory=has_devices
        )
        self._arrange(self.size.width, self.size.height)
        self._show_alerts()

    def _show_alerts(self) -> None:
        """Show the alerts, and with them the notes where they have no line of their own."""
        sample = self.snapshot.sample
        notes = sample.notes if sample and sample.devices and not self._notes.display else ()
        self._alerts.show(self.snapshot.findings, sample, notes, self.snapshot.alerts)

    def _arrange(self, width: int, height: int) -> None:
        """Show the parts that fit; nothing is touched when they are those shown."""
        sample = self.snapshot.sample
        devices = sample.devices if sample else ()
        needs = (self.processes.row_count, self._is_filter_open)
        servers = 0 if sample is None else len(list_elsewhere(sample))
        has = (has_host(sample), has_notes(sample))
        situation = (width, height, self._rows, len(devices), servers, *needs, *has)
        if situation == self._arranged_for:
            return
        self._arranged_for = situation
        self._apply(arrange(self._rows, measure_needs(sample, width, self.processes.row_count)))

    def _apply(self, chosen: Arrangement) -> None:
        with self.app.batch_update():
            self._title.display = chosen.has_title
            self._host.display = chosen.has_host
            self._keys.display = chosen.has_keys
            self._alerts.display = chosen.has_alerts
            self._notes.display = chosen.has_notes
            self._verdict.set_class(chosen.has_gap, "-roomy")
            self._servers.display = chosen.server_rows > 0
            self._servers.styles.height = max(1, chosen.server_rows)
            self._resize_list(chosen.process_rows)
        if not chosen.process_rows and self.focused is self.processes:
            self.devices.focus()
        self._show_alerts()

    def _rearrange(self) -> None:
        self._arrange(self.size.width, self.size.height)

    @on(DevicePanels.DeviceOpened)
    def open_device(self, message: DevicePanels.DeviceOpened) -> None:
        message.stop()
        self.post_message(self.DeviceAsked(message.uuid))

    @on(ProcessTable.Opened)
    def select_device_of_process(self, message: ProcessTable.Opened) -> None:
        """Select the device of a process that is opened, so that its key shows that."""
        self.devices.selected = message.row.device.uuid

    async def action_leave(self) -> None:
        """Go out: of the filter, of the processes, or, where there are several, of the node."""
        if self.processes.filter_text:
            self._filter.action_clear()
        elif self.focused is self.processes and self.processes.clear_marks():
            return
        elif self.focused is not self.devices:
            self.devices.focus()
        else:
            await self.run_action("app.leave_live")

    def action_switch_part(self) -> None:
        """Move the focus between devices, processes and the time bar of a replay."""
        self._focus_next_part(self.devices)
