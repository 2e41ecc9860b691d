"""The table of processes: columns that fit, a cursor that stays with its process, marks, a tree."""

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...analyzers.findings.driver_tools import NVIDIA, find_tools
from ...analyzers.findings.subjects import name_devices
from ...engine.model import DeviceSample, ProcessReading, RankSample
from ...engine.settings import SortColumn
from ..draw.columns import fit_columns
from ..draw.numbers import count_text
from ..draw.spans import ELLIPSIS, Role, Span, fit_line, fit_text, line_width, right_text
from ..frame import keys
from ..frame.theme import find_looks, to_strip
from ..widgets.device_view import MODELLED
from ..widgets.line_page import MarkingWidget
from .process_rows import (
    COLUMN_GAP,
    Column,
    ProcessIdentity,
    ProcessKey,
    ProcessRow,
    SortOrder,
    arrange_tree,
    choose_columns,
    collect_rows,
    drop_folders,
    filter_rows,
    find_known,
    find_terms,
    runs_text,
    sort_rows,
    title_column,
)

SIDE_SCROLL_CELLS = 8
MARK = "✓"
# Where one of these is shown, the command need not name the container before it.
OWNER_COLUMNS: frozenset[SortColumn] = frozenset({"pod", "container"})
SORT_MARKS = {True: "▼", False: "▲"}


class ProcessTable(ScrollView, MarkingWidget, can_focus=True):
    """Lists processes; selection and marks stay with their processes while rows come, go and move."""

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
    # Columns that a person chose; none for the usual ones.
    chosen_columns: reactive[tuple[SortColumn, ...]] = reactive(())
    # Whether children are below their parents.
    is_tree: reactive[bool] = reactive(False)

    class Opened(Message):
        """The history of the selected process is to be shown."""

        def __init__(self, row: ProcessRow) -> None:
            super().__init__()
            self.row = row

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: list[ProcessRow] = []
        self._all_rows: list[ProcessRow] = []
        # Parents and children of the listed processes, which hold no device memory themselves.
        self._relatives: Mapping[int, ProcessReading] = {}
        # Whether these are known at all: of another node they are not.
        self._has_relatives = True
        self._now_s: float | None = None
        self._known: frozenset[SortColumn] = frozenset()
        self.columns: tuple[Column, ...] = choose_columns((), frozenset(), 80)
        self._marked: set[ProcessIdentity] = set()
        self._unlisted: tuple[DeviceSample, ...] = ()
        self._source_words = ""
        self._is_nothing_listed = False
        self._terms: tuple[str, ...] = ()
        # Of all rows what decides what is listed, and where the listed ones are among them; None in a tree.
        self._decisive: list[tuple[object, ...]] = []
        self._places: list[int] | None = None
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

    @property
    def marked_rows(self) -> list[ProcessRow]:
        """A row of each marked process, in the order of the list."""
        found: dict[ProcessIdentity, ProcessRow] = {}
        for row in self.rows:
            if row.identity in self._marked:
                found.setdefault(row.identity, row)
        return list(found.values())

    @property
    def row_count(self) -> int:
        """Rows that the list would fill."""
        return len(self.rows) if self.is_tree else self.process_count

    @property
    def listed_pids(self) -> frozenset[int]:
        """Processes that hold device memory, of this machine."""
        here = ("here", "container")
        return frozenset(row.process.pid for row in self._all_rows if row.process.location in here)

    def show(
        self,
        devices: Sequence[DeviceSample],
        ranks: Sequence[RankSample] = (),
        now_s: float | None = None,
    ) -> None:
        """List the processes of these devices, and name those whose driver does not report any.

        `now_s` is the time of the sample.
        """
        self._now_s = now_s
        counted = self.process_count
        unlisted = self._unlisted
        self._all_rows = collect_rows(devices, ranks, now_s)
        self._unlisted = tuple(device for device in devices if device.processes is None)
        has_driver = any(device.kind not in MODELLED for device in devices)
        self._source_words = ", as far as the driver reports" if has_driver else ""
        self._is_nothing_listed = bool(devices) and len(self._unlisted) == len(devices)
        names = [[device.uuid for device in those] for those in (unlisted, self._unlisted)]
        is_heading_changed = counted != self.process_count or names[0] != names[1]
        before = self._decisive
        self._decisive = [_list_decisive(row) for row in self._all_rows]
        if self._places is not None and self._decisive == before and not is_heading_changed:
            self.rows = [self._all_rows[place] for place in self._places]
        else:
            self._known |= find_known(self._all_rows)
            self._update_rows(is_heading_changed=is_heading_changed)

    def show_relatives(self, relatives: Mapping[int, ProcessReading] | None) -> None:
        """Add parents and children of the listed processes to the tree, by process id.

        None: they are not known, as of another node.
        """
        is_news = self._has_relatives is (relatives is None)
        has_changed = is_news or (relatives or {}) != self._relatives
        self._relatives = relatives or {}
        self._has_relatives = relatives is not None
        if self.is_tree and has_changed:
            self._update_rows(is_heading_changed=is_news)

    def watch_order(self) -> None:
        self._update_rows(is_heading_changed=True)

    def watch_chosen_columns(self) -> None:
        self._update_rows(is_heading_changed=True)

    def watch_is_tree(self) -> None:
        self._update_rows(is_heading_changed=True)

    def on_resize(self) -> None:
        self._update_rows()

    def watch_filter_text(self) -> None:
        self._update_rows(is_heading_changed=True)

    def _update_rows(self, *, is_heading_changed: bool = False) -> None:
        before = self._drawn
        cursor = self._selected_index
        shown = filter_rows(self._all_rows, self.filter_text)
        self.rows = (
            arrange_tree(shown, self._relatives, self.order, self._now_s)
            if self.is_tree
            else sort_rows(shown, self.order)
        )
        at = {id(row): place for place, row in enumerate(self._all_rows)}
        self._places = None if self.is_tree else [at[id(row)] for row in self.rows]
        terms = self._terms
        columns = self.columns
        self._terms = find_terms(self._all_rows, self.filter_text)
        self.columns = choose_columns(self.chosen_columns, self._known, self.size.width or 80)
        self._marked &= {row.identity for row in self.rows}
        self._drawn = [self._list_shown(row) for row in self.rows]
        self._follow_selection()
        self.virtual_size = Size(0, 1 + len(self.rows))
        is_heading_changed = is_heading_changed or columns != self.columns
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

    def _list_shown(self, row: ProcessRow) -> tuple[str, ...]:
        """Return everything that a row shows, to detect changes."""
        mark = MARK if row.identity in self._marked else ""
        texts = [column.text(row) for column in self.columns]
        return (mark, *texts, row.process.location, row.rank_name, row.branch)

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

    def action_open(self) -> None:
        if self.selected_row is not None:
            self.post_message(self.Opened(self.selected_row))

    def action_mark(self) -> None:
        """Mark the selected process, or remove its mark, and go to the next one."""
        row = self.selected_row
        if row is not None:
            self._marked ^= {row.identity}
            self._update_rows(is_heading_changed=True)
            self.action_move(1)

    def look_like(self, other: "ProcessTable") -> None:
        """Take over sorting, columns and tree of another list."""
        self.order = other.order
        self.chosen_columns = other.chosen_columns
        self.is_tree = other.is_tree

    def clear_marks(self) -> bool:
        """Remove all marks; return whether there were any."""
        had_any = bool(self._marked)
        self._marked.clear()
        self._update_rows(is_heading_changed=had_any)
        return had_any

    def sort_by(self, name: SortColumn) -> None:
        """Sort by a column; by the same one again, the other way round."""
        is_same = name == self.order.column
        self.order = SortOrder(name, not self.order.is_inverted if is_same else False)

    def on_click(self, event: events.Click) -> None:
        """Sort by the heading clicked on, or select the row."""
        if event.y == 0:
            column = self._column_at(event.x)
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
        strip = to_strip(fit_line(self._draw_row(self.rows[index], width), width), looks)
        if index == self._selected_index and self.has_focus:
            return _tint(strip, self.get_component_rich_style("process-table--chosen"))
        return strip

    def _heading(self, width: int) -> list[Span]:
        """Return the titles, and at the right how many processes there are; a filter is always named."""
        spans = [Span(" ")]
        gap = 0
        fixed = [column for column in self.columns if column.width]
        for column in fixed:
            title = self._title(column)
            excess = line_width([title]) - column.width
            spans += [Span(" " * (gap - excess)), title] if gap else [title]
            gap = COLUMN_GAP
        spans.append(Span(" " * COLUMN_GAP))
        last = self._title(self.columns[-1]) if self.columns[-1].width == 0 else Span("")
        count = self._describe_count()
        room = width - line_width(spans)
        if room > line_width([last]) + cell_len(count):
            spans += [last, Span(right_text(count, room - line_width([last]), ELLIPSIS), self._count_role)]
        elif self.filter_text or self._marked:
            spans.append(Span(fit_text(count, room, ELLIPSIS), self._count_role))
        else:
            spans.append(last)
        return fit_line(spans, width)

    def _draw_row(self, row: ProcessRow, width: int) -> list[Span]:
        """Return one row; unusual values are muted."""
        spans = [Span(MARK, "accent") if row.identity in self._marked else Span(" ")]
        fixed = [column for column in self.columns if column.width]
        texts = ["" if row.is_relative and not column.is_of_host else column.text(row) for column in fixed]
        alignment = "".join("r" if column.is_number else "l" for column in fixed)
        fitted = fit_columns(texts, [column.width for column in fixed], alignment, ELLIPSIS)
        for column, text, cells in zip(fixed, texts, fitted, strict=True):
            spans += [Span(cells, _role(column, text)), Span(" " * COLUMN_GAP)]
        if self.columns[-1].width:
            return spans
        if row.branch:
            spans.append(Span(row.branch, "faint"))
        if row.rank_name:
            spans.append(Span(f"{row.rank_name}  ", "accent"))
        has_owner = row.process.location == "container" and any(it.name in OWNER_COLUMNS for it in fixed)
        if row.note and not has_owner:
            spans.append(Span(f"({row.note}) ", "medium" if row.process.location == "gone" else "muted"))
        left = width - sum(len(span.text) for span in spans)
        is_explained = bool(row.note) and not has_owner and row.process.command is None
        is_empty = left <= 0 or is_explained
        command = "" if is_empty else _draw_command(row.command, left, self._command_offset)
        spans.append(Span(command, "muted" if row.is_relative else "text"))
        return spans

    def _column_at(self, x: int) -> Column | None:
        """Return the column at a cell of the heading."""
        edge = 1
        for column in self.columns:
            edge += column.width + COLUMN_GAP
            if column.width == 0 or x < edge:
                return column
        return None

    def _title(self, column: Column) -> Span:
        is_sorted = column.name == self.order.column
        mark = SORT_MARKS[self.order.is_descending] if is_sorted else ""
        # An arrow that is a letter must not look like one of the title.
        blank = " " if mark and self.glyphs.name == "ascii" else ""
        words = title_column(column.name, is_nvidia=self.has_nvidia)
        title = f"{mark}{blank}{words}" if column.is_number else f"{words}{blank}{mark}"
        if column.width and cell_len(title) != column.width + 1:
            title = fit_columns([title], [column.width], "r" if column.is_number else "l", ELLIPSIS)[0]
        return Span(title, "accent" if is_sorted else "muted")

    @property
    def has_nvidia(self) -> bool:
        """Whether a row is of a GPU by NVIDIA, or there are no rows."""
        return not self._all_rows or any(find_tools(row.device) is NVIDIA for row in self._all_rows)

    @property
    def _count_role(self) -> Role:
        return "accent" if self.filter_text or self._marked else "muted"

    def _describe_count(self) -> str:
        """Return how many processes there are, match and are marked; `—` where unknown."""
        if self._marked:
            return f"{len(self.marked_rows)} of {self.process_count} marked "
        if self.filter_text:
            terms = " and ".join(f"“{term}”" for term in self._terms)
            return f"{len(self.rows)} of {self.process_count} match {terms} "
        if self._is_nothing_listed:
            return "— processes "
        unknown = f", unknown on {name_devices(self._unlisted)}" if self._unlisted else ""
        alone = ", others of the node unknown" if self.is_tree and not self._has_relatives else ""
        return f"{count_text(self.process_count, 'process', 'processes')}{unknown}{alone} "

    def _explain_absence(self) -> str:
        if self._all_rows:
            return f" no process matches “{self.filter_text}”; Esc shows all {self.process_count}"
        if self._is_nothing_listed:
            reason = next((device.reason for device in self._unlisted if device.reason), None)
            return f" process list not available: {reason or 'the driver does not report it'}"
        if self._unlisted:
            return f" no process is known to hold memory; unknown on {name_devices(self._unlisted)}"
        return f" no process holds memory on these devices{self._source_words}"


def _draw_command(command: str, width: int, offset: int) -> str:
    """Return a command from a character on; one that is too long, without the folders of what it runs."""
    if offset == 0:
        command = drop_folders(command, width)
    return fit_text(command[offset:], width, ELLIPSIS)


def _role(column: Column, text: str) -> Role:
    if text == "—" or column.name in {"pid", "user"}:
        return "muted"
    return "strong" if column.name == "memory" else "text"


def _list_decisive(row: ProcessRow) -> tuple[object, ...]:
    """Return everything of a row that a list shows, sorts or filters by, but for its marks."""
    device = row.device
    place = (device.uuid, device.index, device.mig_index, device.label, device.name, device.kind)
    return (row.process, row.rank, *place, device.memory.total_bytes, runs_text(row.runs_s))


def _tint(strip: Strip, style: Style) -> Strip:
    tint = Style(bgcolor=style.bgcolor, reverse=style.reverse, bold=style.bold)
    return Strip([Segment(text, (own or Style()) + tint) for text, own, _ in strip], strip.cell_length)
