"""A device in a single row: as many columns as fit, the most telling ones first."""

from dataclasses import dataclass

from msgspec.structs import replace

from ..draw.glyphs import Glyphs
from ..draw.numbers import (
    CELSIUS_WIDTH,
    PERCENT_WIDTH,
    WATTS_WIDTH,
    brief_span_text,
    celsius_text,
    gib_text,
    percent_text,
    watts_text,
)
from ..draw.spans import Line, Role, Span, fit_text
from ..widgets import device_fields as fields
from ..widgets.comparison_words import ERROR_CELLS, comparison_column
from ..widgets.device_view import DeviceView, SharedWidths, rank_role, rank_text

MINIMUM_GAUGE = 8
MAXIMUM_GAUGE = 40
MINIMUM_GRAPH = 16
WHOLE_ROW_CELLS = 44
"""Cells that utilisation, figures, the word of the risk, temperature and power take together."""
MINIMUM_WIDTH = 26
"""Cells in which label, gauge, percentage and risk can be read."""


@dataclass(frozen=True, slots=True)
class LineColumns:
    """Cells of each column of one row; 0 where there is no room for it."""

    share: int
    gauge: int
    figures: int = 0
    word: int = 0
    utilization: int = 0
    temperature: int = 0
    power: int = 0
    name: int = 0
    rank: int = 0
    error: int = 0
    """Of the simulation beside the run."""
    graph: int = 0


def choose_columns(width: int, widths: SharedWidths) -> LineColumns:
    """Return the columns of a row of `width` cells.

    Args:
        width: Cells across.
        widths: Columns that all devices share.
    """
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
    """Return the cells of ranks that report: their places too where the other columns fit beside them."""
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
) -> Line:
    """Return the row of one device; a note on old figures takes the place of what it makes doubtful.

    Args:
        view: The device.
        widths: Columns that all devices share.
        columns: What `choose_columns` chose.
        graph: History of `columns.graph - 2` cells.
        glyphs: Characters to draw with.
        indent: Cells by which a MIG instance stands in.
    """
    line = _identity(view, widths, columns, glyphs, indent)
    cells = columns.gauge - indent
    line += fields.gauge(view, cells, glyphs)
    line += [Span(" "), Span(_share(view, columns, glyphs), _share_role(view))]
    if columns.figures:
        line += _figures(view, widths, glyphs)
    note = fields.state_note(view)
    if note:
        return [*line, Span("  "), *note]
    line += _state_columns(view, widths, columns, glyphs)
    return [*line, Span("  "), *graph] if columns.graph else line


def _identity(
    view: DeviceView, widths: SharedWidths, columns: LineColumns, glyphs: Glyphs, indent: int
) -> Line:
    """Return the selection, the label, and the name where there is a column for it."""
    line: Line = [
        *fields.edge(view, glyphs, indent),
        Span(view.label.rjust(widths.label), "strong" if view.is_selected else "muted"),
        Span(" "),
    ]
    return [*line, *fields.name(view, columns.name - 1, glyphs), Span(" ")] if columns.name else line


def _share_role(view: DeviceView) -> Role:
    return fields.figure_role(view, view.risk_role if view.is_in_danger else "strong")


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


def _word(view: DeviceView) -> str:
    """Return the time that is left, or else the word of the risk."""
    return view.risk.level if view.time_left_s is None else brief_span_text(view.time_left_s)


def _state_columns(view: DeviceView, widths: SharedWidths, columns: LineColumns, glyphs: Glyphs) -> Line:
    """Return risk, metrics and rank, each in its column."""
    device = view.device
    if device.details_age_s is not None:  # a line has no room to say how old they are
        device = replace(device, utilization_percent=None, temperature_c=None, power_w=None)
    line: Line = [Span(f"  {glyphs.risk(view.risk.level)}", view.risk_role)]
    if columns.word:
        line.append(Span(" " + fit_text(_word(view), columns.word - 1, ""), view.risk_role))
    if columns.utilization and view.time_left_s is not None and not columns.word:
        # In little room the time that is left takes the place of a figure that matters less.
        line.append(Span(" " + _word(view).ljust(columns.utilization - 1), view.risk_role))
    elif columns.utilization:
        line += [Span(" "), Span(percent_text(device.utilization_percent, glyphs)), Span("u", "muted")]
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
