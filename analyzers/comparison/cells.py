"""Figures of a run by step or time in a bounded number of bins: of too many, neighbours become one."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class Cell:
    """What was seen within one bin; None is unmeasured."""

    start_s: float
    """Seconds since the start of the run."""
    readings: int = 0
    peak_bytes: int | None = None
    floor_bytes: int | None = None
    reserved_bytes: int | None = None
    used_bytes: int | None = None
    """Most."""
    allocated_sum: int = 0
    allocated_count: int = 0
    used_sum: int = 0
    used_count: int = 0
    duration_sum_s: float = 0.0
    duration_count: int = 0

    def take(self, other: "Cell") -> None:
        """Take in what a neighbour, or another reading of the same bin, saw."""
        self.start_s = min(self.start_s, other.start_s)
        self.readings += other.readings
        self.peak_bytes = _most(self.peak_bytes, other.peak_bytes)
        self.floor_bytes = _least(self.floor_bytes, other.floor_bytes)
        self.reserved_bytes = _most(self.reserved_bytes, other.reserved_bytes)
        self.used_bytes = _most(self.used_bytes, other.used_bytes)
        self.allocated_sum += other.allocated_sum
        self.allocated_count += other.allocated_count
        self.used_sum += other.used_sum
        self.used_count += other.used_count
        self.duration_sum_s += other.duration_sum_s
        self.duration_count += other.duration_count


class Bins:
    """Cells by number; a bin is `width` positions wide, a power of two.

    Args:
        most: Most cells to keep.
    """

    def __init__(self, most: int) -> None:
        self.width = 1
        self.cells: dict[int, Cell] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self.cells)

    def add(self, position: int, reading: Cell) -> None:
        """Take a reading at a position."""
        cell = self.cells.get(position // self.width)
        if cell is not None:
            cell.take(reading)
            return
        self.cells[position // self.width] = reading
        if len(self.cells) > self._most:
            self.bound(self._most)

    def bound(self, most: int) -> None:
        """Keep no more cells than this from here on."""
        self._most = most
        while len(self.cells) > most:
            self.widen(2 * self.width)

    def widen(self, width: int) -> None:
        """Make the bins as wide as a multiple of their width."""
        if width <= self.width:
            return
        cells = self.cells
        factor = width // self.width
        self.width = width
        self.cells = {}
        for number in sorted(cells):
            known = self.cells.setdefault(number // factor, cells[number])
            if known is not cells[number]:
                known.take(cells[number])

    def fill_gaps(self, other: "Bins") -> None:
        """Take those cells of another that are missing here."""
        width = max(self.width, other.width)
        self.widen(width)
        other.widen(width)
        for number, cell in other.cells.items():
            self.cells.setdefault(number, cell)
        self.bound(self._most)


class StepLine:
    """The steps of one rank. A step that was done twice, after a restart, counts as the longer life had it.

    Args:
        most: Most cells to keep.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._settled: Bins | None = None
        self._living = Bins(most)
        self._newest: int | None = None
        self.restarts = 0
        """Times that the number of the step fell."""

    def add(self, step: int, reading: Cell) -> None:
        """Take a reading at a step."""
        if self._newest is not None and step < self._newest:
            self.restarts += 1
            self._settled = self._join()
            self._living = Bins(self._most)
        self._newest = step
        self._living.add(step, reading)

    def bound(self, most: int) -> None:
        """Keep no more cells than this of a life from here on."""
        self._most = most
        for bins in (self._settled, self._living):
            if bins is not None:
                bins.bound(most)

    def bins(self) -> Bins:
        """Return all lives as one; nothing can be added any more."""
        return self._join()

    def _join(self) -> Bins:
        settled = self._settled
        living = self._living
        if settled is None or settled is living:
            return living
        more, fewer = (living, settled) if _span_of(living) > _span_of(settled) else (settled, living)
        more.fill_gaps(fewer)
        return more


def _span_of(bins: Bins) -> int:
    return len(bins) * bins.width


def walk(one: Bins, other: Bins, width: int) -> Iterator[tuple[int, Cell | None, Cell | None]]:
    """Widen both to a width and yield the cells of each number that either has, ascending."""
    one.widen(width)
    other.widen(width)
    for number in sorted(one.cells.keys() | other.cells.keys()):
        yield number, one.cells.get(number), other.cells.get(number)


def _most(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return one if one > other else other


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return one if one < other else other
