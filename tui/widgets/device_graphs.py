"""Graphs of devices: history cut into columns that stay where they are until a whole cell is full."""

from dataclasses import dataclass
from math import floor

from ...engine.history import History
from ..drawing.glyphs import Glyphs
from ..drawing.history_graph import Levels, dots_of, draw_history, history_levels
from ..drawing.spans import Line
from .device_view import DeviceView

TAIL = 4
"""Buckets that may still change: those of the last two cells."""


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


class DeviceGraphs:
    """Draws history and keeps what it drew; only a new bucket or a new value costs work."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._graphs: dict[str, _Graph] = {}

    def draw(
        self,
        history: History,
        view: DeviceView,
        shape: tuple[int, int],
        *,
        now_s: float,
        interval_s: float,
        window_s: float,
    ) -> list[Line]:
        """Return the graph of one device, as many rows as `shape` says, each exactly as wide.

        Args:
            history: What was seen.
            view: The device.
            shape: Cells and rows.
            now_s: Time at the right end.
            interval_s: Length of a tick.
            window_s: Seconds that the graph should span.
        """
        cells, rows = shape
        if cells <= 0 or rows <= 0:
            return []
        bucket_s = bucket_length(window_s, cells, interval_s)
        end = floor(now_s / (2 * bucket_s))
        key = (history, shape, bucket_s, end, view.scale_bytes, view.fill_role)
        graph = self._graphs.get(view.device.uuid)
        is_current = graph is not None and graph.key == key
        levels = self._levels(
            history,
            view,
            end_s=(2 * end + 1.5) * bucket_s,
            bucket_s=bucket_s,
            count=min(TAIL + 2, 2 * cells) if is_current else 2 * cells,
            rows=rows,
            interval_s=interval_s,
        )
        tail = levels[-TAIL:]
        if graph is not None and is_current:
            if graph.tail == tail:
                return graph.lines
            body = graph.body
        else:
            body = draw_history(levels[:-TAIL], rows, self._glyphs, view.fill_role)
        ends = draw_history(tail, rows, self._glyphs, view.fill_role)
        lines = [[*head, *last] for head, last in zip(body, ends, strict=True)]
        self._graphs[view.device.uuid] = _Graph(key, body, tail, lines)
        return lines

    def keep(self, uuids: set[str]) -> None:
        """Forget the graphs of devices that are not drawn any more."""
        for uuid in self._graphs.keys() - uuids:
            del self._graphs[uuid]

    def _levels(
        self,
        history: History,
        view: DeviceView,
        *,
        end_s: float,
        bucket_s: float,
        count: int,
        rows: int,
        interval_s: float,
    ) -> list[Levels]:
        """Return the newest buckets in dots; a tick that came late leaves no hole."""
        columns = history.columns(view.device.uuid, "used", end_s, bucket_s, count)
        dots = dots_of(rows, self._glyphs)
        levels = history_levels(columns.minimum, columns.maximum, float(view.scale_bytes or 0), dots)
        if bucket_s < 2 * interval_s:
            for index in range(1, len(levels) - 1):
                if not levels[index][1] and levels[index - 1][1] and levels[index + 1][1]:
                    levels[index] = levels[index - 1]
        return levels
