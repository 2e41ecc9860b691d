"""Processes: the columns of each row, their order, and the table with a cursor."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, get_args

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...analyzers.findings.subjects import name_devices
from ...engine.model import DeviceSample, ProcessReading, RankSample
from ...engine.settings import SortColumn
from ...engine.units import format_bytes, share_percent
from ...exporters.text import show_number
from ..draw.columns import fit_columns
from ..draw.numbers import count_text
from ..draw.spans import Role, Span, fit_line, fit_text, line_width, right_text
from ..frame import keys
from ..frame.theme import find_looks, to_strip
from ..widgets.device_view import MODELLED, name_coordinates, spell_label
from ..widgets.line_page import MarkingWidget

# Device UUID and process id: the selection stays with these.
ProcessKey = tuple[str, int]

# Columns that can be sorted by, as in the setting `sort`.
SORTABLE: tuple[SortColumn, ...] = get_args(SortColumn)


SortKey = tuple[float, ...] | tuple[str, ...]


class ProcessRow(NamedTuple):
    device: DeviceSample
    process: ProcessReading
    # The training process it is, where it reports through the probe.
    rank: RankSample | None = None

    @property
    def key(self) -> ProcessKey:
        return (self.device.uuid, self.process.pid)

    @property
    def share_percent(self) -> float | None:
        return share_percent(self.process.used_bytes, self.device.memory.total_bytes)

    @property
    def note(self) -> str:
        """Text on where the process runs; empty for an ordinary one."""
        match self.process.location:
            case "outside":
                return "outside this container"
            case "gone":
                return "exited, memory still held"
            case "container":
                name = self.process.container
                return f"container {name}" if name else "in a container"
            case _:
                return ""

    @property
    def rank_name(self) -> str:
        """Its rank and coordinates; empty for a process without a rank or a report."""
        if self.rank is None or self.rank.coordinates is None:
            return ""
        return name_coordinates(self.rank.coordinates)

    @property
    def command(self) -> str:
        """Command line on one line, or `—` where it cannot be known."""
        return " ".join((self.process.command or "—").split())


class Column(NamedTuple):
    name: SortColumn
    title: str
    # Cells; 0 takes what is left.
    width: int
    # Whether it is aligned right and sorted with the largest first.
    is_number: bool
    text: Callable[[ProcessRow], str]
    # Sort key; None sorts last, whichever the direction.
    order: Callable[[ProcessRow], SortKey | None]


def _share_text(row: ProcessRow) -> str:
    return show_number(row.share_percent, ".0f", " %")


def _optional(value: float | str | None) -> SortKey | None:
    if value is None:
        return None
    return (value,) if isinstance(value, str) else (float(value),)


def _natural_device(row: ProcessRow) -> tuple[int, int]:
    return (row.device.index, -1 if row.device.mig_index is None else row.device.mig_index)


# The columns, left to right.
COLUMNS: tuple[Column, ...] = (
    Column("device", "GPU", 5, False, lambda row: spell_label(row.device), _natural_device),
    Column("pid", "PID", 8, True, lambda row: str(row.process.pid), lambda row: (row.process.pid,)),
    Column(
        "user",
        "USER",
        10,
        False,
        lambda row: row.process.user or "—",
        lambda row: _optional(row.process.user),
    ),
    Column(
        "memory",
        "MEMORY",
        10,
        True,
        lambda row: format_bytes(row.process.used_bytes),
        lambda row: _optional(row.process.used_bytes),
    ),
    Column("share", "OF GPU", 7, True, _share_text, lambda row: _optional(row.share_percent)),
    Column(
        "command",
        "COMMAND",
        0,
        False,
        lambda row: f"({row.note}) {row.command}" if row.note else row.command,
        lambda row: _optional(row.process.command),
    ),
)

COLUMN_NAMES: tuple[SortColumn, ...] = tuple(column.name for column in COLUMNS)
# Cells of all columns but the last, which gets the rest.
WIDTHS = tuple(column.width for column in COLUMNS[:-1])
ALIGNMENT = "".join("r" if column.is_number else "l" for column in COLUMNS[:-1])


class SortOrder(NamedTuple):
    """By which column the rows are sorted, and whether against its natural direction."""

    column: SortColumn = "memory"
    is_inverted: bool = False

    def shifted(self, places: int) -> "SortOrder":
        """Return the order by the column that many places to the right; stops at the edges."""
        index = COLUMN_NAMES.index(self.column) + places
        return SortOrder(COLUMN_NAMES[max(0, min(len(COLUMN_NAMES) - 1, index))])

    @property
    def is_descending(self) -> bool:
        return column_named(self.column).is_number != self.is_inverted


def column_named(name: SortColumn) -> Column:
    return COLUMNS[COLUMN_NAMES.index(name)]


def collect_rows(devices: Iterable[DeviceSample], ranks: Iterable[RankSample] = ()) -> list[ProcessRow]:
    """Return the rows of all processes on all devices, in device order, with the ranks that report."""
    reporting = {rank.pid: rank for rank in ranks if rank.state != "ended"}
    return [
        ProcessRow(device, process, reporting.get(process.pid) if process.location != "gone" else None)
        for device in devices
        for process in device.processes or ()
    ]


def filter_rows(rows: Sequence[ProcessRow], text: str) -> list[ProcessRow]:
    """Return the rows that pass a filter, see `find_terms`."""
    terms = find_terms(rows, text)
    return [row for row in rows if all(_contains(row, term) for term in terms)]


def find_terms(rows: Sequence[ProcessRow], text: str) -> tuple[str, ...]:
    """Return the terms that every row must contain: the whole phrase, or its words where no field has it.

    So `rank 7` does not find every PID with a 7 in it, and `user1 eval` finds one's evaluation.

    Args:
        text: The filter; it is searched in user, process id, rank, command, note and device
            (`gpu0`), ignoring case.
    """
    words = tuple(text.lower().split())
    phrase = " ".join(words)
    return (phrase,) if phrase and any(_contains(row, phrase) for row in rows) else words


def _contains(row: ProcessRow, term: str) -> bool:
    """Return whether one field of a row contains a term in lower case."""
    process = row.process
    device = row.device
    command = row.command if process.command else None
    place = f"gpu{device.label}"
    fields = (process.user, str(process.pid), row.rank_name, command, row.note, place, device.name)
    return any(term in field.lower() for field in fields if field)


def sort_rows(rows: Sequence[ProcessRow], order: SortOrder) -> list[ProcessRow]:
    """Return the rows sorted; equal ones by device and process id, unmeasured ones last."""
    key = column_named(order.column).order
    settled = sorted(rows, key=lambda row: (*_natural_device(row), row.process.pid))
    known = [row for row in settled if key(row) is not None]
    unknown = [row for row in settled if key(row) is None]
    return sorted(known, key=lambda row: key(row) or (), reverse=order.is_descending) + unknown


COLUMN_GAP = 2
SIDE_SCROLL_CELLS = 8
ELLIPSIS = "…"
SORT_MARKS = {True: "▼", False: "▲"}


class ProcessTable(ScrollView, MarkingWidget, can_focus=True):
    """Lists processes; the selection stays with the process while rows come, go and move."""

    COMPONENT_CLASSES = {"process-table--chosen", "process-table--heading"}
    DEFAULT_CSS = """
    ProcessTable {
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-size-vertical: 1;
        & > .process-table--chosen {
            background: $block-cursor-background; color: $block-cursor-foreground;
            text-style: $block-cursor-text-style;
        }
        & > .process-table--heading { background: $surface; color: $role-muted; }
    }
    """

    BINDINGS = [*keys.PROCESSES]

    # By which column the rows are sorted.
    order: reactive[SortOrder] = reactive(SortOrder())
    # Words that every shown row contains.
    filter_text: reactive[str] = reactive("")

    class DeviceAsked(Message):
        """The device of the selected process is to be shown."""

        def __init__(self, uuid: str) -> None:
            super().__init__()
            self.uuid = uuid

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: list[ProcessRow] = []
        self._all_rows: list[ProcessRow] = []
        self._unlisted: tuple[DeviceSample, ...] = ()
        self._source_words = ""
        self._is_nothing_listed = False
        self._terms: tuple[str, ...] = ()
        self._drawn: list[tuple[str, ...]] = []
        self._selected: ProcessKey | None = None
        self._selected_index = 0
        self._command_offset = 0

    @property
    def process_count(self) -> int:
        return len(self._all_rows)

    @property
    def selected_row(self) -> ProcessRow | None:
        return self.rows[self._selected_index] if self.rows else None

    def show(self, devices: Sequence[DeviceSample], ranks: Sequence[RankSample] = ()) -> None:
        """List the processes of these devices, and name those whose driver does not report any."""
        counted = self.process_count
        unlisted = self._unlisted
        self._all_rows = collect_rows(devices, ranks)
        self._unlisted = tuple(device for device in devices if device.processes is None)
        has_driver = any(device.kind not in MODELLED for device in devices)
        self._source_words = ", as far as the driver reports" if has_driver else ""
        self._is_nothing_listed = bool(devices) and len(self._unlisted) == len(devices)
        names = [[device.uuid for device in those] for those in (unlisted, self._unlisted)]
        self._update_rows(is_heading_changed=counted != self.process_count or names[0] != names[1])

    def watch_order(self) -> None:
        self._update_rows(is_heading_changed=True)

    def watch_filter_text(self) -> None:
        self._update_rows(is_heading_changed=True)

    def _update_rows(self, *, is_heading_changed: bool = False) -> None:
        before = self._drawn
        cursor = self._selected_index
        self.rows = sort_rows(filter_rows(self._all_rows, self.filter_text), self.order)
        terms = self._terms
        self._terms = find_terms(self._all_rows, self.filter_text)
        self._drawn = [_list_shown(row) for row in self.rows]
        self._follow_selection()
        self.virtual_size = Size(0, 1 + len(self.rows))
        if is_heading_changed or len(before) != len(self.rows) or terms != self._terms:
            self.refresh()
            return
        changed = [
            index
            for index in range(max(len(before), len(self._drawn)))
            if before[index : index + 1] != self._drawn[index : index + 1]
        ]
        if cursor != self._selected_index:
            changed = sorted({*changed, cursor, self._selected_index})
        self._refresh_rows(changed)

    def _follow_selection(self) -> None:
        keys = [row.key for row in self.rows]
        if self._selected in keys:
            self._selected_index = keys.index(self._selected)
            return
        self._selected_index = max(0, min(self._selected_index, len(keys) - 1))
        if keys and self._selected is not None:
            self._selected = keys[self._selected_index]

    def _refresh_rows(self, indexes: Sequence[int]) -> None:
        """Repaint rows; neighbours are repainted together."""
        top = self.scroll_offset.y
        bottom = self.scroll_offset.y + self.size.height - 1
        runs: list[tuple[int, int]] = []
        for index in indexes:
            if not top <= index < bottom:
                continue
            if runs and index == runs[-1][1]:
                runs[-1] = (runs[-1][0], index + 1)
            else:
                runs.append((index, index + 1))
        for start, end in runs:
            self.repaint(Region(0, 1 + start - top, self.size.width, end - start))

    def on_focus(self) -> None:
        self._select(self._selected_index)
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def _select(self, index: int) -> None:
        if not self.rows:
            return
        before = self._selected_index
        self._selected_index = max(0, min(index, len(self.rows) - 1))
        self._selected = self.rows[self._selected_index].key
        room = max(1, self.size.height - 1)
        top = self.scroll_offset.y
        if not top <= self._selected_index < top + room:
            target = self._selected_index if self._selected_index < top else self._selected_index - room + 1
            self.scroll_to(y=target, animate=False)
        self._refresh_rows(sorted({before, self._selected_index}))

    def action_move(self, places: int) -> None:
        self._select(self._selected_index + places)

    def action_page(self, pages: int) -> None:
        self._select(self._selected_index + pages * max(1, self.size.height - 2))

    def action_shift(self, steps: int) -> None:
        self._command_offset = max(0, self._command_offset + steps * SIDE_SCROLL_CELLS)
        self.refresh()

    def action_open_device(self) -> None:
        if self.selected_row is not None:
            self.post_message(self.DeviceAsked(self.selected_row.device.uuid))

    def sort_by(self, name: SortColumn) -> None:
        """Sort by a column; by the same one again, the other way round."""
        is_same = name == self.order.column
        self.order = SortOrder(name, not self.order.is_inverted if is_same else False)

    def on_click(self, event: events.Click) -> None:
        """Sort by the heading clicked on, or select the row."""
        if event.y == 0:
            column = _column_at(event.x)
            if column is not None:
                self.sort_by(column.name)
        elif event.y - 1 + self.scroll_offset.y < len(self.rows):
            self._select(event.y - 1 + self.scroll_offset.y)

    def render_line(self, y: int) -> Strip:
        """Return the heading, a row, or the text where there are none."""
        width = self.scrollable_content_region.width
        looks = find_looks(self)
        if y == 0:
            heading = self.get_component_rich_style("process-table--heading")
            return _tint(to_strip(self._heading(width), looks), heading)
        index = y - 1 + self.scroll_offset.y
        if index >= len(self.rows):
            return to_strip(
                fit_line([Span(self._explain_absence() if index == 0 else "", "muted")], width), looks
            )
        strip = to_strip(fit_line(_draw_row(self.rows[index], width, self._command_offset), width), looks)
        if index == self._selected_index and self.has_focus:
            return _tint(strip, self.get_component_rich_style("process-table--chosen"))
        return strip

    def _heading(self, width: int) -> list[Span]:
        """Return the titles, and at the right how many processes there are; a filter is always named."""
        spans = [Span(" ")]
        gap = 0
        for column in COLUMNS[:-1]:
            title = self._title(column)
            excess = line_width([title]) - column.width
            spans += [Span(" " * (gap - excess)), title] if gap else [title]
            gap = COLUMN_GAP
        spans.append(Span(" " * COLUMN_GAP))
        last = self._title(COLUMNS[-1])
        count = self._describe_count()
        room = width - line_width(spans)
        if room > line_width([last]) + cell_len(count):
            spans += [last, Span(right_text(count, room - line_width([last]), ELLIPSIS), self._count_role)]
        elif self.filter_text:
            spans.append(Span(fit_text(count, room, ELLIPSIS), self._count_role))
        else:
            spans.append(last)
        return fit_line(spans, width)

    def _title(self, column: Column) -> Span:
        is_sorted = column.name == self.order.column
        mark = SORT_MARKS[self.order.is_descending] if is_sorted else ""
        # An arrow that is a letter must not look like one of the title.
        blank = " " if mark and self.glyphs.name == "ascii" else ""
        title = f"{mark}{blank}{column.title}" if column.is_number else f"{column.title}{blank}{mark}"
        if column.width and cell_len(title) != column.width + 1:
            title = fit_columns([title], [column.width], "r" if column.is_number else "l", ELLIPSIS)[0]
        return Span(title, "accent" if is_sorted else "muted")

    @property
    def _count_role(self) -> Role:
        return "accent" if self.filter_text else "muted"

    def _describe_count(self) -> str:
        """Return how many processes there are and match; `—` where unknown."""
        if self.filter_text:
            terms = " and ".join(f"“{term}”" for term in self._terms)
            return f"{len(self.rows)} of {self.process_count} match {terms} "
        if self._is_nothing_listed:
            return "— processes "
        unknown = f", unknown on {name_devices(self._unlisted)}" if self._unlisted else ""
        return f"{count_text(self.process_count, 'process', 'processes')}{unknown} "

    def _explain_absence(self) -> str:
        if self._all_rows:
            return f" no process matches “{self.filter_text}”; Esc shows all {self.process_count}"
        if self._is_nothing_listed:
            reason = next((device.reason for device in self._unlisted if device.reason), None)
            return f" process list not available: {reason or 'the driver does not report it'}"
        if self._unlisted:
            return f" no process is known to hold memory; unknown on {name_devices(self._unlisted)}"
        return f" no process holds memory on these devices{self._source_words}"


def _list_shown(row: ProcessRow) -> tuple[str, ...]:
    """Return everything that a row shows, to detect changes."""
    return (*(column.text(row) for column in COLUMNS), row.process.location, row.rank_name)


def _draw_row(row: ProcessRow, width: int, command_offset: int) -> list[Span]:
    """Return one row; unusual values are muted."""
    spans = [Span(" ")]
    texts = [column.text(row) for column in COLUMNS[:-1]]
    fitted = fit_columns(texts, WIDTHS, ALIGNMENT, ELLIPSIS)
    for column, text, cells in zip(COLUMNS, texts, fitted, strict=False):
        spans += [Span(cells, _role(column, text)), Span(" " * COLUMN_GAP)]
    if row.rank_name:
        spans.append(Span(f"{row.rank_name}  ", "accent"))
    if row.note:
        spans.append(Span(f"({row.note}) ", "medium" if row.process.location == "gone" else "muted"))
    left = width - sum(len(span.text) for span in spans)
    spans.append(Span(_draw_command(row.command, left, command_offset) if left > 0 else ""))
    return spans


def _draw_command(command: str, width: int, offset: int) -> str:
    """Return a command from a character on; too long and not scrolled, without its program's folder.

    The folder of an interpreter is long and uninteresting; what it runs distinguishes two jobs.
    """
    program, gap, arguments = command.partition(" ")
    if offset == 0 and len(command) > width and arguments:
        command = program.rpartition("/")[2] + gap + arguments
    return fit_text(command[offset:], width, ELLIPSIS)


def _role(column: Column, text: str) -> Role:
    if text == "—" or column.name in {"pid", "user"}:
        return "muted"
    return "strong" if column.name == "memory" else "text"


def _column_at(x: int) -> Column | None:
    """Return the column at a cell of the heading."""
    edge = 1
    for column in COLUMNS:
        edge += column.width + COLUMN_GAP
        if column.width == 0 or x < edge:
            return column
    return None


def _tint(strip: Strip, style: Style) -> Strip:
    tint = Style(bgcolor=style.bgcolor, reverse=style.reverse, bold=style.bold)
    return Strip([Segment(text, (own or Style()) + tint) for text, own, _ in strip], strip.cell_length)
