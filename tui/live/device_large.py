"""A device at its largest: facts above, and below them its history over the whole width."""

from ..draw.glyphs import Glyphs
from ..draw.numbers import gib_text, span_text
from ..draw.spans import Line, Span, fit_line, line_width
from ..widgets import device_fields as fields
from ..widgets.device_view import DeviceView, SharedWidths

AXIS_ROWS = 9
"""From this height on there is a time axis."""


def large_shape(width: int, rows: int, widths: SharedWidths) -> tuple[int, int]:
    """Return the cells and rows of the graph in a panel of this size."""
    axis = 1 if rows >= AXIS_ROWS else 0
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
    """Return the lines of one device.

    Args:
        view: The device.
        widths: Columns that all devices share.
        graph: History in the shape that `large_shape` names.
        width: Cells across.
        rows: Lines to fill.
        axis: Time below the graph, as `time_axis` draws it.
        glyphs: Characters to draw with.
    """
    lines = [identity_line(view, widths, width, glyphs), memory_line(view, widths, width, glyphs)]
    found, _ = fields.join_facts(fields.facts(view, widths, glyphs), width - 2)
    lines.append([*fields.edge(view, glyphs), Span(" "), *found])
    _, graph_rows = large_shape(width, rows, widths)
    for number, row in enumerate(graph):
        scale = scale_label(view, number, graph_rows, glyphs)
        lines.append([*fields.edge(view, glyphs), Span(" "), *row, Span(scale, "faint")])
    if rows >= AXIS_ROWS:
        lines.append([*fields.edge(view, glyphs), Span(" "), *axis])
    return lines[:rows]


def identity_line(view: DeviceView, widths: SharedWidths, width: int, glyphs: Glyphs) -> Line:
    """Return who the device is and how it is, with its metrics at the right end."""
    metrics = fields.metrics(view, widths, glyphs)
    left: Line = [*fields.edge(view, glyphs), *fields.label(view, widths), Span(" ")]
    left += fields.name(view, widths.name, glyphs) if widths.name else []
    left += [*fields.kind_and_rank(view, widths), Span("   ")]
    left += fields.risk_or_state(view, glyphs, is_long=True)
    room = width - line_width(metrics) - 3
    if not metrics or room < line_width(left[:-1]):
        return left
    return [*fit_line(left, room, ellipsis=glyphs.ellipsis), Span("  "), *metrics, Span(" ")]


def memory_line(view: DeviceView, widths: SharedWidths, width: int, glyphs: Glyphs) -> Line:
    """Return the gauge and its figures."""
    figures = fields.memory_figures(view, widths, glyphs)
    gauge = fields.gauge(view, width - 5 - fields.memory_figures_width(widths), glyphs)
    return [*fields.edge(view, glyphs), Span(" "), *gauge, Span("  "), *figures]


def scale_width(widths: SharedWidths) -> int:
    """Return the cells that the scale takes at the right of a graph."""
    return widths.figures + 5


def scale_label(view: DeviceView, number: int, rows: int, glyphs: Glyphs) -> str:
    """Return what stands at the right of a row of the graph: the scale at its top, middle and bottom."""
    if number == 0:
        return f" {gib_text(view.scale_bytes, glyphs)} GiB" if view.scale_bytes else ""
    if number == rows - 1:
        return " 0"
    if rows >= 7 and number == rows // 2 and rows % 2 and view.scale_bytes:
        return f" {gib_text(view.scale_bytes / 2, glyphs)}"
    return ""


def time_axis(cells: int, window_s: float, glyphs: Glyphs, moment: str | None = None) -> Line:
    """Return a rule that says how long ago its left end was.

    Args:
        cells: Its width.
        window_s: Seconds from its left end to its right one.
        glyphs: Characters to draw with.
        moment: The moment at its right end; None where that is now.
    """
    left = f"{span_text(window_s)} {'ago' if moment is None else 'before'} "
    right = f" {moment or 'now'}"
    rule = glyphs.rule * max(0, cells - len(left) - len(right))
    return [Span(left, "muted"), Span(rule, "faint"), Span(right, "muted")]
