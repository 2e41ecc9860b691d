"""Graphs of devices: the history there is, cut into buckets that keep their place while it grows."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import ceil, floor, inf
from typing import Literal, NamedTuple

from ...engine.history import History
from ...engine.history.history import COARSE_S, FINE_TICKS
from ...engine.units import format_seconds
from ..draw.glyphs import Glyphs
from ..draw.graphs import Layers, Levels, dots_of, draw_history, draw_layers, history_levels
from ..draw.numbers import moment_text, span_text
from ..draw.spans import Line, Role, Span
from ..widgets.device_view import DeviceView, SharedWidths, has_only_allocator, read_levels
from .device_lines import add_scale, scale_width

# What a graph shows.
Chart = Literal["memory", "utilization"]
# What is chosen to be shown; both where there is room for two graphs.
ChartChoice = Literal["memory", "utilization", "both"]
# For people, in the order in which a key goes through them.
CHART_NAMES: dict[ChartChoice, str] = {
    "memory": "memory",
    "utilization": "utilisation",
    "both": "memory and utilisation",
}

# Buckets that may still change.
TAIL = 4
# Cells that are drawn again with the newest value, at most.
MOST_TAIL_CELLS = 8
# Time from one shift, or one change of the scale, to the next: everything is redrawn then. Cells up to the
# next one are empty: a share of the history, but room for some ticks. The share of a long history is small,
# so that the empty cells are few, and large enough that it is not redrawn each six seconds for an hour.
SHIFT_S = 6.0
SHORT_SLACK_SHARE = 0.25
LONG_SLACK_SHARE = 0.1
SLACK_TICKS = 3
# Ticks over which the first value is not stretched further.
LEAST_TICKS = 10
# Of a bucket: times are multiples of ticks that floating point does not hit exactly.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class TimeSpan:
    # Time at the right end.
    now_s: float
    # Seconds from the left end to the right one, once so much has been seen.
    window_s: float
    # Length of a tick.
    interval_s: float
    # Whether ticks are live, not recorded.
    is_live: bool = False
    # The time at the right end in words; None for now.
    moment: str | None = None
    # Devices whose history is drawn in it, over the same time; without any there is a whole window.
    uuids: tuple[str, ...] = ()
    # Clock of the samples.
    clock: str = "wall"


class Fit(NamedTuple):
    """The time that a graph spans: buckets of whole ticks, drawn side by side over all its columns."""

    # Number of the oldest bucket: its beginning, divided by `bucket_s`.
    first: int
    buckets: int
    bucket_s: float
    # Two a cell; no fewer than buckets.
    columns: int

    @property
    def start_s(self) -> float:
        return self.first * self.bucket_s

    @property
    def end_s(self) -> float:
        return (self.first + self.buckets) * self.bucket_s

    def find_newest(self, span: TimeSpan) -> int:
        """Return the place of the newest bucket; after it, a live graph has room for what comes."""
        return min(self.buckets - 1, floor(span.now_s / self.bucket_s) - self.first) if span.is_live else -1

    def find_column(self, place: int) -> int:
        """Return the first column of a bucket, by its place among them."""
        return -(-place * self.columns // self.buckets)


def fit_history(span: TimeSpan, columns: int, seen_s: float) -> Fit:
    """Fit history of `seen_s` seconds into a graph of so many columns; of a longer one the newest window.

    A bucket is a whole number of ticks, so that none misses one. Fewer buckets than columns are stretched.
    """
    interval_s = max(span.interval_s, 1e-3)
    seen_s += interval_s
    slack_s = min(SHIFT_S, max(SHORT_SLACK_SHARE * seen_s, SLACK_TICKS * interval_s))
    slack_s = max(slack_s, LONG_SLACK_SHARE * seen_s) if span.is_live else 0.0
    total_s = min(span.window_s, seen_s + slack_s)
    bucket_s = ceil(total_s / interval_s / columns - ROUNDING) * interval_s
    if total_s < span.window_s:
        first = floor((span.now_s - seen_s + interval_s) / bucket_s + ROUNDING)
        last = floor((span.now_s + slack_s) / bucket_s)
        count = min(columns, max(last - first + 1, LEAST_TICKS))
        # In very few columns there is no room for more than the newest ticks.
        first = min(max(first, last - count + 1), floor(span.now_s / bucket_s + ROUNDING))
        return Fit(first, count, bucket_s, columns)
    step = max(1, round(SHIFT_S / bucket_s)) if span.is_live else 1
    last = floor(span.now_s / bucket_s / step) * step + step - 1
    count = min(columns, ceil(total_s / bucket_s - ROUNDING))
    return Fit(last - count + 1, count, bucket_s, columns)


# Cells and rows.
Shape = tuple[int, int]
# UUID of the device, what is shown, and in which shape.
_GraphKey = tuple[str, Chart, Shape]


@dataclass(slots=True)
class _Graph:
    """The last drawing of a device's graph."""

    key: tuple[object, ...]
    # Of every bucket, as far as the newest.
    levels: list[Levels]
    newest: int
    # The cells before those that change with the newest value, and how many they are.
    body: list[Line]
    body_cells: int
    lines: list[Line]


class DeviceGraphs:
    """Draws history and caches its drawings; only a new value costs work."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._graphs: dict[_GraphKey, _Graph] = {}
        self._used: set[_GraphKey] = set()
        self._fits: dict[int, tuple[tuple[object, ...], float, Fit]] = {}
        # The time axis of each width and name.
        self._axes: dict[tuple[int, str], tuple[tuple[object, ...], Line]] = {}

    def fit(self, history: History, columns: int, span: TimeSpan) -> Fit:
        """Return the fit of a graph; the one before while there is room in it for what is new."""
        key = (history, history.generation, span.window_s, span.interval_s)
        known = self._fits.get(columns)
        if known is not None and known[0] == key and known[1] <= span.now_s < known[2].end_s:
            return known[2]
        seen_s = max((history.span_s(uuid) for uuid in span.uuids), default=inf)
        fit = fit_history(span, columns, seen_s)
        self._fits[columns] = key, span.now_s, fit
        return fit

    def draw_axis(
        self, history: History, cells: int, span: TimeSpan, name: str = "", *, has_labels: bool = True
    ) -> Line:
        """Return the time axis of graphs of some cells, see `draw_axis`."""
        fit = self.fit(history, 2 * cells, span)
        # Everything about now that the axis shows: the newest bucket.
        key = (fit, fit.find_newest(span), span.moment, span.clock, has_labels)
        known = self._axes.get((cells, name))
        if known is None or known[0] != key:
            axis = draw_axis(cells, fit, span, self._glyphs, name, has_labels=has_labels)
            known = self._axes[cells, name] = key, axis
        return known[1]

    def draw(
        self,
        history: History,
        view: DeviceView,
        shape: Shape,
        span: TimeSpan,
        chart: Chart = "memory",
    ) -> list[Line]:
        """Return the graph of one device in exactly its shape (cells, rows)."""
        cells, rows = shape
        if cells <= 0 or rows <= 0:
            return []
        fit = self.fit(history, 2 * cells, span)
        role: Role = view.graph_role if chart == "memory" else "activity"
        scale = float(view.scale_bytes or 0) if chart == "memory" else 100.0
        key = (history, history.generation, fit, scale, role)
        newest = min(fit.buckets - 1, floor(span.now_s / fit.bucket_s) - fit.first)
        slot = (view.device.uuid, chart, shape)
        self._used.add(slot)
        graph = self._graphs.get(slot)
        reader = _Reader(history, view, fit, dots_of(rows, self._glyphs), scale, span.interval_s, chart)
        if graph is None or graph.key != key or newest < graph.newest:
            graph = _Graph(key, reader.read(0, fit.buckets), newest, [[] for _ in range(rows)], 0, [])
            self._graphs[slot] = graph
            first = max(0, newest)
        else:
            first = max(0, graph.newest - TAIL + 1)
            graph.newest = newest
            before = graph.levels[first : newest + 1]
            levels = reader.read(first, newest + 1)
            if before == levels:
                return graph.lines
            graph.levels[first : newest + 1] = levels
            first += next(
                at for at, pair in enumerate(zip(before, levels, strict=True)) if pair[0] != pair[1]
            )
        self._draw_lines(graph, fit, first, rows, role)
        return graph.lines

    def _draw_lines(self, graph: _Graph, fit: Fit, first: int, rows: int, role: Role) -> None:
        """Draw the buckets from a place on; what is before them is drawn once."""
        cell = fit.find_column(first) // 2
        if cell < graph.body_cells:
            graph.body = [[] for _ in range(rows)]
            graph.body_cells = 0
        if cell > graph.body_cells + MOST_TAIL_CELLS or not graph.body_cells:
            levels = spread_levels(graph.levels, fit, 2 * graph.body_cells, 2 * cell)
            graph.body = _join(graph.body, draw_history(levels, rows, self._glyphs, role))
            graph.body_cells = cell
        levels = spread_levels(graph.levels, fit, 2 * graph.body_cells, fit.columns)
        tail = draw_history(levels, rows, self._glyphs, role)
        # Not joined: what was drawn before need not be measured again. Rows that did not change stay the same
        # objects, as which others recognize them.
        before = graph.lines
        lines = [[*head, *last] for head, last in zip(graph.body, tail, strict=True)]
        graph.lines = [
            before[row] if row < len(before) and before[row] == line else line
            for row, line in enumerate(lines)
        ]

    def forget_unused(self) -> None:
        """Drop what was not drawn since the last call."""
        self._graphs = {slot: graph for slot, graph in self._graphs.items() if slot in self._used}
        columns = {2 * shape[0] for _, _, shape in self._used}
        self._fits = {count: it for count, it in self._fits.items() if count in columns}
        self._axes = {slot: it for slot, it in self._axes.items() if 2 * slot[0] in columns}
        self._used.clear()


class _Reader(NamedTuple):
    """Reads the levels of one graph."""

    history: History
    view: DeviceView
    fit: Fit
    dots: int
    # Value of the topmost dot.
    scale: float
    interval_s: float
    chart: Chart

    def read(self, first: int, end: int) -> list[Levels]:
        """Return the levels of buckets from one place up to another."""
        fit = self.fit
        # One more at each side, next to which a hole is seen. The first time all that there will be, since a
        # history keeps as much as it is asked for.
        is_whole = first == 0 and end == fit.buckets
        before = fit.columns - fit.buckets if is_whole else min(1, first)
        count = end - first + before + 1
        end_s = (fit.first + end + 0.5) * fit.bucket_s
        uuid = self.view.device.uuid
        if self.chart == "memory":
            has_allocator = has_only_allocator(self.view.device, self.view.ranks)
            low, high = read_levels(
                self.history, uuid, end_s, fit.bucket_s, count, has_allocator=has_allocator
            )
        else:
            columns = self.history.columns(uuid, "utilization", end_s, fit.bucket_s, count)
            low, high = columns.minimum, columns.maximum
        levels = history_levels(low, high, self.scale, self.dots)
        if fit.bucket_s < 2 * self.interval_s:
            _mend(levels)
        if is_whole:
            ticks_from_s = fit.end_s - FINE_TICKS * self.interval_s
            _fill_minutes(levels, fit.bucket_s, before + ceil((ticks_from_s - fit.start_s) / fit.bucket_s))
        return levels[before:-1]


def _join(left: Sequence[Line], right: Sequence[Line]) -> list[Line]:
    """Return the rows of two graphs next to each other; neighbours of one role become one span."""
    lines: list[Line] = []
    for head, last in zip(left, right, strict=True):
        if head and last and head[-1].role == last[0].role:
            lines.append([*head[:-1], Span(head[-1].text + last[0].text, last[0].role), *last[1:]])
        else:
            lines.append([*head, *last])
    return lines


def _mend(levels: list[Levels]) -> None:
    """Close holes of one bucket: a tick came late."""
    for index in range(1, len(levels) - 1):
        if not levels[index][1] and levels[index - 1][1] and levels[index + 1][1]:
            levels[index] = levels[index - 1]


def _fill_minutes(levels: list[Levels], bucket_s: float, end: int) -> None:
    """Let each minute fill its buckets, up to those of single ticks: a history keeps no ticks before."""
    reach = ceil(COARSE_S / bucket_s) - 1
    left = 0
    for index in range(min(end, len(levels))):
        if levels[index][1]:
            left = reach
        elif left:
            levels[index] = levels[index - 1]
            left -= 1


def spread_levels(levels: Sequence[Levels], fit: Fit, start: int, end: int) -> list[Levels]:
    """Return the levels of columns, from one up to another."""
    if fit.buckets == fit.columns:
        return list(levels[start:end])
    return [levels[place] for place in _list_places(fit.buckets, fit.columns)[start:end]]


@lru_cache(maxsize=16)  # one for the graphs of all devices
def _list_places(buckets: int, columns: int) -> list[int]:
    """Return the bucket of each column."""
    return [column * buckets // columns for column in range(columns)]


# Seconds from one label of the time axis to the next.
LABEL_STEPS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10800, 21600, 43200, 86400),
)
# Cells of a label with what is left of the rule before it, at least.
LABEL_CELLS = 14
DAY_S = 86400
# Names of charts in little room.
BRIEF_NAMES = {"utilisation": "util"}


def draw_axis(
    cells: int, fit: Fit, span: TimeSpan, glyphs: Glyphs, name: str = "", *, has_labels: bool = True
) -> Line:
    """Return a rule that says how long ago its left end is, and times of day where there is room.

    Of a live graph it ends where the graph does, before the room for what comes.

    Args:
        name: What the graph shows; empty where that is clear.
        has_labels: Whether times of day are wanted.
    """
    shown = fit.find_newest(span) + 1 if span.is_live else fit.buckets
    left = f"-{span_text(shown * fit.bucket_s)} "
    right = f" {span.moment or 'now'}"
    if name:
        left, right = _put_name(name, left, right, cells)
    if len(left) + len(right) > cells:
        right = ""
    end = min(cells, max(ceil(fit.find_column(shown) / 2), len(left) + len(right)))
    rule: Line = [Span(glyphs.rule * max(0, end - len(left) - len(right)), "faint")]
    if has_labels:
        rule = _label(len(rule[0].text), len(left), cells, fit, span, glyphs)
    return [
        Span(left, "muted"),
        *rule,
        Span(right, "muted"),
        *([Span(" " * (cells - end))] if end < cells else []),
    ]


def _put_name(name: str, left: str, right: str, cells: int) -> tuple[str, str]:
    """Return the ends of an axis with what its graph shows, which is the last word that is left out."""
    brief = BRIEF_NAMES.get(name, name)
    forms = [
        (f"{name} {left}", right),
        (f"{brief} {left}", right),
        (f"{brief} {left}", ""),
        (f"{brief} ", right),
    ]
    return next((it for it in forms if sum(map(len, it)) < cells), (brief[:cells], ""))


def _label(length: int, start: int, cells: int, fit: Fit, span: TimeSpan, glyphs: Glyphs) -> Line:
    """Return a rule of some cells, from `start` cells after the left end on, with ticks at round times."""
    cell_s = (fit.end_s - fit.start_s) / cells
    step_s = next((it for it in LABEL_STEPS_S if it >= LABEL_CELLS * cell_s), DAY_S)
    shift_s = _find_zone_s(fit.end_s) if span.clock == "wall" else 0
    time_s = ceil((fit.start_s + shift_s) / step_s) * step_s - shift_s
    line: Line = []
    taken = 0
    while time_s < fit.end_s:
        text = _format_time(time_s, step_s, span.clock)
        place = round((time_s - fit.start_s) / cell_s) - start
        if place > taken and place + len(text) + 2 < length:
            line += [Span(glyphs.rule * (place - taken) + glyphs.tick, "faint"), Span(text, "muted")]
            taken = place + 1 + len(text)
        time_s += step_s
    return [*line, Span(glyphs.rule * (length - taken), "faint")]


def _format_time(time_s: float, step_s: float, clock: str) -> str:
    if clock == "trace":
        return format_seconds(time_s, 0)
    text = moment_text(time_s, clock)
    return text if step_s % 60 else text[:5]


def _find_zone_s(time_s: float) -> int:
    """Return by how much local time is ahead: days and hours begin at round local times."""
    return time.localtime(time_s).tm_gmtoff


# Room of each of two graphs: rows one below the other, cells side by side with a gap.
LEAST_CHART_ROWS = 4
LEAST_CHART_CELLS = 24
CHART_GAP = 2


def share_area(shape: Shape, choice: ChartChoice, *, is_stacked: bool) -> list[tuple[Chart, Shape]]:
    """Return the graphs that fit into an area: both, one below the other or side by side, else memory."""
    cells, rows = shape
    if choice != "both":
        return [(choice, shape)]
    if is_stacked and rows >= 2 * LEAST_CHART_ROWS:
        below = max(LEAST_CHART_ROWS, rows * 2 // 5)
        return [("memory", (cells, rows - below)), ("utilization", (cells, below))]
    if not is_stacked and cells >= 2 * LEAST_CHART_CELLS + CHART_GAP:
        right = (cells - CHART_GAP) // 2
        return [("memory", (cells - CHART_GAP - right, rows)), ("utilization", (right, rows))]
    return [("memory", shape)]


# Cells from one mark of a step to the next: its number must have room between them.
LEAST_MARK_CELLS = 12
# Rows below the graph: time, and the numbers of steps.
AXIS_ROWS = 2


class DeviceHistory:
    """The graphs of the one device that is shown in full."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._graphs = DeviceGraphs(glyphs)
        # Whether there was room for two graphs at the last drawing.
        self.has_room_for_both = False

    def draw(
        self,
        history: History,
        view: DeviceView,
        widths: SharedWidths,
        span: TimeSpan,
        size: Shape,
        choice: ChartChoice = "memory",
    ) -> list[Line]:
        """Return the graphs with their scale at the right and the axes below, in `size` (cells, rows)."""
        cells = max(0, size[0] - 3 - scale_width(widths))
        rows = max(0, size[1] - AXIS_ROWS)
        lines: list[Line] = []
        self.has_room_for_both = len(share_area((cells, rows), "both", is_stacked=True)) > 1
        if not cells:
            return [[Span("")]] * max(0, size[1])
        for chart, shape in share_area((cells, rows), choice, is_stacked=True):
            is_utilization = chart == "utilization"
            if view.device.allocator is None or is_utilization:
                graph = self._graphs.draw(history, view, shape, span, chart)
            else:
                graph = self._draw_layers(history, view, shape, span)
            lines += add_scale(graph, view, self._glyphs, is_utilization=is_utilization)
        fit = self._graphs.fit(history, 2 * cells, span)
        steps = _read_steps(history, view.device.uuid, fit)
        marks = place_marks(steps, self._glyphs)
        # The scales, GiB and percent, say which of two graphs is which.
        name = CHART_NAMES[choice] if choice == "utilization" else ""
        axis = self._graphs.draw_axis(history, cells, span, name, has_labels=not marks)
        self._graphs.forget_unused()
        below = [_put_ticks(axis, marks, self._glyphs), _write_marks(marks)]
        return [[Span("  "), *line] for line in (*lines, *below)][: max(0, size[1])]

    def _draw_layers(self, history: History, view: DeviceView, shape: Shape, span: TimeSpan) -> list[Line]:
        cells, rows = shape
        fit = self._graphs.fit(history, 2 * cells, span)
        buckets = _read_layers(history, view.device.uuid, fit, span.interval_s)
        spread = [
            _merge(
                buckets[
                    2 * cell * fit.buckets // fit.columns : (2 * cell + 1) * fit.buckets // fit.columns + 1
                ]
            )
            for cell in range(cells)
        ]
        return draw_layers(spread, float(view.scale_bytes or 0), rows, self._glyphs, view.graph_role)


def _merge(buckets: Sequence[Layers]) -> Layers:
    """Return the layers of one cell."""
    if len(buckets) == 1:
        return buckets[0]
    allocated_min, allocated_max, reserved, used_min, used_max = (
        [value for value in values if value is not None] for values in zip(*buckets, strict=True)
    )
    return Layers(
        min(allocated_min, default=None),
        max(allocated_max, default=None),
        reserved[-1] if reserved else None,
        min(used_min, default=None),
        max(used_max, default=None),
    )


def _read_layers(history: History, uuid: str, fit: Fit, interval_s: float) -> list[Layers]:
    """Return the layers of every bucket; a tick that came late leaves no hole."""
    end_s = fit.end_s - fit.bucket_s / 2
    used, allocated, reserved = (
        history.columns(uuid, field, end_s, fit.bucket_s, fit.buckets)
        for field in ("used", "allocated", "reserved")
    )
    found = [
        Layers(*values)
        for values in zip(
            allocated.minimum, allocated.maximum, reserved.last, used.minimum, used.maximum, strict=True
        )
    ]
    if fit.bucket_s < 2 * interval_s:
        for index in range(1, len(found) - 1):
            if found[index].used_max is None and found[index + 1].used_max is not None:
                found[index] = found[index - 1]
    return found


def _read_steps(history: History, uuid: str, fit: Fit) -> list[float | None]:
    """Return the newest step of every cell; of a stretched bucket in its first."""
    steps = history.columns(uuid, "step", fit.end_s - fit.bucket_s / 2, fit.bucket_s, fit.buckets).last
    spread: list[float | None] = [None] * (fit.columns // 2)
    for place, step in enumerate(steps):
        if step is not None:
            spread[fit.find_column(place) // 2] = step
    return spread


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
