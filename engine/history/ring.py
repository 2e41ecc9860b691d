"""A bounded ring of columns: one row a tick, one set of columns a device or a training process.

Rows of all devices are at the same position, so that time and sequence are stored once. An unmeasured value
is returned as None. `engine/history/block.py` lists the columns of devices and of training processes;
`Column` stores them.
"""

import math
from array import array
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from ..soundness import is_time

# One column of a ring: whole numbers of zero and more, in four bytes or fewer each if they fit without loss.
#
# Bytes are multiples of 512 wherever an allocator or a driver counts them, so four bytes reach to 2 TiB. The
# first value that is no multiple, or too great, turns its column into one of eight bytes.

T = TypeVar("T", int, float)

UNMEASURED = -1
# Blocks of PyTorch's caching allocator are multiples of this (`kMinBlockSize`); drivers count in more.
SECTOR_BYTES = 512

# Columns of one width.
_FIXED = {
    "state": "b",
    "utilization": "b",
    "retries": "i",
    "ooms": "h",
    "steps_within": "h",
    "is_peak_exact": "b",
}
# Columns of four bytes in this unit, or of eight in units of one.
_UNITS = {
    "total": SECTOR_BYTES,
    "used": SECTOR_BYTES,
    "free": SECTOR_BYTES,
    "used_min": SECTOR_BYTES,
    "used_max": SECTOR_BYTES,
    "allocated": SECTOR_BYTES,
    "allocated_max": SECTOR_BYTES,
    "reserved": SECTOR_BYTES,
    "requested": SECTOR_BYTES,
    "active": SECTOR_BYTES,
    "inactive_split": SECTOR_BYTES,
    "resident": SECTOR_BYTES,
    "floor_min": SECTOR_BYTES,
    "peak_max": SECTOR_BYTES,
    "step": 1,
    "step_age": 1,
    "step_duration": 1,
    "step_floor": SECTOR_BYTES,
    "step_peak": SECTOR_BYTES,
}
_NARROW = "I"
_WIDE = "q"
# Cells that are allocated together.
_BLOCK = 256
# The unmeasured cell of unsigned types; signed ones have `UNMEASURED`.
_NOTHING = {_NARROW: 2**32 - 1}


class Column:
    """The values of one name, by position; `UNMEASURED` at first.

    Cells are in blocks, and only where something was measured: many processes end within minutes.
    """

    def __init__(self, name: str, length: int) -> None:
        self.name = name
        self._length = length
        self._blocks: dict[int, array[int]] = {}
        self._set_type(_FIXED.get(name, _NARROW), _UNITS.get(name, 1))

    def __len__(self) -> int:
        return self._length

    def __deepcopy__(self, memo: dict[int, object]) -> "Column":
        # A history has hundreds, and without this a copy of it takes three times as long.
        other = Column.__new__(Column)
        other.__dict__.update(self.__dict__)
        other._blocks = {number: block[:] for number, block in self._blocks.items()}
        return other

    def append(self) -> None:
        self._length += 1

    def clear(self, position: int) -> None:
        number, at = divmod(position, _BLOCK)
        block = self._blocks.get(number)
        if block is not None:
            block[at] = self._nothing
            # Counting costs most of all, and only the last of a block's positions can leave it empty.
            if (at == _BLOCK - 1 or position == self._length - 1) and block.count(self._nothing) == _BLOCK:
                del self._blocks[number]

    def read(self, position: int) -> int | None:
        """None if unmeasured."""
        block = self._blocks.get(position // _BLOCK)
        cell = self._nothing if block is None else block[position % _BLOCK]
        return None if cell == self._nothing else cell * self._unit

    def write(self, position: int, value: int) -> None:
        """`UNMEASURED` clears the position."""
        cell = self._nothing
        if value != UNMEASURED:
            cell = value // self._unit
            if self._is_narrow and (cell * self._unit != value or not 0 <= cell < self._nothing):
                self._widen()
                cell = value
        number, at = divmod(position, _BLOCK)
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = array(self._typecode, [self._nothing]) * _BLOCK
        block[at] = cell

    def is_empty(self) -> bool:
        return not self._blocks

    def unroll(self, start: int) -> "array[int]":
        """Return all values from a position on, round to it again, with `UNMEASURED`."""
        nothing = self._nothing
        unit = self._unit
        cells = unroll(self._join(), start)
        if cells.typecode == _WIDE:
            return cells
        return array(_WIDE, [UNMEASURED if cell == nothing else cell * unit for cell in cells])

    def dump(self, start: int, skip: int = 0) -> tuple[str, bytes]:
        """Return its name on the wire, which includes the unit, and its cells in the order of `unroll`.

        Args:
            skip: How many of the oldest are left out.
        """
        name = f"{self.name}/{self._unit}" if self._is_narrow else self.name
        return name, unroll(self._join(), start)[skip:].tobytes()

    @classmethod
    def load(cls, name: str, data: bytes) -> "Column | None":
        """Load a column from `dump`; None for a name that this version does not know."""
        known, _, unit = name.partition("/")
        if known in _FIXED and not unit:
            typecode = _FIXED[known]
        elif known in _UNITS and unit in ("", str(_UNITS[known])):
            typecode = _NARROW if unit else _WIDE
        else:
            return None
        cells = array(typecode, data)
        column = cls(known, len(cells))
        column._set_type(typecode, int(unit or 1))
        nothing = column._nothing
        for start in range(0, len(cells), _BLOCK):
            block = cells[start : start + _BLOCK]
            if block.count(nothing) < len(block):
                block.extend(array(typecode, [nothing]) * (_BLOCK - len(block)))
                column._blocks[start // _BLOCK] = block
        return column

    def _join(self) -> "array[int]":
        """Return the cells of all positions, one after the other."""
        empty = array(self._typecode, [self._nothing]) * _BLOCK
        cells = array(self._typecode)
        for number in range(-(-self._length // _BLOCK)):
            cells.extend(self._blocks.get(number, empty))
        del cells[self._length :]
        return cells

    def _set_type(self, typecode: str, unit: int) -> None:
        self._typecode = typecode
        self._unit = unit
        self._is_narrow = typecode == _NARROW
        self._nothing = _NOTHING.get(typecode, UNMEASURED)

    def _widen(self) -> None:
        nothing = self._nothing
        unit = self._unit
        self._set_type(_WIDE, 1)
        for number, block in self._blocks.items():
            wide = [UNMEASURED if cell == nothing else cell * unit for cell in block]
            self._blocks[number] = array(_WIDE, wide)


def unroll(cells: "array[T]", start: int) -> "array[T]":
    """Return cells from a position on, round to it again."""
    return cells[start:] + cells[:start] if start else cells[:]


_ALWAYS = "state"


class Row(NamedTuple):
    """One tick: its sequence number, its time and its length in seconds."""

    seq: int
    time_s: float
    interval_s: float


class ColumnRing:
    """The newest `capacity` ticks of any number of devices."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._seqs = array("q")
        self._times = array("d")
        self._intervals = array("f")
        self._columns: dict[str, dict[str, Column]] = {}
        self._start = 0

    def __len__(self) -> int:
        return len(self._times)

    @property
    def uuids(self) -> list[str]:
        return list(self._columns)

    @property
    def last(self) -> Row | None:
        return self._row((self._start - 1) % len(self)) if len(self) else None

    @property
    def first(self) -> Row | None:
        return self._row(self._start % len(self)) if len(self) else None

    @property
    def has_times(self) -> bool:
        """All its times and intervals are those of a calendar."""
        return all(math.isfinite(sum(it)) for it in (self._times, self._intervals)) and all(
            is_time(it) for it in (*self._ends(self._times), *self._ends(self._intervals))
        )

    @staticmethod
    def _ends(values: "array[float]") -> tuple[float, ...]:
        return (min(values), max(values)) if values else ()

    def append(self, row: Row, devices: dict[str, dict[str, int]]) -> None:
        """Add one tick; the oldest is dropped when the ring is full.

        Args:
            devices: Per device UUID, column name to value; a name that is absent was not measured.
        """
        if len(self) < self.capacity:
            position = len(self)
            self._seqs.append(row.seq)
            self._times.append(row.time_s)
            self._intervals.append(row.interval_s)
            for columns in self._columns.values():
                for column in columns.values():
                    column.append()
        else:
            position = self._start
            self._start = (self._start + 1) % self.capacity
            self._seqs[position] = row.seq
            self._times[position] = row.time_s
            self._intervals[position] = row.interval_s
            self._clear(position)
        for uuid, values in devices.items():
            self._write(uuid, position, values)

    def forget(self, uuid: str) -> None:
        self._columns.pop(uuid, None)

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Yield positions and ticks, oldest first."""
        count = len(self)
        for offset in range(count):
            position = (self._start + offset) % count
            yield position, self._row(position)

    def value(self, uuid: str, name: str, position: int) -> int | None:
        column = self._columns.get(uuid, {}).get(name)
        return None if column is None else column.read(position)

    def column(self, uuid: str, name: str) -> "array[int] | None":
        """Return a column oldest first, with `UNMEASURED`; None if it never was measured."""
        column = self._columns.get(uuid, {}).get(name)
        return None if column is None else column.unroll(self._start)

    def times(self) -> "array[float]":
        """Oldest first, in seconds."""
        return unroll(self._times, self._start)

    def has(self, row: Row) -> bool:
        """Return whether this very tick is in the ring."""
        at = self.count_to(row.seq) - 1
        return at >= 0 and self._row((self._start + at) % len(self)) == row

    def count_to(self, seq: int) -> int:
        """Return how many ticks there are up to the newest of this sequence number or a lower one."""
        count = len(self)
        for at in range(
            count - 1, -1, -1
        ):  # what is asked for is near the end; a restarted hub counts from 1 again
            if self._seqs[(self._start + at) % count] <= seq:
                return at + 1
        return 0

    def dump(self, skip: int = 0) -> tuple[dict[str, bytes], dict[str, dict[str, bytes]]]:
        """Return tick columns and device columns as bytes, oldest first, without the `skip` oldest."""
        ticks = {
            "seq": unroll(self._seqs, self._start)[skip:].tobytes(),
            "time": unroll(self._times, self._start)[skip:].tobytes(),
            "interval": unroll(self._intervals, self._start)[skip:].tobytes(),
        }
        devices = {
            uuid: dict(column.dump(self._start, skip) for column in columns.values())
            for uuid, columns in self._columns.items()
        }
        return ticks, devices

    def load(self, ticks: dict[str, bytes], devices: dict[str, dict[str, bytes]]) -> None:
        """Replace the content by that of a `dump`."""
        seqs = array("q")
        times = array("d")
        intervals = array("f")
        seqs.frombytes(ticks["seq"])
        times.frombytes(ticks["time"])
        intervals.frombytes(ticks["interval"])
        columns: dict[str, dict[str, Column]] = {}
        for uuid, named in devices.items():
            known = (Column.load(name, data) for name, data in named.items())
            columns[uuid] = {column.name: column for column in known if column is not None}
        lengths = {len(c) for named in columns.values() for c in named.values()}
        if not lengths | {len(seqs), len(intervals)} <= {len(times)} or len(times) > self.capacity:
            raise ValueError(f"columns of unequal or too great length: {sorted(lengths)}, {len(times)} ticks")
        self._seqs = seqs
        self._times = times
        self._intervals = intervals
        self._columns = columns
        self._start = 0

    def _row(self, position: int) -> Row:
        return Row(self._seqs[position], self._times[position], self._intervals[position])

    def _write(self, uuid: str, position: int, values: dict[str, int]) -> None:
        columns = self._columns.setdefault(uuid, {})
        if not columns:
            columns[_ALWAYS] = Column(_ALWAYS, len(self))
        for name, value in values.items():
            column = columns.get(name)
            if column is None:
                column = columns[name] = Column(name, len(self))
            column.write(position, value)

    def _clear(self, position: int) -> None:
        """Forget one position, and with it devices that have no row left."""
        for columns in self._columns.values():
            for column in columns.values():
                column.clear(position)
        if position == 0:
            gone = [u for u, c in self._columns.items() if c[_ALWAYS].is_empty()]
            for uuid in gone:
                del self._columns[uuid]
