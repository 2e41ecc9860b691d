"""Graphs of devices: history cut into columns that keep their place until a whole cell is full."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor
from typing import NamedTuple

from ...engine.history import History
from ..draw.glyphs import Glyphs
from ..draw.graphs import Layers, Levels, dots_of, draw_history, draw_layers, history_levels
from ..draw.spans import Line, Span
from ..widgets.device_view import DeviceView, SharedWidths, is_told_by_allocator, read_levels
from .device_lines import scale_label, scale_width, time_axis

# Buckets that may still change: those of the last two cells.
TAIL = 4
# Shortest time from one shift to the next: everything is redrawn then. Cells up to the next one are empty.
SHIFT_S = 6.0


@dataclass(slots=True)
class _Graph:
    """The last drawing of a device's graph."""

    key: tuple[object, ...]
    # Everything but the last two cells.
    body: list[Line]
    tail: list[Levels]
    lines: list[Line]


def bucket_length(window_s: float, cells: int, interval_s: float) -> float:
    """Return the seconds of a bucket: a whole number of ticks, so that no bucket misses one."""
    interval_s = max(interval_s, 1e-3)
    return max(1, round(window_s / (2 * cells) / interval_s)) * interval_s


@dataclass(frozen=True, slots=True)
class TimeSpan:
    # Time at the right end.
    now_s: float
    # Seconds from the left end to the right one.
    window_s: float
    # Length of a tick.
    interval_s: float
    # Whether ticks are live, not recorded.
    is_live: bool = False
    # The time at the right end in words; None for now.
    moment: str | None = None


# Windows through which a graph grows with what there is to show.
WINDOWS_S = (
    5.0,
    10.0,
    20.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    1800.0,
    3600.0,
    7200.0,
    21600.0,
    43200.0,
    86400.0,
)


# The same for live ticks: fewer, since every change redraws everything.
LIVE_WINDOWS_S = (60.0, 240.0, 900.0, 3600.0, 21600.0, 86400.0)
# How much of a shorter window must be free before it replaces the one shown.
SLACK = 2.0


def choose_window(seen_s: float, most_s: float, *, is_live: bool, shown_s: float = 0.0) -> float:
    """Return the window for so many seconds of history: it grows in steps, up to the longest.

    Args:
        seen_s: Seconds from the oldest to the newest tick.
        most_s: Longest window.
        is_live: Whether ticks are live, not recorded.
        shown_s: The window shown so far, which does not shrink for a little.
    """
    windows = LIVE_WINDOWS_S if is_live else WINDOWS_S
    fitting = (w for w in windows if w >= seen_s * (SLACK if w < min(shown_s, most_s) else 1.0))
    return min(most_s, next(fitting, most_s))


class DeviceGraphs:
    """Draws history and caches its drawings; only a new bucket or a new value costs work."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._graphs: dict[str, _Graph] = {}

    def draw(self, history: History, view: DeviceView, shape: tuple[int, int], span: TimeSpan) -> list[Line]:
        """Return the graph of one device in exactly its shape (cells, rows)."""
        cells, rows = shape
        if cells <= 0 or rows <= 0:
            return []
        bucket_s = bucket_length(span.window_s, cells, span.interval_s)
        step = max(1, round(SHIFT_S / (2 * bucket_s))) if span.is_live else 1
        end = floor(span.now_s / (2 * bucket_s) / step) * step + step - 1
        tail_count = TAIL + 2 * (step - 1)
        key = (history, history.generation, shape, bucket_s, end, view.scale_bytes, view.fill_role)
        graph = self._graphs.get(view.device.uuid)
        known = graph if graph is not None and graph.key == key else None
        count = min(tail_count + 2, 2 * cells) if known else 2 * cells
        grid = _Grid((2 * end + 1.5) * bucket_s, bucket_s, count, rows)
        levels = self._levels(history, view, grid, span.interval_s)
        tail = levels[-tail_count:]
        if known is not None and known.tail == tail:
            return known.lines
        body = known.body if known else draw_history(levels[:-tail_count], rows, self._glyphs, view.fill_role)
        ends = draw_history(tail, rows, self._glyphs, view.fill_role)
        lines = [[*head, *last] for head, last in zip(body, ends, strict=True)]
        self._graphs[view.device.uuid] = _Graph(key, body, tail, lines)
        return lines

    def keep(self, uuids: set[str]) -> None:
        """Drop the graphs of devices that are no longer drawn."""
        for uuid in self._graphs.keys() - uuids:
            del self._graphs[uuid]

    def _levels(self, history: History, view: DeviceView, grid: "_Grid", interval_s: float) -> list[Levels]:
        """Return the newest buckets in dots; a tick that came late leaves no hole."""
        low, high = read_levels(
            history,
            view.device.uuid,
            grid.end_s,
            grid.bucket_s,
            grid.bucket_count,
            has_allocator=is_told_by_allocator(view.device, view.ranks),
        )
        dots = dots_of(grid.rows, self._glyphs)
        levels = history_levels(low, high, float(view.scale_bytes or 0), dots)
        if grid.bucket_s < 2 * interval_s:
            for index in range(1, len(levels) - 1):
                if not levels[index][1] and levels[index - 1][1] and levels[index + 1][1]:
                    levels[index] = levels[index - 1]
        return levels


class _Grid(NamedTuple):
    end_s: float
    bucket_s: float
    bucket_count: int
    rows: int


# Cells from one mark of a step to the next: its number must have room between them.
LEAST_MARK_CELLS = 12
# Rows below the graph: time, and the numbers of steps.
AXIS_ROWS = 2


class DeviceHistory:
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
        """Return the graph with the scale at its right and the axes below, in `size` (cells, rows)."""
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

    `steps` has the newest step of every cell, oldest first; None where there was none.
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
    """Return a round number of steps that are far enough apart for their numbers."""
    pitch = 1
    while pitch < steps_a_cell * LEAST_MARK_CELLS:
        pitch = pitch * 5 // 2 if str(pitch)[0] == "2" else pitch * 2
    return pitch


def _put_ticks(axis: Line, marks: Sequence[tuple[int, str]], glyphs: Glyphs) -> Line:
    """Return the time axis with a tick at every mark, except on its words."""
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
