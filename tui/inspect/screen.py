"""The screen of one file: the owners of a device's memory, and out-of-memory errors."""

import textwrap
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList

from ...analyzers.diff.model import say_signed
from ...analyzers.snapshot_summary import StackGroup
from ...analyzers.snapshot_summary.cursor import LiveChange, LiveRow
from ...engine.files.base.input_file import show_name
from ...engine.settings import Settings
from ...engine.units import format_bytes, format_share
from ...exporters.stack_text import cut_start, show_frame
from ...exporters.text import UNKNOWN, show_bytes
from ..draw.bars import Part, describe_sum, draw_stacked_bar
from ..draw.blocks import draw_segment_map
from ..draw.level_graph import draw_level_graph
from ..draw.pieces import Piece, join_pieces, measure_pieces
from ..draw.spans import Line, Role, Span, fit_line, line_width
from ..frame import keys
from ..screens.dialogs import REPORT_WIDTH, MarkedList, TextScreen
from ..screens.file_view import FileScreen, FileView, show_file
from ..widgets.line_page import LinePage, RowTable
from ..widgets.one_line import OneLine
from .inspected import BarPart, Inspected, InspectedAdvice, InspectedDevice, PartKind, read_inspected
from .moment import GROUPINGS, Grouped, Place, StandingMoment

# Their keys are shown where a device has a history of events.
MOMENT_ACTIONS = ("move_moment", "go_moment", "mark_moment", "next_grouping", "zoom_moment")
# Below this width only the bytes precede the place.
NARROW_CELLS = 60


def draw_heading(width: int) -> str:
    counts = "" if width < NARROW_CELLS else f"  {'share':>7}  {'blocks':>7}"
    return f"  {'bytes':>9}{counts}  allocated at"


def draw_change_heading(width: int) -> str:
    counts = "" if width < NARROW_CELLS else f"  {'mark':>9}  {'here':>9}"
    return f"  {'change':>10}{counts}  what"


ListedRow = StackGroup | LiveRow | LiveChange


class InspectStacks(RowTable[ListedRow]):
    """Lists stacks, the largest first; the heading stays while the rows scroll."""

    BINDINGS = [*keys.STACKS]
    # Of all rows, where they are no differences; no less than 1.
    _listed_bytes = 1

    def show(
        self, groups: Sequence[ListedRow], *, is_recorded: bool = True, is_compared: bool = False
    ) -> None:
        """List stacks, or differences from a marked moment; without any, say why."""
        sizes = (row.size_bytes for row in groups if not isinstance(row, LiveChange))
        self._listed_bytes = max(1, sum(sizes))
        self.absence = "nothing is live" if is_recorded else "the file does not record live blocks"
        if is_compared:
            self.absence = "nothing differs from the mark"
        self.list_rows(groups)

    def on_click(self, event: events.Click) -> None:
        """Choose the row; a second click on it opens it."""
        if event.y + self.scroll_offset.y == self.chosen:
            self.action_open()
        self.choose(min(event.y + self.scroll_offset.y, len(self.rows) - 1))

    def _draw_row(self, place: int, row: ListedRow, width: int) -> Line:
        is_chosen = self.is_marked(place)
        lead = f" {self.glyphs.selected if is_chosen else ' '} "
        figures = (
            self._draw_change(row, width) if isinstance(row, LiveChange) else self._draw_size(row, width)
        )
        room = width - len(lead) - len(figures)
        frame = row.headline if isinstance(row, StackGroup) else row.frame
        name = "no stack was recorded" if isinstance(row, StackGroup) else cut_start(row.name, room)
        where = show_frame(frame, room) if frame else name
        role: Role = "strong" if is_chosen else "text"
        is_named = frame is not None or not isinstance(row, StackGroup)
        return [Span(lead, "accent"), Span(figures, role), Span(where, role if is_named else "muted")]

    def _draw_size(self, row: StackGroup | LiveRow, width: int) -> str:
        share = row.share if isinstance(row, StackGroup) else row.size_bytes / self._listed_bytes
        blocks = row.count if isinstance(row, StackGroup) else row.blocks or 0
        counts = "" if width < NARROW_CELLS else f"  {format_share(share, 1):>7}  {blocks:>7,}"
        return f"{format_bytes(row.size_bytes):>9}{counts}  "

    def _draw_change(self, row: LiveChange, width: int) -> str:
        sizes = f"  {show_bytes(row.first_bytes):>9}  {show_bytes(row.second_bytes):>9}"
        change = UNKNOWN if row.change_bytes is None else say_signed(row.change_bytes)
        return f"{change:>10}{'' if width < NARROW_CELLS else sizes}  "


SCALE_CELLS = 10
LEAST_HISTORY_ROWS = 5
MOST_HISTORY_ROWS = 20
LEAST_MAP_ROWS = 2
MOST_MAP_ROWS = 12
LEAST_HEIGHT_TO_WRAP = 20
LEAST_WIDTH_TO_WRAP = 40
MARGIN = 2
# Of the glyphs of a segment, with what separates them.
LEGEND = ("full  ", "half full  ", "little  ", "stranded  ", "free")
SHORT_LEGEND = ("full ", "half ", "little ", "stranded ", "free")
# Cells for the mark and the margins.
VERDICT_MARGIN = 4
MOST_VERDICT_LINES = 3
# Sentences below the first, which is in the verdict line.
MOST_SENTENCES = 4
# Rows reserved for history and map.
LEAST_ROWS_FOR_SENTENCES = 11


class InspectPicture(LinePage, can_focus=False):
    """Draws one device into exactly the room that it has."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._device: InspectedDevice | None = None
        self._advice: tuple[str, ...] = ()
        self._moment: StandingMoment | None = None

    def show(self, device: InspectedDevice, advice: tuple[str, ...] = ()) -> None:
        self._device = device
        self._advice = advice
        self._moment = None
        self._draw()

    def stand(self, moment: StandingMoment | None) -> None:
        self._moment = moment
        self._draw()

    @property
    def graph_cells(self) -> int:
        """Columns of the history."""
        return max(1, self.size.width - SCALE_CELLS - 2)

    def advise(self, advice: tuple[str, ...]) -> None:
        self._advice = advice
        self._draw()

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        device = self._device
        if device is None or width < 4:
            return []
        indent = "   " if device.failures else " "
        verdict = wrap_verdict(device, self._moment, width, self.screen.size.height)[1:]
        lines: list[Line] = [[Span(f"{indent}{line}", "strong")] for line in verdict]
        lines += self._draw_bar(device, width)
        # The list says it of a moment.
        sentences = device.sentences[1:] if self._moment is None else ()
        told = [[Span(f" {sentence}")] for sentence in sentences]
        lines += told[: max(0, min(MOST_SENTENCES, height - len(lines) - LEAST_ROWS_FOR_SENTENCES))]
        lines += self._draw_advice(width, height - len(lines))
        left = height - len(lines)
        history_rows, map_rows = share_rows(left, has_history=device.history is not None)
        drawn_map = self._draw_map(device, width, map_rows) if map_rows else []
        if history_rows:
            lines += self._draw_history(device, width, min(MOST_HISTORY_ROWS, left - len(drawn_map)))
        lines += drawn_map
        is_ascii = self.glyphs.name == "ascii"
        return [fit_line(line, width, is_ascii=is_ascii) for line in lines[:height]]

    def _draw_advice(self, width: int, rows: int) -> list[Line]:
        """Return as many sentences as history and map leave rows for."""
        lines: list[Line] = []
        for sentence in self._advice:
            told = textwrap.wrap(sentence, max(MARGIN + 1, width - MARGIN), break_on_hyphens=False)
            least = LEAST_ROWS_FOR_SENTENCES if lines else LEAST_HISTORY_ROWS + LEAST_MAP_ROWS + 1
            if rows - len(lines) - len(told) < least:
                break
            lines += [[Span(f" {line}", "muted")] for line in told]
        return lines

    def _draw_bar(self, device: InspectedDevice, width: int) -> list[Line]:
        shown = device if self._moment is None else self._moment
        parts = [self._style_part(part) for part in shown.parts]
        bar = draw_stacked_bar(parts, device.scale_bytes, max(1, width - SCALE_CELLS - 2), self.glyphs)
        scale = format_bytes(device.scale_bytes).rjust(SCALE_CELLS)
        told = describe_sum(self._style_part(shown.whole), parts, width - 2, self.glyphs)
        return [[Span(" "), *bar, Span(scale, "faint")], *([Span(" "), *line] for line in told)]

    def _style_part(self, part: BarPart) -> Part:
        glyphs = self.glyphs
        looks: dict[PartKind, tuple[str, Role]] = {
            "live": (glyphs.full, "fill"),
            "waiting": (glyphs.band, "fill"),
            "cached": (glyphs.cached, "band"),
            "releasable": (glyphs.segment[-1], "muted"),
            "outside": (glyphs.rest, "muted"),
        }
        return Part(part.name, part.value_bytes, *looks[part.kind])

    def _draw_history(self, device: InspectedDevice, width: int, rows: int) -> list[Line]:
        if device.history is None:
            return []
        moment = self._moment
        return draw_level_graph(
            device.history if moment is None else moment.drawn,
            device.scale_bytes,
            (width, rows),
            self.glyphs,
            failed_at=device.failed_at,
            steps=device.steps,
            cursors=() if moment is None else moment.moments,
            ends=None if moment is None else moment.window_ends,
        )

    def _draw_map(self, device: InspectedDevice, width: int, rows: int) -> list[Line]:
        segments = device.segment_map.segments
        if not segments:
            why = "the file has none" if device.whole.value_bytes else "nothing was reserved"
            return [[Span(f" no segments: {why}", "muted")]]
        lines, cell_bytes = draw_segment_map(device.segment_map, width - 1, rows - 1, self.glyphs)
        left_out = device.segment_map.segments_left_out
        count = f"{len(segments):,}" + (f" of {len(segments) + left_out:,}" if left_out else "")
        when = "" if self._moment is None else " at the end"
        heading = self._draw_map_heading(f" segments{when} {count}  ", format_bytes(cell_bytes), width)
        if len(lines) > rows - 1:
            hidden = len(lines) - rows + 2
            lines = [*lines[: rows - 2], [Span(f" and {hidden:,} more rows", "muted")]]
        return [heading, *lines]

    def _draw_map_heading(self, counted: str, cell: str, width: int) -> Line:
        """Return the most detailed heading whose legend is whole."""
        headings = (
            [Span(f"{counted}a cell is {cell}  ", "muted"), *self._draw_legend(LEGEND)],
            [Span(f"{counted}{cell} a cell  ", "muted"), *self._draw_legend(SHORT_LEGEND)],
            [Span(counted, "muted"), *self._draw_legend(SHORT_LEGEND)],
            [Span(" "), *self._draw_legend(SHORT_LEGEND)],
        )
        return next((line for line in headings if line_width(line) <= width), headings[-1])

    def _draw_legend(self, names: Sequence[str]) -> Line:
        roles: tuple[Role, ...] = ("fill", "fill", "medium", "medium", "faint")
        line: Line = []
        for glyph, role, name in zip(self.glyphs.segment, roles, names, strict=True):
            line += [Span(f"{glyph} ", role), Span(name, "muted")]
        return line


def draw_moment(moment: StandingMoment, width: int) -> list[Piece]:
    """Return what is said of a moment, without the last facts where those would be cut off."""
    facts = [[Piece(fact)] for fact in moment.describe()]
    while len(facts) > 1 and measure_pieces(join_pieces(facts)) > width - MARGIN:
        facts.pop()
    return join_pieces(facts)


def wrap_verdict(
    device: InspectedDevice, moment: StandingMoment | None, width: int, height: int
) -> list[str]:
    """Return the lines of the first sentence; a single one, to be cut, on a small screen.

    It is about the end of the file, and says so while another moment is shown.
    """
    sentence = device.sentences[0] if device.sentences else "nothing was allocated"
    sentence = sentence if moment is None else f"At the end: {sentence}"
    if height < LEAST_HEIGHT_TO_WRAP or width < LEAST_WIDTH_TO_WRAP:
        return [sentence]
    return textwrap.wrap(sentence, width - VERDICT_MARGIN, break_on_hyphens=False)[:MOST_VERDICT_LINES]


def share_rows(rows: int, *, has_history: bool) -> tuple[int, int]:
    """Return the rows of the history and of the map, both 0 where there is no room."""
    least_map = LEAST_MAP_ROWS + 1
    if not has_history or rows < LEAST_HISTORY_ROWS:
        return 0, min(rows, MOST_MAP_ROWS) if rows >= least_map else 0
    if rows < LEAST_HISTORY_ROWS + least_map:
        return min(rows, MOST_HISTORY_ROWS), 0
    map_rows = min(MOST_MAP_ROWS, max(least_map, rows * 2 // 5))
    return min(MOST_HISTORY_ROWS, rows - map_rows), map_rows


HEAD_ROWS = 2
FOOT_ROWS = 2
LEAST_STACK_ROWS = 4
LEAST_PICTURE_ROWS = 2
MOST_PICTURE_ROWS = 40


class InspectScreen(FileScreen[Inspected]):
    """One file, one device at a time."""

    BINDINGS = [*keys.INSPECT]
    NAME = "vramscope inspect"
    DEFAULT_CSS = """
    InspectScreen {
        #picture { height: 2; }
        #stacks { height: 1fr; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.inspected: Inspected | None = None
        self._shown = 0
        self._advice: dict[int, InspectedAdvice] = {}
        # The moment of the history that is shown; None for the end of the file.
        self.moment: StandingMoment | None = None
        self._grouped: Grouped = "stack"
        self.picture = InspectPicture(id="picture")
        self._heading = OneLine(id="heading")
        self.stacks = InspectStacks(id="stacks")
        self._facts = OneLine(id="facts")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._verdict
        yield self.picture
        yield self._heading
        yield self.stacks
        yield self._facts
        yield self._keys

    def on_mount(self) -> None:
        self.stacks.focus()

    @property
    def device(self) -> InspectedDevice | None:
        if self.inspected is None or not self.inspected.devices:
            return None
        return self.inspected.devices[self._shown]

    @property
    def is_advised(self) -> bool:
        """Whether the traces of all devices were replayed, as far as there are any."""
        inspected = self.inspected
        return inspected is not None and (
            inspected.advise is None or len(self._advice) == len(inspected.devices)
        )

    @property
    def report(self) -> str:
        return self._describe(REPORT_WIDTH)

    def _describe(self, width: int) -> str:
        """Return everything as text, with the simulations that are done."""
        inspected = self.inspected
        sections = [self._advice[place].describe(width) for place in sorted(self._advice)]
        told = [] if inspected is None else [inspected.describe(width)]
        return "\n".join([*told, *(f"{section}\n" for section in sections if section)])

    def show_advice(self, place: int, advice: InspectedAdvice) -> None:
        self._advice[place] = advice
        if place == self._shown:
            self.picture.advise(self._describe_advice())

    def show(self, found: Inspected) -> None:
        self.inspected = inspected = found
        self._keys.hide(
            [
                *([] if len(inspected.devices) > 1 else ["choose_device"]),
                *([] if any(device.failures for device in inspected.devices) else ["failures"]),
                *([] if inspected.advise is not None and inspected.devices else ["settings"]),
                *([] if any(device.cursor for device in inspected.devices) else MOMENT_ACTIONS),
            ]
        )
        self._show_device(0)

    def _show_device(self, place: int) -> None:
        self._shown = place
        self.moment = None
        self._show_title()
        device = self.device
        if device is None:
            self._verdict.set_pieces([Piece("nothing was allocated on any device")])
            return
        self._arrange(self.size.width, self.size.height)
        is_recorded = bool(device.segment_map.segments) or not device.whole.value_bytes
        self.stacks.show(device.stacks, is_recorded=is_recorded)
        self.picture.show(device, self._describe_advice())

    def _stand(self, moment: StandingMoment) -> None:
        """Show what lived at a moment, or what differs from the marked one."""
        self.moment = moment
        self.stacks.show(moment.list_rows(self._grouped), is_compared=moment.mark is not None)
        self.picture.stand(moment)
        self._arrange(self.size.width, self.size.height)

    @property
    def _standing(self) -> StandingMoment | None:
        """The moment, or the end of the history where there is none yet; None without a history."""
        device = self.device
        if self.moment is not None or device is None or device.cursor is None or device.history is None:
            return self.moment
        return StandingMoment(device.cursor, device.history, device.cursor.newest)

    def action_move_moment(self, columns: int) -> None:
        if self._standing is not None:
            self._stand(self._standing.move(columns, self.picture.graph_cells))

    def action_step_moment(self, events: int) -> None:
        if self._standing is not None:
            self._stand(self._standing.step(events))

    def action_go_moment(self, place: Place) -> None:
        if self._standing is not None:
            self._stand(self._standing.go(place))

    def action_mark_moment(self) -> None:
        if self._standing is not None:
            self._stand(self._standing.switch_mark())

    def action_zoom_moment(self, factor: float) -> None:
        if self._standing is not None:
            self._stand(self._standing.zoom(factor))

    def action_next_grouping(self) -> None:
        if self._standing is not None:
            places = GROUPINGS if self._standing.mark is None else GROUPINGS[1:]
            at = places.index(self._grouped) if self._grouped in places else 0
            self._grouped = places[(at + 1) % len(places)]
            self._stand(self._standing)

    def action_leave_moment(self) -> None:
        if self.moment is not None:
            self._grouped = "stack"
            self._show_device(self._shown)

    def _describe_advice(self) -> tuple[str, ...]:
        """Return the sentences below the bar; only the dialog says why there is no advice."""
        if self.inspected is None or self.inspected.advise is None or self.device is None:
            return ()
        advice = self._advice.get(self._shown)
        if advice is not None:
            return () if advice.is_refused else advice.sentences
        return () if self.device.history is None else (self._computing,)

    @property
    def _computing(self) -> str:
        return f"other allocator settings, simulated: computing{self.glyphs.ellipsis}"

    def _show_title(self) -> None:
        inspected = self.inspected
        if inspected is None:
            return
        facts = [[Piece(inspected.file, "strong")], [Piece(inspected.kind)]]
        if len(inspected.devices) > 1 and self.device is not None:
            facts.append(
                [Piece(f"{self.device.name}, {self._shown + 1} of {len(inspected.devices)}", "accent")]
            )
        # In front, where no width cuts it: nothing of a simulated device was measured.
        label = [Piece("simulated device  ", "high")] if inspected.is_simulated else []
        self._title.set_pieces([*label, Piece("vramscope inspect  ", "accent"), *join_pieces(facts)])

    def _draw_verdict(self, device: InspectedDevice) -> list[Piece]:
        pieces = [Piece(wrap_verdict(device, self.moment, self.size.width, self.size.height)[0], "strong")]
        if device.failures:
            pieces.insert(0, Piece(f"{self.glyphs.risk('critical')} ", "critical"))
        return pieces

    def _draw_facts(self, device: InspectedDevice) -> list[Piece]:
        """Return the line above the keys: failed requests, else the settings."""
        if device.failures:
            count = len(device.failures)
            more = f"{count - 1} more, o lists them" if count > 1 else "o shows where"
            failed = [Piece("out of memory ", "critical"), Piece(device.failures[0])]
            return join_pieces([failed, [Piece(more, "muted")]])
        settings = self.inspected.settings if self.inspected else ""
        return [Piece("settings ", "muted"), Piece(settings or "not recorded", "muted")]

    @on(events.Resize)
    def fit(self, event: events.Resize) -> None:
        self._arrange(event.size.width, event.size.height)

    def _arrange(self, width: int, height: int) -> None:
        """Share the rows between picture and list: a short list leaves its room to the picture."""
        if self.device is not None:
            told = [Piece(self._count_rows(self.device), "muted")] if width >= NARROW_CELLS else []
            is_change = self.moment is not None and self.moment.mark is not None
            heading = draw_change_heading(width) if is_change else draw_heading(width)
            self._heading.set_pieces([Piece(heading, "muted")], told)
            self._verdict.set_pieces(self._draw_verdict(self.device))
            facts = self._draw_facts(self.device) if self.moment is None else draw_moment(self.moment, width)
            self._facts.set_pieces(facts)
        rows = height - HEAD_ROWS - FOOT_ROWS - 1
        listed = len(self.device.stacks) if self.device else 0
        list_rows = max(LEAST_STACK_ROWS, min(listed, rows * 2 // 5))
        self.picture.styles.height = max(LEAST_PICTURE_ROWS, min(MOST_PICTURE_ROWS, rows - list_rows))
        self._facts.display = rows > LEAST_PICTURE_ROWS + LEAST_STACK_ROWS

    def _count_rows(self, device: InspectedDevice) -> str:
        if self.moment is None:
            return _count_stacks(device)
        grouped = "line" if self.moment.mark is not None and self._grouped == "stack" else self._grouped
        return f"by {grouped}, {len(self.stacks.rows):,}"

    @on(RowTable.Opened)
    def open_stack(self, message: RowTable.Opened) -> None:
        message.stop()
        group = self.stacks.current
        if not isinstance(group, StackGroup):
            return
        count = f"{group.count:,} {'block' if group.count == 1 else 'blocks'}"
        heading = (
            f"{format_bytes(group.size_bytes)} in {count}, {format_share(group.share, 1)} of what is live"
        )

        def describe(width: int) -> str:
            lines = [
                show_frame(frame, width, "> " if frame is group.headline else "  ") for frame in group.frames
            ]
            return "\n".join(lines or ["no stack was recorded"])

        self.app.push_screen(TextScreen(heading, describe))

    def action_report(self) -> None:
        if self.inspected is not None:
            self.app.push_screen(TextScreen(self.inspected.file, self._describe))

    def action_settings(self) -> None:
        if self.inspected is None or self.device is None:
            return
        advice = self._advice.get(self._shown)
        text = f"{self._computing}\n\nThe screen shows the result when it is ready." if advice is None else ""
        text = text or "\n\n".join(advice.sentences if advice else ())
        self.app.push_screen(TextScreen(f"Other allocator settings, simulated: {self.device.name}", text))

    def action_failures(self) -> None:
        device = self.device
        if device is None:
            return
        self.app.push_screen(
            TextScreen(
                f"Out of memory: {device.name}",
                lambda width: device.describe_failures(width) or "the file records no failed request",
            )
        )

    def action_choose_device(self) -> None:
        if self.inspected is None:
            return
        if len(self.inspected.devices) < 2:
            self.notify("The file has only one device.", timeout=3)
            return
        self.app.push_screen(DeviceChoiceScreen(self.inspected.devices, self._shown), self._show_chosen)

    def _show_chosen(self, place: int | None) -> None:
        if place is not None:
            self._show_device(place)


def _count_stacks(device: InspectedDevice) -> str:
    noun = "stack" if device.stack_groups == 1 else "stacks"
    if device.stack_groups > len(device.stacks):
        return f"the largest {len(device.stacks):,} of {device.stack_groups:,} {noun}"
    return f"{device.stack_groups:,} {noun}"


class DeviceChoiceScreen(ModalScreen[int | None]):
    """Asks for a device; `shown` and the answer are places in the file."""

    BINDINGS = [*keys.DEVICE_CHOICE]

    def __init__(self, devices: Sequence[InspectedDevice], shown: int) -> None:
        super().__init__()
        self._devices = devices
        self._shown = shown

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -narrow"):
            yield Label("Show", classes="dialog--title")
            yield MarkedList(
                (str(place), f"{it.name}  {format_bytes(it.whole.value_bytes)} {it.whole.name}")
                for place, it in enumerate(self._devices)
            )
            yield Label("Enter chooses, Esc cancels", classes="dialog--hint")

    def on_mount(self) -> None:
        options = self.query_one(MarkedList)
        options.highlighted = self._shown
        options.focus()

    def action_move(self, places: int) -> None:
        self.query_one(MarkedList).move(places)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index)


def view_file(path: Path, read: Callable[[], Inspected]) -> FileView[InspectScreen, Inspected]:
    """Return the view of one file; `read` is called on a thread of its own."""

    def wait(passed_s: float) -> str | None:
        with suppress(OSError):
            size = format_bytes(path.stat().st_size)
            return f"reading {show_name(path)}, {size}: {passed_s:.0f} s; q leaves"
        return None

    def begin_to_advise(found: Inspected) -> None:
        """Start the simulation of other settings."""
        if found.advise is not None and found.devices:
            threading.Thread(target=advise, args=(found,), name="adviser", daemon=True).start()

    def advise(found: Inspected) -> None:
        """Replay the traces on the thread, device by device; the application may end meanwhile."""
        for place in range(len(found.devices)):
            if view.is_left or found.advise is None:
                return
            try:
                advice = found.advise(place)
            except Exception as error:  # noqa: BLE001 - the file is shown all the same, and the screen says why
                advice = InspectedAdvice((f"no advice on allocator settings: {error!r}",), is_refused=True)
            view.hand_over(partial(view.screen.show_advice, place, advice))

    view = FileView(lambda app: InspectScreen(), read, wait, own_keys=keys.FILE, then=begin_to_advise)
    return view


def inspect_file(
    path: Path, *, settings: Settings, device: int | None = None, capacity_bytes: int | None = None
) -> int:
    """Show a file until the user quits, and return the exit code.

    Args:
        device: The only device to show; None for all.
        capacity_bytes: What the allocator can reserve where settings are compared; None for what the trace
            shows.

    Raises:
        UsageError: Nothing can be drawn here, or the file does not have the device.
        InputFileError: The file cannot be read or understood.
    """
    try:
        view = view_file(path, lambda: read_inspected(path, device, capacity_bytes=capacity_bytes))
        return show_file(view, settings)
    finally:
        _end_readers()


def _end_readers() -> None:
    """End the decoding process, where the user left before it was done."""
    import psutil

    for child in psutil.Process().children():
        with suppress(psutil.Error):
            child.terminate()
