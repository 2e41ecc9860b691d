"""One column of a ring: whole numbers of zero and more, in four bytes or fewer each if they fit without loss.

Bytes are multiples of 512 wherever an allocator or a driver counts them, so four bytes reach to 2 TiB. The
first value that is no multiple, or too great, turns its column into one of eight bytes.
"""

from array import array
from typing import TypeVar

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
