"""Graphs of devices: history cut into columns that stay where they are until a whole cell is full."""

from dataclasses import dataclass
from math import floor
from typing import NamedTuple

from ...engine.history import History
from ..draw.glyphs import Glyphs
from ..draw.history_graph import Levels, dots_of, draw_history, history_levels
from ..draw.spans import Line
from ..widgets.device_levels import is_told_by_allocator, read_levels
from ..widgets.device_view import DeviceView

TAIL = 4
"""Buckets that may still change: those of the last two cells."""
SHIFT_S = 6.0
"""Shortest time from one shift to the next: all is drawn anew then. Cells up to the next one are empty."""


@dataclass(slots=True)
class _Graph:
    """The graph of one device as it was last drawn."""

    key: tuple[object, ...]
    body: list[Line]
    """Everything but the last two cells."""
    tail: list[Levels]
    lines: list[Line]


def bucket_length(window_s: float, cells: int, interval_s: float) -> float:
    """Return the seconds of a bucket: a whole number of ticks, so that no bucket misses one."""
    interval_s = max(interval_s, 1e-3)
    return max(1, round(window_s / (2 * cells) / interval_s)) * interval_s


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The time that graphs show."""

    now_s: float
    """Time at the right end."""
    window_s: float
    """Seconds from the left end to the right one."""
    interval_s: float
    """Length of a tick."""
    is_live: bool = False
    """Whether ticks are of now and not of a recording."""
    moment: str | None = None
    """The time at the right end in words; None where that is now."""


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
"""Windows through which a graph grows with what there is to show."""


LIVE_WINDOWS_S = (60.0, 240.0, 900.0, 3600.0, 21600.0, 86400.0)
"""The same for ticks of now: fewer, since every change draws all anew."""
SLACK = 2.0
"""How much of a shorter window must be free before it takes the place of the one that is shown."""


def choose_window(seen_s: float, most_s: float, *, is_live: bool, shown_s: float = 0.0) -> float:
    """Return the window for so many seconds of history: it grows in steps, up to the one that was set.

    Args:
        seen_s: Seconds from the oldest to the newest tick.
        most_s: Longest window.
        is_live: Whether ticks are of now and not of a recording.
        shown_s: The window that is shown, which does not shrink for a little.
    """
    windows = LIVE_WINDOWS_S if is_live else WINDOWS_S
    fitting = (w for w in windows if w >= seen_s * (SLACK if w < min(shown_s, most_s) else 1.0))
    return min(most_s, next(fitting, most_s))


class DeviceGraphs:
    """Draws history and keeps what it drew; only a new bucket or a new value costs work."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._graphs: dict[str, _Graph] = {}

    def draw(self, history: History, view: DeviceView, shape: tuple[int, int], span: TimeSpan) -> list[Line]:
        """Return the graph of one device, as many rows as `shape` says, each exactly as wide.

        Args:
            history: What was seen.
            view: The device.
            shape: Cells and rows.
            span: The time to show.
        """
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
        """Forget the graphs of devices that are not drawn any more."""
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
    """Buckets to draw."""

    end_s: float
    bucket_s: float
    bucket_count: int
    rows: int
