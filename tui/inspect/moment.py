"""The moment at which the inspect screen stands: where it moves, and what it lists."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...analyzers.diff.model import say_signed
from ...analyzers.level_history import LevelHistory
from ...analyzers.snapshot_summary import StackGroup
from ...analyzers.snapshot_summary.cursor import By, LiveChange, LiveRow, TimeCursor
from ...engine.units import format_bytes, format_seconds
from ..draw.time_window import TimeWindow
from .inspected import BarPart

Grouped = Literal["stack", "line", "module", "kind"]
GROUPINGS: tuple[Grouped, ...] = ("stack", "line", "module", "kind")
Place = Literal["start", "end", "peak"]
# A window shows at least so many events.
LEAST_EVENTS = 8
MOST_ROWS = 1000


@dataclass(frozen=True)
class StandingMoment:
    """A moment of one device, with a second one that is marked, and the part of the time that is drawn."""

    cursor: TimeCursor
    history: LevelHistory
    # The newest event that has happened; -1 before the first one.
    event: int
    mark: int | None = None
    # First and last moment of the window, as `history.moments`; None for all.
    window: TimeWindow | None = None

    @property
    def drawn(self) -> LevelHistory:
        """The part of the history that is drawn."""
        return self.history if self.window is None else self.history.cut(*self.window)

    @property
    def window_ends(self) -> tuple[str, str] | None:
        """When the window begins and ends, as the moment is named; None where all of the time is drawn."""
        if self.window is None:
            return None
        first, last = (place - self._whole.start for place in self.window)
        if not self.history.has_times:
            return f"event {first + 1:,.0f}", f"event {last + 1:,.0f}"
        return format_seconds(first, 3), format_seconds(last, 3)

    @property
    def moments(self) -> tuple[float, ...]:
        """The moment, then the marked one, on the axis of the history."""
        return tuple(self.place(event) for event in (self.event, self.mark) if event is not None)

    @property
    def whole(self) -> BarPart:
        """What was reserved."""
        return BarPart("reserved", self.cursor.levels_at(self.event)[1], "live")

    @property
    def parts(self) -> tuple[BarPart, ...]:
        """The parts of what was reserved; no event says which of the cache could be given back."""
        allocated, reserved = self.cursor.levels_at(self.event)
        parts = (
            BarPart("allocated", allocated, "live"),
            BarPart("no tensor", reserved - allocated, "releasable"),
        )
        return tuple(part for part in parts if part.value_bytes)

    @property
    def _whole(self) -> TimeWindow:
        return TimeWindow(float(self.history.moments[0]), float(self.history.moments[-1]))

    def place(self, event: int) -> float:
        return float(self.history.moments[event + 1])

    def move(self, columns: int, cells: int) -> "StandingMoment":
        """Return the moment some columns of the graph further, but at least one event."""
        length = (self.window or self._whole).length
        found = self._find(self.place(self.event) + columns * length / max(1, cells))
        is_stuck = (found - self.event) * columns <= 0
        return self.stand(self.event + (1 if columns > 0 else -1) if is_stuck else found)

    def step(self, events: int) -> "StandingMoment":
        return self.stand(self.event + events)

    def go(self, place: Place) -> "StandingMoment":
        places: dict[Place, int] = {"start": -1, "end": self.cursor.newest, "peak": self.cursor.peak}
        return self.stand(places[place])

    def stand(self, event: int) -> "StandingMoment":
        """Return the moment after an event; the window follows where it would leave it."""
        moved = replace(self, event=max(-1, min(event, self.cursor.newest)))
        if self.window is None:
            return moved
        return replace(moved, window=self._whole.follow(self.window, moved.place(moved.event)))

    def zoom(self, factor: float) -> "StandingMoment":
        """Return a window so many times as long around the moment; all of the time where that is less."""
        if factor < 1 and len(self.drawn.moments) <= LEAST_EVENTS:
            return self
        return replace(self, window=self._whole.zoom(self.window, factor, self.place(self.event)))

    def switch_mark(self) -> "StandingMoment":
        return replace(self, mark=self.event if self.mark is None else None)

    def list_rows(self, by: Grouped) -> Sequence["StackGroup | LiveRow | LiveChange"]:
        """Return what lived, the largest first; with a marked moment what differs from it."""
        if self.mark is not None:
            wanted: By = "line" if by == "stack" else by
            changes = self.cursor.changes(self.mark, self.event, MOST_ROWS)
            return next(groups.rows for groups in changes if groups.by == wanted)
        if by == "stack":
            return self.cursor.stacks_at(self.event, MOST_ROWS)[0]
        groups = self.cursor.moment(self.event, MOST_ROWS).groups
        return next(each.rows for each in groups if each.by == by)

    def describe(self) -> list[str]:
        """Return where the moment is, what was allocated then, and how that differs from the marked one."""
        allocated, reserved = self.cursor.levels_at(self.event)
        levels = f"allocated {format_bytes(allocated)} of {format_bytes(reserved)} reserved"
        if self.mark is None:
            return [self._name(self.event), levels]
        change = say_signed(allocated - self.cursor.levels_at(self.mark)[0])
        # What is compared comes first: a narrow pane cuts the rest.
        return [
            self._name(self.event),
            f"{change} since the mark",
            levels,
            f"mark at {self._name(self.mark)}",
        ]

    def _name(self, event: int) -> str:
        number = f"event {event + 1:,} of {self.cursor.newest + 1:,}"
        time_s = self.cursor.time_of(event)
        span_s = self.cursor.span_s
        if time_s is None or span_s is None:
            return number
        return f"{format_seconds(time_s - span_s[0], 3)}, {number}"

    def _find(self, moment: float) -> int:
        import numpy as np

        return int(np.searchsorted(self.history.moments[1:], moment, side="right")) - 1
