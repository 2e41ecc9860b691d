"""Columns of a block: a list of values to bytes and back, exactly, by loops of the interpreter's own.

The first byte of a column is its kind. Bytes of numbers are laid out in planes (all lowest bytes, then all
second ones, …), so that the general compression that follows finds those that never change side by side.
"""

import math
import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat
from operator import sub
from typing import Any

import msgspec

from ..text import clean_texts

MOST_ROWS = 1 << 18
"""Rows of one column: devices, processes or ranks of all ticks of a block."""
_ABSENT, _CONSTANT, _INTS, _DECIMALS, _DOUBLES, _CHOICES, _SPARSE, _LIST = range(8)
_WIDTHS = ((1 << 8, "B"), (1 << 16, "H"), (1 << 32, "I"), (1 << 64, "Q"))
_ITEM_BYTES = {code: array(code).itemsize for _, code in _WIDTHS} | {"d": 8}
_ARRAY_16, _ARRAY_32 = 0xDC, 0xDD
"""First bytes of longer lists in MessagePack; of up to 15 values it is 0x90 and their number."""
_LEAST_INT, _MOST_INT = -(1 << 63), (1 << 64) - 1
"""Integers that MessagePack can hold."""
_POWERS = (1, 10, 100, 1000, 1_000_000, 1 << 22)
"""Floats that are whole numbers of one over one of these are kept as integers; a file has its place here. The
last is for times since 1970: between 2004 and 2038 every double is a whole number of 2^-22 s."""
_EXACT = 1 << 53
_FEW_SHARE = 8
_CODES = {code for _, code in _WIDTHS}
_IS_SWAPPED = sys.byteorder == "big"
_HEADER = msgspec.msgpack.Decoder(tuple[bool, int, int, int, str])
_HEAD = 4
"""Values from which it is told whether a column is worth trying as decimals."""


class ColumnError(ValueError):
    """A column that no writer makes; caught where damaged blocks are counted, never shown by itself."""


def pack_values(values: Sequence[Any], kind: str) -> bytes:
    """Return a column of values, of which some may be None.

    Args:
        values: Integers, floats, or hashable values that MessagePack can hold.
        kind: `int`, `float` or `choice`; with the count it must be given again to read the column.
    """
    if None not in values:
        return _pack_dense(values, kind) if values else b""
    dense = [value for value in values if value is not None]
    if not dense:
        return bytes([_ABSENT])
    mask = bytes([value is not None for value in values])
    return bytes([_SPARSE]) + mask + _pack_dense(dense, kind)


def unpack_values(
    data: bytes,
    kind: str,
    count: int,
    choices: "msgspec.msgpack.Decoder[list[Any]]",
    *,
    is_optional: bool = False,
) -> Iterable[Any]:
    """Return an iterable of `count` values.

    Args:
        data: The column.
        kind: As it was written.
        count: Number of values.
        choices: Decodes a list of values of the column's type and refuses others.
        is_optional: Whether any may be None.

    Raises:
        ColumnError: It is no such column; other ValueErrors and LookupErrors where it is damaged.
    """
    if not 0 <= count <= MOST_ROWS:
        raise ColumnError(f"{count} rows")
    if count == 0:
        return ()
    if data[0] not in (_ABSENT, _SPARSE):
        return _unpack_dense(data, kind, count, choices)
    if not is_optional:
        raise ColumnError("a value is missing that must be there")
    if data[0] == _ABSENT:
        return repeat(None, count)
    mask = data[1 : count + 1]
    present = mask.count(1)
    if len(mask) != count or present + mask.count(0) != count:
        raise ColumnError("a mask of another length")
    dense = iter(_unpack_dense(data[count + 1 :], kind, present, choices))
    return [next(dense) if is_there else None for is_there in mask]


def pack_mask(mask: Sequence[bool]) -> bytes:
    """Return a column of whether something is there."""
    return pack_values(list(map(int, mask)), "int")


def _pack_dense(values: Sequence[Any], kind: str) -> bytes:
    if kind == "float":
        return _pack_floats(list(map(float, values)))
    if values.count(values[0]) == len(values):
        return bytes([_CONSTANT]) + msgspec.msgpack.encode([values[0]])
    return _pack_ints(values) if kind == "int" else _pack_choices(values)


def _unpack_dense(
    data: bytes, kind: str, count: int, choices: "msgspec.msgpack.Decoder[list[Any]]"
) -> "repeat[Any] | list[Any]":
    how, body = data[0], data[1:]
    if how == _CONSTANT:
        return repeat(_decode_list(choices, body, 1)[0], count)
    if how == _LIST:
        return _counted(_decode_list(choices, body, count), count)
    if how == _INTS and kind == "int":
        return _in_range(_unpack_ints(body, count))
    if how == _DECIMALS and kind == "float":
        return _unpack_decimals(body, count)
    if how == _DOUBLES and kind == "float":
        return list(_gather(body, "d", count))
    if how == _CHOICES:
        length = int.from_bytes(body[:4], "little")
        known = _decode_list(choices, body[4 : 4 + length], count)
        indexes = _unpack_ints(body[4 + length :], count)
        if min(indexes) < 0:
            raise ColumnError("a choice that is not there")
        return [known[index] for index in indexes]
    raise ColumnError(f"a column of kind {how} for {kind}")


def _decode_list(choices: "msgspec.msgpack.Decoder[list[Any]]", data: bytes, most: int) -> list[Any]:
    """Return a list of at most so many values, as its head must say before it is decoded."""
    if data[0] >> 4 == 9:
        length = data[0] & 15
    elif data[0] in (_ARRAY_16, _ARRAY_32):
        length = int.from_bytes(data[1 : 3 if data[0] == _ARRAY_16 else 5], "big")
    else:
        raise ColumnError("no list")
    if not 0 < length <= most:
        raise ColumnError(f"{length} values, expected 1 to {most}")
    return clean_texts(choices.decode(data))


def _counted(values: list[Any], count: int) -> list[Any]:
    if len(values) != count:
        raise ColumnError(f"{len(values)} values, expected {count}")
    return values


def _in_range(values: list[int]) -> list[int]:
    if min(values) < _LEAST_INT or max(values) > _MOST_INT:
        raise ColumnError("an integer of more than 64 bits")
    return values


def _pack_choices(values: Sequence[Any]) -> bytes:
    known = list(dict.fromkeys(values))
    place = {value: index for index, value in enumerate(known)}
    listed = msgspec.msgpack.encode(known)
    indexes = _pack_ints([place[value] for value in values])[1:]
    return bytes([_CHOICES]) + len(listed).to_bytes(4, "little") + listed + indexes


def _pack_ints(values: Sequence[int]) -> bytes:
    """Return integers as differences from one to the next, or from the least, whichever is shorter."""
    scale = math.gcd(*values) or 1
    dense = [value // scale for value in values] if scale > 1 else values
    low, first = min(dense), dense[0]
    steps = list(map(sub, dense[1:], dense))
    above = [value - low for value in dense]
    is_stepwise = sum(map(int.bit_length, steps)) < sum(map(int.bit_length, above))
    stored = [step << 1 if step >= 0 else (-step << 1) - 1 for step in steps] if is_stepwise else above
    most = max(stored, default=0)
    if most > _MOST_INT:
        return bytes([_LIST]) + msgspec.msgpack.encode(list(values))
    code = next(code for limit, code in _WIDTHS if most < limit)
    header = msgspec.msgpack.encode((is_stepwise, scale, first if is_stepwise else low, len(stored), code))
    return bytes([_INTS, len(header)]) + header + _scatter(array(code, stored))


def _unpack_ints(body: bytes, count: int) -> list[int]:
    length = body[0]
    is_stepwise, scale, start, stored_count, code = _HEADER.decode(body[1 : 1 + length])
    if code not in _CODES or stored_count != count - is_stepwise or not 0 < scale <= _MOST_INT:
        raise ColumnError("a header of another column")
    stored = _gather(body[1 + length :], code, stored_count)
    if is_stepwise:
        steps = [-(value >> 1) - 1 if value & 1 else value >> 1 for value in stored]
        values = list(accumulate(steps, initial=start))
    else:
        values = [value + start for value in stored]
    return [value * scale for value in values] if scale > 1 else values


def _pack_floats(values: list[float]) -> bytes:
    if _is_exactly_constant(values):
        return bytes([_CONSTANT]) + msgspec.msgpack.encode(values[:1])
    for power in _POWERS:
        whole = _scale(values, power)
        if whole is not None:
            return bytes([_DECIMALS, _POWERS.index(power)]) + _pack_ints(whole)
    distinct = set(values)
    if len(distinct) * _FEW_SHARE <= len(values) and 0.0 not in distinct:
        return _pack_choices(values)
    return bytes([_DOUBLES]) + _scatter(array("d", values))


def _is_exactly_constant(values: list[float]) -> bool:
    """Tell whether all are one value, which 0.0 and -0.0 are not, though they are equal."""
    if values.count(values[0]) != len(values):
        return False
    return values[0] != 0.0 or len(set(map(math.copysign, repeat(1.0), values))) == 1


def _scale(values: list[float], power: int) -> list[int] | None:
    """Return the values as integers of a power of ten, or None where that would change any."""
    for sample in (values[:_HEAD], values):
        if not all(map(math.isfinite, sample)) or max(map(abs, sample)) * power >= _EXACT:
            return None
        whole = [round(value * power) for value in sample]
        if [each / power for each in whole] != sample:
            return None
    has_negative_zero = 0 in whole and any(v == 0.0 and math.copysign(1.0, v) < 0 for v in values)
    return None if has_negative_zero else whole


def _unpack_decimals(body: bytes, count: int) -> list[float]:
    if body[1] == _LIST:
        raise ColumnError("decimals of more than 64 bits")
    power = _POWERS[body[0]]
    return [value / power for value in _in_range(_unpack_ints(body[2:], count))]


def _scatter(values: "array[Any]") -> bytes:
    """Return the bytes of numbers in planes, lowest first."""
    if _IS_SWAPPED:
        values.byteswap()
    data, size = values.tobytes(), values.itemsize
    return b"".join(data[place::size] for place in range(size))


def _gather(data: bytes, code: str, count: int) -> "array[Any]":
    size = _ITEM_BYTES[code]
    if len(data) != size * count:
        raise ColumnError(f"{len(data)} bytes for {count} numbers")
    woven = bytearray(len(data))
    for place in range(size):
        woven[place::size] = data[place * count : (place + 1) * count]
    values = array(code)
    values.frombytes(bytes(woven))
    if _IS_SWAPPED:
        values.byteswap()
    return values
