"""A device in one line, in two, as a panel, or as a cell of a grid."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from msgspec.structs import replace

from ...engine.model import DeviceSample, MemoryReading
from ..draw.bars import level_glyph
from ..draw.glyphs import Glyphs, lower
from ..draw.numbers import (
    CELSIUS_WIDTH,
    PERCENT_WIDTH,
    WATTS_WIDTH,
    celsius_text,
    gib_text,
    percent_text,
    watts_text,
)
from ..draw.spans import Line, Role, Span, fit_line, fit_text, line_width, right_text
from ..widgets import device_fields as fields
from ..widgets.device_view import DeviceView, SharedWidths, rank_role, rank_text
from ..widgets.replay_words import ERROR_CELLS, comparison_column, comparison_fact

# Rows of the selected device below the cells: a blank one and two of facts.
DETAIL_ROWS = 3


def cell_width(label_width: int) -> int:
    """Return the cells of one device with its label, level, percentage and risk."""
    return label_width + 9


def draw_cell(view: DeviceView, widths: SharedWidths, glyphs: Glyphs) -> Line:
    """Return a device in `cell_width` cells: ` 12▆ 77 ·`."""
    percent = view.used_percent
    share = glyphs.unmeasured if percent is None else f"{min(999.0, percent):.0f}"
    glyph, role = dot(view, glyphs)
    mark = Span(glyphs.selected, "accent") if view.is_selected else Span(" ")
    level = level_glyph(None if percent is None else percent / 100, glyphs)
    figure: Role = "text" if view.is_fresh and not view.is_in_danger else role
    return [
        mark,
        Span(view.label.rjust(widths.label), "strong" if view.is_selected else "muted"),
        Span(" "),
        Span(level, view.fill_role if view.is_fresh else "muted"),
        Span(share.rjust(4), figure),
        Span(" "),
        Span(glyph, role) if glyph != level else fields.risk_mark(view, glyphs),
    ]


def dot(view: DeviceView, glyphs: Glyphs) -> tuple[str, Role]:
    """Return a device as one cell: how full it is, or its trouble."""
    if view.state == "lost":
        return glyphs.lost, "critical"
    if view.state == "stale":
        return glyphs.stale, "medium"
    if view.is_in_danger:
        return glyphs.risk(view.risk.level), view.risk_role
    memory = view.device.memory
    if memory.used_bytes is None or not view.scale_bytes:
        return glyphs.unmeasured, "muted"
    return level_glyph(memory.used_bytes / view.scale_bytes, glyphs), "fill"


def draw_dots(views: Sequence[DeviceView], glyphs: Glyphs) -> Line:
    line: Line = []
    for view in views:
        glyph, role = dot(view, glyphs)
        line.append(Span(glyph, "cursor" if view.is_selected else role))
    return line


def fullest(views: Sequence[DeviceView]) -> DeviceView:
    """Return the device to describe while none is selected: the fullest."""
    return max(views, key=lambda view: view.used_percent or 0.0)


MINIMUM_GAUGE = 8
MAXIMUM_GAUGE = 40
MINIMUM_GRAPH = 16
# Cells of utilisation, memory, the word of the risk, temperature and power together.
WHOLE_ROW_CELLS = 44
# Cells in which label, gauge, percentage and risk are legible.
MINIMUM_WIDTH = 26


@dataclass(frozen=True, slots=True)
class LineColumns:
    """Cells of each column of one row; 0 without room for it."""

    share: int
    gauge: int
    figures: int = 0
    word: int = 0
    utilization: int = 0
    temperature: int = 0
    power: int = 0
    name: int = 0
    rank: int = 0
    # Error of the simulation.
    error: int = 0
    graph: int = 0


def choose_columns(width: int, widths: SharedWidths) -> LineColumns:
    share = max(PERCENT_WIDTH, widths.figures + 1)
    free = width - (1 + widths.label + 1 + MINIMUM_GAUGE + 1 + share + 3)
    metrics = 1 if widths.has_metrics else 0
    wanted = {
        **({"rank": _rank_cells(free, widths)} if widths.has_ranks else {}),
        "utilization": metrics * (PERCENT_WIDTH + 2),
        "figures": 2 * widths.figures + 3,
        **({} if widths.has_ranks else {"rank": widths.rank + 2 if widths.rank else 0}),
        "word": 9,
        "error": ERROR_CELLS + 2 if widths.has_comparison else 0,
        "temperature": metrics * (CELSIUS_WIDTH + 2),
        "power": metrics * (WATTS_WIDTH + 2),
        "name": widths.name + 1 if widths.name else 0,
    }
    chosen: dict[str, int] = {}
    for column, cells in wanted.items():
        if cells <= free:
            chosen[column] = cells
            free -= cells
    graph = free // 2 if free >= 2 * (MINIMUM_GRAPH + 2) else 0
    gauge = MINIMUM_GAUGE + max(0, free) - graph
    if graph and gauge > MAXIMUM_GAUGE:
        graph = graph + gauge - MAXIMUM_GAUGE
        gauge = MAXIMUM_GAUGE
    return LineColumns(share=share, gauge=gauge + min(0, free), graph=graph, **chosen)


def _rank_cells(free: int, widths: SharedWidths) -> int:
    """Return the cells of reporting ranks: with their coordinates where the other columns fit as well."""
    is_roomy = free >= widths.rank + 2 + WHOLE_ROW_CELLS
    return 2 + (widths.rank if is_roomy else widths.short_rank)


def draw_line(
    view: DeviceView,
    widths: SharedWidths,
    columns: LineColumns,
    graph: Line,
    *,
    glyphs: Glyphs,
    indent: int = 0,
    has_header: bool = False,
) -> Line:
    """Return the row of one device; a note on old values replaces what it makes doubtful.

    Args:
        graph: History of `columns.graph - 2` cells.
        has_header: Whether the row of `draw_header` says which figure is the utilisation.
    """
    line = _identity(view, widths, columns, glyphs, indent)
    cells = columns.gauge - indent
    line += fields.gauge(view, cells, lower(glyphs))
    role = fields.figure_role(view, view.risk_role if view.is_in_danger else "strong")
    line += [fields.level_mark(view, glyphs), Span(_share(view, columns, glyphs), role)]
    if columns.figures:
        line += _figures(view, widths, glyphs)
    note = fields.state_note(view)
    if note:
        return [*line, Span("  "), *note]
    line += _state_columns(view, widths, columns, glyphs, has_header=has_header)
    return [*line, Span("  "), *graph] if columns.graph else line


def draw_header(widths: SharedWidths, columns: LineColumns, axis: Line, glyphs: Glyphs) -> Line:
    """Return the titles over the columns of `draw_line`; over the history its time axis."""
    device = f" {'GPU'.ljust(widths.label)} "
    # A label of one cell is narrower than its title, which takes room from the next.
    excess = len(device) - 2 - widths.label
    name = f"{fit_text('MODEL', columns.name - 1 - excess, '')} " if columns.name else ""
    gauge = fit_text("MEMORY", columns.gauge - (0 if name else excess), "")
    titles = [f"{device}{name}{gauge} {right_text('USED', columns.share, '')}"]
    titles += [right_text("GiB", columns.figures, "")] if columns.figures else []
    titles += [fit_text("  RISK" if columns.word else "", 3 + columns.word, "")]
    for title, cells in (
        ("UTIL", columns.utilization),
        ("TEMP", columns.temperature),
        ("POWER", columns.power),
    ):
        titles += [right_text(title, cells, "")] if cells else []
    titles += [fit_text("  RANK", columns.rank, "")] if columns.rank else []
    titles += [fit_text("  ERROR", columns.error, "")] if columns.error else []
    return [Span("".join(titles), "muted"), *([Span("  "), *axis] if columns.graph else [])]


def _identity(
    view: DeviceView, widths: SharedWidths, columns: LineColumns, glyphs: Glyphs, indent: int
) -> Line:
    """Return the selection, the label, and the name where it has a column."""
    line: Line = [
        *fields.edge(view, glyphs, indent),
        Span(view.label.rjust(widths.label), "strong" if view.is_selected else "muted"),
        Span(" "),
    ]
    return [*line, *fields.name(view, columns.name - 1, glyphs), Span(" ")] if columns.name else line


def _share(view: DeviceView, columns: LineColumns, glyphs: Glyphs) -> str:
    """Return the percentage, or the GiB where the capacity is not known."""
    if view.is_capacity_known or view.device.memory.used_bytes is None:
        return percent_text(view.used_percent, glyphs).rjust(columns.share)
    return f"{gib_text(view.device.memory.used_bytes, glyphs)}G".rjust(columns.share)


def _figures(view: DeviceView, widths: SharedWidths, glyphs: Glyphs) -> Line:
    memory = view.device.memory
    return [
        Span("  " + gib_text(memory.used_bytes, glyphs).rjust(widths.figures), fields.figure_role(view)),
        Span("/", "faint"),
        Span(gib_text(memory.total_bytes, glyphs).rjust(widths.figures), "muted"),
    ]


def _state_columns(
    view: DeviceView, widths: SharedWidths, columns: LineColumns, glyphs: Glyphs, *, has_header: bool
) -> Line:
    device = view.device
    if device.details_age_s is not None:  # a line has no room to say how old they are
        device = replace(device, utilization_percent=None, temperature_c=None, power_w=None)
    mark = fields.risk_mark(view, glyphs)
    line: Line = [Span(f"  {mark.text}", mark.role)]
    if columns.word:
        line.append(Span(" " + fit_text(fields.risk_word(view), columns.word - 1, ""), view.risk_role))
    if columns.utilization and view.time_left_s is not None and not columns.word:
        # In little room the time that is left replaces a value that matters less.
        line.append(Span(" " + fields.risk_word(view).ljust(columns.utilization - 1), view.risk_role))
    elif columns.utilization:
        share = Span(percent_text(device.utilization_percent, glyphs))
        line += [Span("  "), share] if has_header else [Span(" "), share, Span("u", "muted")]
    if columns.temperature:
        line.append(Span("  " + celsius_text(device.temperature_c, glyphs)))
    if columns.power:
        line.append(Span("  " + watts_text(device.power_w, glyphs)))
    if columns.rank:
        is_long = not view.ranks or columns.rank - 2 >= widths.rank
        line.append(Span("  " + rank_text(view, is_long=is_long).ljust(columns.rank - 2), rank_role(view)))
    if columns.error and view.comparison is not None:
        line += [Span("  "), *comparison_column(view.comparison)]
    return line


# From this width on there is a graph.
ROOM_FOR_HISTORY = 72
MAXIMUM_ROWS = 4
# Cells of a gauge that shares its row with facts, and of those facts.
LEAST_GAUGE = 16
LEAST_FACT_CELLS = 18
# Most cells of facts with a step, and with a leak.
STEP_CELLS = 22
LEAK_CELLS = 62
# Cells that a leak takes from the graph next to it, and cells that the graph keeps.
LEAK_EXTRA = 24
LEAST_GRAPH = 24
# Below so many cells a leak is shown without its beginning and its size.
BRIEF_BELOW = 46
# Cells of the glyph and the word of a risk.
RISK_WIDTH = 10


def facts_width(width: int, rows: int, widths: SharedWidths) -> int:
    """Return the cells of the facts in a panel; more where training processes report, or leak."""
    if width < ROOM_FOR_HISTORY:
        return width
    most = (108 if widths.has_ranks else 84) if rows > 2 else 76 + (LEAK_EXTRA if widths.has_leak else 0)
    share = width * (14 if widths.has_ranks else 11) // 25
    if rows == 2 and widths.has_leak:
        share = min(share + LEAK_EXTRA, width - LEAST_GRAPH)
    return min(most, max(min(64, width - 16), share))


def compact_shape(width: int, rows: int, widths: SharedWidths) -> tuple[int, int]:
    """Return the cells and rows of the graph in a panel of this size."""
    return max(0, width - facts_width(width, rows, widths) - 3), rows


def draw_surround(
    view: DeviceView, widths: SharedWidths, width: int, rows: int, *, glyphs: Glyphs
) -> list[Line]:
    """Return the lines of a device in a panel but its second, which shows memory: see `draw_memory`.

    Nothing of them depends on how much memory is used, so that they seldom change: `without_memory`.
    """
    room = facts_width(width, rows, widths)
    first = _compact_identity(view, widths, room, rows, glyphs)
    has_hardware_above = False
    if rows > 2 and view.is_fresh:
        # What else is known of the hardware takes the room that the name and the risk leave.
        hardware, more = fields.join_facts(fields.hardware_facts(view), room - line_width(first) - 3)
        has_hardware_above = bool(hardware) and not more
        if has_hardware_above:
            free = room - line_width(first) - line_width(hardware)
            first = [*first, Span(" " * free), *hardware]
    details = _details(view, widths, room, rows - 2, glyphs, has_hardware=not has_hardware_above)
    return [fit_line(line, room, is_ascii=glyphs.name == "ascii") for line in (first, *details)]


def without_memory(view: DeviceView) -> DeviceView:
    """Return a view without how much memory is used, but with whether that is known."""
    return dataclasses.replace(view, device=_without_memory(view.device))


def _without_memory(device: DeviceSample) -> DeviceSample:
    used_bytes = None if device.memory.used_bytes is None else 0
    return replace(device, memory=MemoryReading(total_bytes=device.memory.total_bytes, used_bytes=used_bytes))


_read_others = attrgetter(*(it.name for it in dataclasses.fields(DeviceView) if it.name != "device"))


def read_all_but_memory(view: DeviceView) -> tuple[object, ...]:
    """Return all that a view `without_memory` consists of, which is quicker than to make one."""
    return _without_memory(view.device), _read_others(view)


def draw_memory(view: DeviceView, widths: SharedWidths, width: int, rows: int, *, glyphs: Glyphs) -> Line:
    """Return the second line of a device in a panel."""
    room = facts_width(width, rows, widths)
    draw = _memory_and_facts if rows == 2 else _memory
    return fit_line(draw(view, widths, room, glyphs), room, is_ascii=glyphs.name == "ascii")


def _compact_identity(view: DeviceView, widths: SharedWidths, room: int, rows: int, glyphs: Glyphs) -> Line:
    """Return name and state of the device; in two rows with its metrics."""
    is_tight = rows == 2
    start: Line = [*fields.edge(view, glyphs), *fields.label(view, widths), Span(" ")]
    metrics = fields.metrics(view, widths, glyphs) if is_tight and view.is_fresh else []
    taken = line_width(metrics) + 1 if metrics else 0
    if room - taken < line_width(start) + widths.short_rank + 4 + RISK_WIDTH:
        metrics = []
        taken = 0  # the risk says more
    special = fields.kind_and_rank(view, widths, is_long=room - taken >= 60)
    free = room - taken - line_width(start) - line_width(special) - 2
    name_width = min(widths.name, max(0, free - RISK_WIDTH))
    named = fields.name(view, name_width, glyphs) if name_width > 4 else []
    left = [*start, *named, *special, Span("  ")]
    left += fields.risk_or_state(view, glyphs, is_long=not is_tight, room=room - taken - line_width(left))
    if is_tight and view.comparison is not None:
        comparison = comparison_fact(view.comparison, room - taken - line_width(left) - len(fields.GAP.text))
        left += [fields.GAP, *comparison] if comparison else []
    return [*fit_line(left, room - taken), Span(" "), *metrics] if metrics else left


def _memory(view: DeviceView, widths: SharedWidths, room: int, glyphs: Glyphs) -> Line:
    gauge = fields.gauge(view, room - 4 - fields.memory_figures_width(widths), glyphs)
    figures = fields.memory_figures(view, widths, glyphs)
    mark = fields.level_mark(view, glyphs)
    return [*fields.edge(view, glyphs), Span(" "), *gauge, mark, Span(" "), *figures]


def _memory_and_facts(view: DeviceView, widths: SharedWidths, room: int, glyphs: Glyphs) -> Line:
    """Return a shorter gauge with its numbers, and the facts that fit next to it, where ranks report some."""
    most = LEAK_CELLS if widths.has_leak else STEP_CELLS
    cells = min(most, room - LEAST_GAUGE - 7 - fields.memory_figures_width(widths))
    if not widths.has_ranks or cells < LEAST_FACT_CELLS:
        return _memory(view, widths, room, glyphs)
    found, _ = fields.join_facts(fields.facts(view, widths, glyphs, is_brief=cells < BRIEF_BELOW), cells)
    left = fit_line(_memory(view, widths, room - cells - 3, glyphs), room - cells - 3)
    return [*left, Span("   "), *found]


def _details(
    view: DeviceView, widths: SharedWidths, room: int, rows: int, glyphs: Glyphs, *, has_hardware: bool
) -> list[Line]:
    """Return the metrics and as many facts as fit into `rows` lines."""
    found = fields.facts(view, widths, glyphs, has_hardware=has_hardware)
    metrics = fields.metrics(view, widths, glyphs)
    if metrics:
        found.insert(0, metrics)
    lines: list[Line] = []
    for _ in range(rows):
        line, found = fields.join_facts(found, room - 2)
        lines.append([*fields.edge(view, glyphs), Span(" "), *line])
    return lines


# From this height on a panel has a time axis of its own.
OWN_AXIS_ROWS = 9


def large_shape(width: int, rows: int, widths: SharedWidths) -> tuple[int, int]:
    """Return the cells and rows of the graphs in a panel of this size."""
    axis = 1 if rows >= OWN_AXIS_ROWS else 0
    return max(0, width - 3 - scale_width(widths)), max(0, rows - 3 - axis)


def draw_large(
    view: DeviceView,
    widths: SharedWidths,
    graph: list[Line],
    width: int,
    rows: int,
    *,
    axis: Line,
    glyphs: Glyphs,
) -> list[Line]:
    """Return the lines of one device: facts, graphs with their scale (`add_scale`), and their time axis.

    The graphs have the rows of `large_shape`.
    """
    lines = [identity_line(view, widths, width, glyphs), memory_line(view, widths, width, glyphs)]
    found, _ = fields.join_facts(fields.facts(view, widths, glyphs), width - 2)
    lines.append([*fields.edge(view, glyphs), Span(" "), *found])
    lines += [[*fields.edge(view, glyphs), Span(" "), *row] for row in graph]
    if rows >= OWN_AXIS_ROWS:
        lines.append([*fields.edge(view, glyphs), Span(" "), *axis])
    return lines[:rows]


def identity_line(view: DeviceView, widths: SharedWidths, width: int, glyphs: Glyphs) -> Line:
    """Return name and state of the device, with its metrics at the right end."""
    metrics = fields.metrics(view, widths, glyphs)
    left: Line = [*fields.edge(view, glyphs), *fields.label(view, widths), Span(" ")]
    left += fields.name(view, widths.name, glyphs) if widths.name else []
    left += [*fields.kind_and_rank(view, widths), Span("   ")]
    room = width - line_width(metrics) - 3
    left += fields.risk_or_state(view, glyphs, is_long=True, room=room - line_width(left))
    if not metrics or room < line_width(left[:-1]):
        return left
    return [*fit_line(left, room), Span("  "), *metrics, Span(" ")]


def memory_line(view: DeviceView, widths: SharedWidths, width: int, glyphs: Glyphs) -> Line:
    figures = fields.memory_figures(view, widths, glyphs)
    gauge = fields.gauge(view, width - 5 - fields.memory_figures_width(widths), glyphs)
    mark = fields.level_mark(view, glyphs)
    return [*fields.edge(view, glyphs), Span(" "), *gauge, mark, Span(" "), *figures]


def scale_width(widths: SharedWidths) -> int:
    return widths.figures + 5


def add_scale(
    graph: Sequence[Line], view: DeviceView, glyphs: Glyphs, *, is_utilization: bool = False
) -> list[Line]:
    """Return the rows of a graph with its scale at the right: at its top, middle and bottom."""
    return [
        [*row, Span(_name_level(view, number, len(graph), glyphs, is_utilization=is_utilization), "faint")]
        for number, row in enumerate(graph)
    ]


def _name_level(view: DeviceView, number: int, rows: int, glyphs: Glyphs, *, is_utilization: bool) -> str:
    if not is_utilization and not view.scale_bytes:
        return ""  # nothing is drawn
    if number == 0:
        return " 100 %" if is_utilization else f" {gib_text(view.scale_bytes, glyphs)} GiB"
    if number == rows - 1:
        # Where the axis does not name the graph, its scale does.
        return " 0 util" if is_utilization else " 0"
    if rows >= 7 and number == rows // 2 and rows % 2:
        return " 50" if is_utilization else f" {gib_text((view.scale_bytes or 0) / 2, glyphs)}"
    return ""
