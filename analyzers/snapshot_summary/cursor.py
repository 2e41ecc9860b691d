"""A cursor in time: what lived on a device at any moment of a snapshot, and how two moments differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import msgspec

from ...engine.model import DeviceState
from ...engine.model.memory_snapshot import Frame, MemorySnapshot, StackTable
from .lifetimes import Lifetimes, follow_blocks
from .model import StackGroup, Timeline, build_timeline, find_trace
from .stack_names import KIND_NAMES, find_kind, name_line, name_module
from .summary import StackGrouper, measure_levels
from .view import view_device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .view import IntArray

By = Literal["line", "module", "kind", "part", "process"]
"""By what live memory is grouped; of a snapshot the first three, of a recording the others and kinds."""
BY_STACK: tuple[By, ...] = ("line", "module", "kind")


class LiveRow(msgspec.Struct, frozen=True):
    """What lived of one line, module or kind."""

    name: str
    size_bytes: int
    blocks: int | None = None
    """None where the file does not count them."""
    frame: Frame | None = None
    """The line, where rows are lines."""


class LiveGroups(msgspec.Struct, frozen=True):
    by: By
    rows: tuple[LiveRow, ...]
    """The largest first; as many as were asked for."""
    groups: int
    """How many rows there are."""


class OldValues(msgspec.Struct, frozen=True):
    """What was not measured any more at a moment: a node, a device, or a process on it."""

    kind: Literal["node", "device", "rank"]
    name: str
    state: DeviceState
    """Of a node and a rank `stale`: it has no sample, or does not report."""
    age_s: float | None
    """Seconds from its newest values, which are shown, to the moment; None where that is unknown."""
    reason: str | None
    """Why, in one sentence."""


class LiveMoment(msgspec.Struct, frozen=True):
    """One device at one moment."""

    event: int | None
    """Events of the trace up to then; None for a recording."""
    time_s: float | None
    """Seconds since the epoch, or of the recording's own clock; None where the file has no times."""
    after_s: float | None
    """Seconds since the first event or sample."""
    allocated_bytes: int | None
    reserved_bytes: int | None
    used_bytes: int | None = None
    """All that was used on the device; None for a snapshot, which does not say."""
    total_bytes: int | None = None
    live_blocks: int | None = None
    live_bytes: int | None = None
    """Sum of all live blocks; not the allocated bytes where the trace lacks events."""
    groups: tuple[LiveGroups, ...] = ()
    old: tuple[OldValues, ...] = ()
    """Whose values are older than the moment; always empty for a snapshot."""


class LiveChange(msgspec.Struct, frozen=True):
    """One line, module or kind at two moments: 0 where nothing of it lived, None where that is unmeasured."""

    name: str
    first_bytes: int | None
    second_bytes: int | None
    change_bytes: int | None
    frame: Frame | None = None


def _change(
    name: str, first_bytes: int | None, second_bytes: int | None, frame: Frame | None = None
) -> LiveChange:
    change = None if first_bytes is None or second_bytes is None else second_bytes - first_bytes
    return LiveChange(name, first_bytes, second_bytes, change, frame)


class ChangeGroups(msgspec.Struct, frozen=True):
    by: By
    rows: tuple[LiveChange, ...]
    """Those that differ most first, then those that were measured at one moment only, the largest first; as
    many as were asked for. Rows without a change are left out.
    """
    groups: int
    """How many rows there are without that limit."""


# What a row had at a moment that does not list it; None where that was not measured.
Absent = Callable[[By, str], int | None]


def _nothing(by: By, name: str) -> int | None:
    return 0


def compare_groups(
    first: Sequence[LiveGroups],
    second: Sequence[LiveGroups],
    most: int,
    absent: tuple[Absent, Absent] = (_nothing, _nothing),
) -> tuple[ChangeGroups, ...]:
    """Return how two moments differ, where all rows are known, with the `most` largest differences.

    They may be of two files. A grouping that one of them lacks was not measured there. A line with another
    number, or in another folder, is the same if its function and file have no other line that only one of the
    moments has.
    """
    found = []
    sides = [{groups.by: groups.rows for groups in side} for side in (first, second)]
    for by in dict.fromkeys((*sides[0], *sides[1])):
        before, after = (side.get(by, ()) for side in sides)

        def read(side: int, name: str, by: By = by) -> int | None:
            return absent[side](by, name) if by in sides[side] else None

        known = {row.name: row for row in before}
        moved = _find_moved(before, after)
        rows = []
        for row in after:
            old = known.pop(moved.get(row.name, row.name), None)
            old_bytes = read(0, row.name) if old is None else old.size_bytes
            rows.append(_change(row.name, old_bytes, row.size_bytes, row.frame))
        rows += [_change(row.name, row.size_bytes, read(1, row.name), row.frame) for row in known.values()]
        differing = sorted((row for row in rows if row.change_bytes != 0), key=_rank_change)
        found.append(ChangeGroups(by, tuple(differing[:most]), len(differing)))
    return tuple(found)


def _rank_change(row: LiveChange) -> tuple[bool, int]:
    if row.change_bytes is None:
        return True, -(row.first_bytes or row.second_bytes or 0)
    return False, -abs(row.change_bytes)


def _find_moved(before: Sequence[LiveRow], after: Sequence[LiveRow]) -> dict[str, str]:
    """Return the older name of each line that was moved."""
    names = [{row.name for row in rows} for rows in (before, after)]
    places: list[dict[tuple[str, str], list[str]]] = [{}, {}]
    for rows, others, found in zip((before, after), names[::-1], places, strict=True):
        for row in rows:
            if row.frame is not None and row.name not in others:
                file = row.frame.filename.replace("\\", "/").rpartition("/")[2]
                found.setdefault((row.frame.name, file), []).append(row.name)
    return {
        names[0]: places[0][place][0]
        for place, names in places[1].items()
        if len(names) == len(places[0].get(place, ())) == 1
    }


@dataclass(frozen=True)
class _Grouping:
    """The groups of all stacks; the last entry of `group_of` is for blocks without a stack."""

    names: Sequence[tuple[str, Frame | None]]
    group_of: IntArray

    def sum(self, by_stack: IntArray) -> IntArray:
        import numpy as np

        sums = np.zeros(len(self.names), dtype=np.int64)
        np.add.at(sums, self.group_of, by_stack)
        return sums


class TimeCursor:
    """One device of a snapshot, which can be asked about any moment of its trace.

    A moment is the number of the newest event that has happened; -1 is before the first one.
    """

    def __init__(self, snapshot: MemorySnapshot, device: int) -> None:
        view = view_device(snapshot, device)
        trace = find_trace(snapshot, device)
        levels = measure_levels(view)
        self.device = device
        self.lifetimes: Lifetimes = follow_blocks(trace, view)
        self.timeline: Timeline | None = None
        if trace is not None and len(trace):
            self.timeline = build_timeline(trace, view, levels)
        self._stacks: StackTable = snapshot.stacks
        self._final = (levels.allocated_bytes, levels.reserved_bytes)
        self._groupings: dict[By, _Grouping] = {}

    @property
    def newest(self) -> int:
        """The moment at which the snapshot was made."""
        return -1 if self.timeline is None else len(self.timeline) - 1

    @cached_property
    def peak(self) -> int:
        """The first moment at which most was allocated."""
        if self.timeline is None:
            return -1
        peak = int(self.timeline.allocated_bytes.argmax())
        return -1 if self.timeline.start_allocated_bytes >= self.timeline.allocated_bytes[peak] else peak

    @property
    def span_s(self) -> tuple[float, float] | None:
        """When the first and the last event happened; None where the file has no times."""
        times_s = None if self.timeline is None else self.timeline.times_s
        return None if times_s is None else (float(times_s[0]), float(times_s[-1]))

    def find_event(self, time_s: float) -> int:
        """Return the moment at a time, in seconds since the epoch."""
        import numpy as np

        times_s = None if self.timeline is None else self.timeline.times_s
        return -1 if times_s is None else int(np.searchsorted(times_s, time_s, side="right")) - 1

    def levels_at(self, event: int) -> tuple[int, int]:
        """Return allocated and reserved bytes after an event."""
        timeline = self.timeline
        if timeline is None:
            return self._final
        if event < 0:
            return timeline.start_allocated_bytes, timeline.start_reserved_bytes
        return int(timeline.allocated_bytes[event]), int(timeline.reserved_bytes[event])

    def time_of(self, event: int) -> float | None:
        """Return when an event happened; the moment before the first one has the time of the first."""
        times_s = None if self.timeline is None else self.timeline.times_s
        return None if times_s is None else float(times_s[max(event, 0)])

    def moment(self, event: int, most: int) -> LiveMoment:
        """Return what lived after an event, with the `most` largest rows of each grouping."""
        sizes, counts = self._sum_stacks(event)
        allocated, reserved = self.levels_at(event)
        time_s = self.time_of(event)
        span_s = self.span_s
        return LiveMoment(
            event=event + 1,
            time_s=time_s,
            after_s=None if time_s is None or span_s is None else time_s - span_s[0],
            allocated_bytes=allocated,
            reserved_bytes=reserved,
            live_blocks=int(counts.sum()),
            live_bytes=int(sizes.sum()),
            groups=tuple(self._rank(by, sizes, counts, most) for by in BY_STACK),
        )

    def changes(self, first: int, second: int, most: int) -> tuple[ChangeGroups, ...]:
        """Return how two moments differ, with the `most` largest differences of each grouping."""
        sums = [self._sum_stacks(event)[0] for event in (first, second)]
        return tuple(self._compare(by, sums[0], sums[1], most) for by in BY_STACK)

    def stacks_at(self, event: int, most: int) -> tuple[tuple[StackGroup, ...], int]:
        """Return what lived after an event by whole stack, the largest first, and how many there are."""
        live = self.lifetimes.find_live(event)
        return self._grouper.group(self.lifetimes.stack[live], self.lifetimes.size_bytes[live], most)

    @cached_property
    def _grouper(self) -> StackGrouper:
        return StackGrouper(self._stacks)

    def _sum_stacks(self, event: int) -> tuple[IntArray, IntArray]:
        """Return live bytes and blocks by stack; the last entry is for those without a stack."""
        import numpy as np

        live = self.lifetimes.find_live(event)
        # A stack of -1 is the last entry.
        stack = self.lifetimes.stack[live] % (len(self._stacks) + 1)
        sizes = np.zeros(len(self._stacks) + 1, dtype=np.int64)
        np.add.at(sizes, stack, self.lifetimes.size_bytes[live])
        return sizes, np.bincount(stack, minlength=len(sizes))

    def _rank(self, by: By, sizes: IntArray, counts: IntArray, most: int) -> LiveGroups:
        import numpy as np

        grouping = self._group(by)
        size, count = grouping.sum(sizes), grouping.sum(counts)
        order = np.lexsort((np.arange(len(size)), -size))
        present = order[count[order] > 0]
        rows = (
            LiveRow(name, int(size[row]), int(count[row]), frame)
            for row, (name, frame) in ((row, grouping.names[row]) for row in present[:most].tolist())
        )
        return LiveGroups(by, tuple(rows), len(present))

    def _compare(self, by: By, first: IntArray, second: IntArray, most: int) -> ChangeGroups:
        import numpy as np

        grouping = self._group(by)
        before, after = grouping.sum(first), grouping.sum(second)
        change = np.abs(after - before)
        order = np.lexsort((np.arange(len(change)), -change))
        differing = order[change[order] > 0]
        rows = (
            _change(grouping.names[row][0], int(before[row]), int(after[row]), grouping.names[row][1])
            for row in differing[:most].tolist()
        )
        return ChangeGroups(by, tuple(rows), len(differing))

    def _group(self, by: By) -> _Grouping:
        if by not in self._groupings:
            self._groupings[by] = _group_stacks(self._stacks, _NAMERS[by])
        return self._groupings[by]


def _group_stacks(
    stacks: StackTable, name: Callable[[tuple[Frame, ...]], tuple[str, Frame | None]]
) -> _Grouping:
    import numpy as np

    groups: dict[tuple[str, Frame | None], int] = {}
    names = [name(stacks.frames_of(stack)) for stack in (*range(len(stacks)), -1)]
    group_of: NDArray[np.int64] = np.array(
        [groups.setdefault(it, len(groups)) for it in names], dtype=np.int64
    )
    return _Grouping(tuple(groups), group_of)


_NAMERS: dict[By, Callable[[tuple[Frame, ...]], tuple[str, Frame | None]]] = {
    "line": name_line,
    "module": lambda frames: (name_module(frames), None),
    "kind": lambda frames: (KIND_NAMES[find_kind(frames)], None),
}


def list_live_at_peak(snapshot: MemorySnapshot, device: int) -> tuple[int, tuple[StackGroup, ...]]:
    """Return the most bytes that a device had allocated, and what was live then, the largest first.

    Without a trace it is what was live when the snapshot was made.
    """
    cursor = TimeCursor(snapshot, device)
    groups, _ = cursor.stacks_at(cursor.peak, len(snapshot.stacks) + 1)
    return cursor.levels_at(cursor.peak)[0], groups
