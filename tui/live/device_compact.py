"""A device in two to four rows: facts on the left, its history beside them where there is room."""

from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Span, fit_line, line_width
from ..widgets import device_fields as fields
from ..widgets.comparison_words import comparison_fact
from ..widgets.device_view import DeviceView, SharedWidths

ROOM_FOR_HISTORY = 72
"""From this width on there is a graph."""
MAXIMUM_ROWS = 4
LEAST_GAUGE = 16
LEAST_FACT_CELLS = 18
"""Cells of a gauge that shares its row with facts, and of those facts."""
STEP_CELLS = 22
LEAK_CELLS = 62
"""Most cells of facts where there is a step to tell of, and where there is a leak."""
LEAK_EXTRA = 24
LEAST_GRAPH = 24
"""Cells that a leak takes of the graph beside it, and cells that the graph keeps."""
BRIEF_BELOW = 46
"""Cells in which a leak cannot be told with its beginning and its size."""
RISK_WIDTH = 10
"""Cells of the glyph and the word of a risk."""


def facts_width(width: int, rows: int, widths: SharedWidths) -> int:
    """Return the cells that the facts take of a panel; more where training processes tell some, or leak."""
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


def draw_compact(
    view: DeviceView,
    widths: SharedWidths,
    graph: list[Line],
    width: int,
    rows: int,
    *,
    glyphs: Glyphs,
) -> list[Line]:
    """Return the lines of one device.

    Args:
        view: The device.
        widths: Columns that all devices share.
        graph: History in the shape that `compact_shape` names.
        width: Cells across.
        rows: Lines to fill.
        glyphs: Characters to draw with.
    """
    room = facts_width(width, rows, widths)
    second = _memory_and_facts if rows == 2 else _memory
    left = [_compact_identity(view, widths, room, rows, glyphs), second(view, widths, room, glyphs)]
    left += _details(view, widths, room, rows - 2, glyphs)
    if not graph:
        return left[:rows]
    return [
        [*fit_line(line, room, ellipsis=glyphs.ellipsis), Span("  "), *row]
        for line, row in zip(left[:rows], graph, strict=False)
    ]


def _compact_identity(view: DeviceView, widths: SharedWidths, room: int, rows: int, glyphs: Glyphs) -> Line:
    """Return who the device is and how it is; in two rows its metrics stand here too."""
    is_tight = rows == 2
    start: Line = [*fields.edge(view, glyphs), *fields.label(view, widths), Span(" ")]
    metrics = fields.metrics(view, widths, glyphs) if is_tight and view.is_fresh else []
    taken = line_width(metrics) + 1 if metrics else 0
    if room - taken < line_width(start) + widths.short_rank + 4 + RISK_WIDTH:
        metrics, taken = [], 0  # the risk tells more
    note = fields.risk_or_state(view, glyphs, is_long=not is_tight)
    special = fields.kind_and_rank(view, widths, is_long=room - taken >= 60)
    free = room - taken - line_width(start) - line_width(special) - 2
    name_width = min(widths.name, max(0, free - RISK_WIDTH))
    named = fields.name(view, name_width, glyphs) if name_width > 4 else []
    left = [*start, *named, *special, Span("  "), *note]
    if is_tight and view.comparison is not None:
        told = comparison_fact(view.comparison, room - taken - line_width(left) - len(fields.GAP.text))
        left += [fields.GAP, *told] if told else []
    return [*fit_line(left, room - taken, ellipsis=glyphs.ellipsis), Span(" "), *metrics] if metrics else left


def _memory(view: DeviceView, widths: SharedWidths, room: int, glyphs: Glyphs) -> Line:
    """Return the gauge and its figures."""
    gauge = fields.gauge(view, room - 4 - fields.memory_figures_width(widths), glyphs)
    figures = fields.memory_figures(view, widths, glyphs)
    return [*fields.edge(view, glyphs), Span(" "), *gauge, Span("  "), *figures]


def _memory_and_facts(view: DeviceView, widths: SharedWidths, room: int, glyphs: Glyphs) -> Line:
    """Return a shorter gauge and its figures, and beside them the facts that fit, where ranks tell some."""
    most = LEAK_CELLS if widths.has_leak else STEP_CELLS
    cells = min(most, room - LEAST_GAUGE - 7 - fields.memory_figures_width(widths))
    if not widths.has_ranks or cells < LEAST_FACT_CELLS:
        return _memory(view, widths, room, glyphs)
    found, _ = fields.join_facts(fields.facts(view, widths, glyphs, is_brief=cells < BRIEF_BELOW), cells)
    left = fit_line(_memory(view, widths, room - cells - 3, glyphs), room - cells - 3, ellipsis="")
    return [*left, Span("   "), *found]


def _details(view: DeviceView, widths: SharedWidths, room: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """Return the metrics and as many facts as fit into `rows` lines."""
    found = fields.facts(view, widths, glyphs)
    metrics = fields.metrics(view, widths, glyphs)
    if metrics:
        found.insert(0, metrics)
    lines: list[Line] = []
    for _ in range(rows):
        line, found = fields.join_facts(found, room - 2)
        lines.append([*fields.edge(view, glyphs), Span(" "), *line])
    return lines
