"""The big history of one device: layers on one scale from 0 to the total, with time and steps below."""

from collections.abc import Sequence
from itertools import pairwise
from math import floor

from ...engine.history import History
from ..draw.glyphs import Glyphs
from ..draw.layered_graph import Layers, draw_layers
from ..draw.spans import Line, Span
from ..widgets.device_view import DeviceView, SharedWidths
from .device_graphs import DeviceGraphs, TimeSpan
from .device_large import scale_label, scale_width, time_axis

LEAST_MARK_CELLS = 12
"""Cells from one mark of a step to the next: its number must stand between them."""
AXIS_ROWS = 2
"""Rows below the graph: time, and the numbers of steps."""


class DeviceHistory:
    """Draws the history of the device that the screen shows."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._graphs = DeviceGraphs(glyphs)

    def draw(
        self,
        history: History,
        view: DeviceView,
        widths: SharedWidths,
        span: TimeSpan,
        size: tuple[int, int],
    ) -> list[Line]:
        """Return the graph with its axes: as many lines as `size` has rows.

        Args:
            history: What was seen.
            view: The device.
            widths: Widths of its figures.
            span: The time to show.
            size: Cells and rows, with the scale at the right and the axes below.
        """
        cells = max(0, size[0] - 3 - scale_width(widths))
        rows = max(0, size[1] - AXIS_ROWS)
        bucket_s = _bucket_length(span, cells)
        end_s = (floor(span.now_s / bucket_s) + 0.5) * bucket_s
        if view.device.allocator is None:
            graph = self._graphs.draw(history, view, (cells, rows), span)
        else:
            buckets = _read_layers(history, view.device.uuid, end_s, bucket_s, cells, span.interval_s)
            graph = draw_layers(buckets, float(view.scale_bytes or 0), rows, self._glyphs, view.fill_role)
        lines = [
            [Span("  "), *row, Span(scale_label(view, number, rows, self._glyphs), "faint")]
            for number, row in enumerate(graph)
        ]
        steps = history.columns(view.device.uuid, "step", end_s, bucket_s, cells).last if cells else []
        marks = place_marks(steps, self._glyphs)
        axis = time_axis(cells, cells * bucket_s, self._glyphs, span.moment)
        below = [[Span("  "), *_put_ticks(axis, marks, self._glyphs)], [Span("  "), *_write_marks(marks)]]
        return [*lines, *below][: max(0, size[1])]


def _bucket_length(span: TimeSpan, cells: int) -> float:
    """Return the seconds of a cell: a whole number of ticks, so that none is missed."""
    interval_s = max(span.interval_s, 1e-3)
    return max(1, round(span.window_s / max(1, cells) / interval_s)) * interval_s


def _read_layers(
    history: History, uuid: str, end_s: float, bucket_s: float, count: int, interval_s: float
) -> list[Layers]:
    """Return the layers of every bucket; a tick that came late leaves no hole."""
    used = history.columns(uuid, "used", end_s, bucket_s, count)
    allocated = history.columns(uuid, "allocated", end_s, bucket_s, count)
    reserved = history.columns(uuid, "reserved", end_s, bucket_s, count)
    found = [
        Layers(*values)
        for values in zip(
            allocated.minimum, allocated.maximum, reserved.last, used.minimum, used.maximum, strict=True
        )
    ]
    if bucket_s < 2 * interval_s:
        for index in range(1, len(found) - 1):
            if found[index].used_max is None and found[index + 1].used_max is not None:
                found[index] = found[index - 1]
    return found


def place_marks(steps: Sequence[float | None], glyphs: Glyphs) -> list[tuple[int, str]]:
    """Return the cells at which round numbers of steps were reached, and those numbers.

    Args:
        steps: Newest step of every cell, oldest first; None where there was none.
        glyphs: Characters to draw with.
    """
    known = [(cell, int(step)) for cell, step in enumerate(steps) if step is not None]
    if len(known) < 2 or known[-1][1] <= known[0][1]:
        return []
    pitch = _choose_pitch((known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0]))
    marks: list[tuple[int, str]] = []
    for (_, before), (cell, step) in pairwise(known):
        reached = step // pitch * pitch
        if reached > before and (not marks or cell - marks[-1][0] >= LEAST_MARK_CELLS // 2):
            marks.append((cell, f"{reached:,}"))
    return marks


def _choose_pitch(steps_a_cell: float) -> int:
    """Return a round number of steps that are far enough from each other to be named."""
    pitch = 1
    while pitch < steps_a_cell * LEAST_MARK_CELLS:
        pitch = pitch * 5 // 2 if str(pitch)[0] == "2" else pitch * 2
    return pitch


def _put_ticks(axis: Line, marks: Sequence[tuple[int, str]], glyphs: Glyphs) -> Line:
    """Return the time axis with a tick at every mark that does not fall on its words."""
    line: Line = []
    start = 0
    cells = {cell for cell, _ in marks}
    for span in axis:
        text = span.text
        if text[:1] == glyphs.rule:
            text = "".join(
                glyphs.tick if start + index in cells else character for index, character in enumerate(text)
            )
        line.append(Span(text, span.role))
        start += len(span.text)
    return line


def _write_marks(marks: Sequence[tuple[int, str]]) -> Line:
    """Return the numbers of the steps, each from its cell on."""
    text = ""
    for number, (cell, name) in enumerate(marks):
        if cell >= len(text) + (1 if text else 0):
            text = text.ljust(cell) + (f"step {name}" if number == 0 else name)
    return [Span(text, "muted")]
