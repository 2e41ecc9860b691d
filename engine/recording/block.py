"""A block: rows of some minutes as compressed columns, samples in one body, what analyzers reported in
another.
"""

import math
import struct
import sys
import types
import typing
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, chain, compress, repeat
from operator import attrgetter, sub
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from ..model import Assessment, Finding, Sample
from ..soundness import make_msgpack_decoder
from ..text import clean_texts
from .contents import Told

# Rows of nested tuples (devices of a sample, processes of a device) are laid out slot by slot: the first
# device of every tick, then the second of every tick. A device keeps its place, so its values are next to
# each other. A field that the file does not have gets its default; one that only the file has is ignored.


class Plan(Protocol):
    """Writes and reads the values of one field."""

    def names(self) -> Iterator[str]:
        """The names of its columns in the order of writing."""
        ...

    def write(self, values: Sequence[Any], out: list[bytes]) -> None: ...

    def read(self, columns: Mapping[str, bytes], count: int) -> Iterable[Any]:
        """Return `count` values; a KeyError means that the file has no such field."""
        ...


class LeafPlan:
    """One column of integers, floats or a few different values."""

    def __init__(
        self,
        name: str,
        kind: Any,  # noqa: ANN401 - a class, a literal or a union
        *,
        is_optional: bool = False,
    ) -> None:
        self._name = name
        self._is_optional = is_optional
        self._kind = {int: "int", float: "float"}.get(kind, "choice")
        self._choices: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[kind])

    def names(self) -> Iterator[str]:
        yield self._name

    def write(self, values: Sequence[Any], out: list[bytes]) -> None:
        out.append(pack_values(values, self._kind))

    def read(self, columns: Mapping[str, bytes], count: int) -> Iterable[Any]:
        data = columns[self._name]
        return unpack_values(data, self._kind, count, self._choices, is_optional=self._is_optional)


class StructPlan:
    """The columns of one struct, one field after the other."""

    def __init__(self, name: str, struct: type[msgspec.Struct]) -> None:
        self._struct = struct
        hints = typing.get_type_hints(struct)
        self._fields = [
            (
                field,
                attrgetter(field.name),
                plan_of(f"{name}.{field.name}" if name else field.name, hints[field.name]),
            )
            for field in msgspec.structs.fields(struct)
        ]

    def names(self) -> Iterator[str]:
        return chain.from_iterable(plan.names() for _, _, plan in self._fields)

    def write(self, values: Sequence[Any], out: list[bytes]) -> None:
        for _, get, plan in self._fields:
            plan.write(list(map(get, values)), out)

    def read(self, columns: Mapping[str, bytes], count: int) -> Iterable[Any]:
        made = [self._read_field(field, plan, columns, count) for field, _, plan in self._fields]
        return list(map(self._struct, *made))

    def _read_field(
        self, field: msgspec.structs.FieldInfo, plan: Plan, columns: Mapping[str, bytes], count: int
    ) -> Iterable[Any]:
        if columns.keys().isdisjoint(plan.names()) and field.default is not msgspec.NODEFAULT:
            return repeat(field.default, count)
        return plan.read(columns, count)


class OptionalPlan:
    """A value that may be None as a whole: a mask, and the columns of the values that are there."""

    def __init__(self, name: str, inner: Plan) -> None:
        self._mask = LeafPlan(f"{name}?", int)
        self._inner = inner

    def names(self) -> Iterator[str]:
        yield from self._mask.names()
        yield from self._inner.names()

    def write(self, values: Sequence[Any], out: list[bytes]) -> None:
        there = [value is not None for value in values]
        out.append(pack_mask(there))
        self._inner.write(list(compress(values, there)), out)

    def read(self, columns: Mapping[str, bytes], count: int) -> Iterable[Any]:
        there = list(self._mask.read(columns, count))
        dense = iter(self._inner.read(columns, sum(1 for each in there if each)))
        return [next(dense) if each else None for each in there]


class TuplePlan:
    """Tuples of structs: the length of each, and all their rows, slot by slot."""

    def __init__(self, name: str, struct: type[msgspec.Struct]) -> None:
        self._lengths = LeafPlan(f"{name}#", int)
        self._rows = StructPlan(name, struct)

    def names(self) -> Iterator[str]:
        yield from self._lengths.names()
        yield from self._rows.names()

    def write(self, values: Sequence[Any], out: list[bytes]) -> None:
        self._lengths.write(list(map(len, values)), out)
        rows: list[Any] = []
        slot = 0
        left = [value for value in values if value]
        while left:
            rows += [value[slot] for value in left]
            slot += 1
            left = [value for value in left if len(value) > slot]
        self._rows.write(rows, out)

    def read(self, columns: Mapping[str, bytes], count: int) -> Iterable[Any]:
        lengths = list(self._lengths.read(columns, count))
        total = sum(lengths)
        if min(lengths, default=0) < 0 or total > MOST_ROWS:
            raise ColumnError(f"{total} rows in tuples")
        rows = list(self._rows.read(columns, total))
        if lengths and min(lengths) == max(lengths):
            slots = (rows[start : start + count] for start in range(0, total, count))
            return list(zip(*slots, strict=True)) or repeat((), count)
        made: list[list[Any]] = [[] for _ in lengths]
        taken = iter(rows)
        slot = 0
        left = [place for place, length in enumerate(lengths) if length]
        while left:
            for place in left:
                made[place].append(next(taken))
            slot += 1
            left = [place for place in left if lengths[place] > slot]
        return list(map(tuple, made))


def plan_of(name: str, hint: Any) -> Plan:  # noqa: ANN401 - as a field is annotated
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)] if is_union else [hint]
    is_optional = is_union and type(None) in typing.get_args(hint)
    kind = kinds[0] if len(kinds) == 1 else typing.Union[tuple(kinds)]  # noqa: UP007 - made at run time
    inner: Plan | None = None
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        inner = StructPlan(name, kind)
    elif typing.get_origin(kind) is tuple and _is_struct(typing.get_args(kind)[0]):
        inner = TuplePlan(name, typing.get_args(kind)[0])
    if inner is None:
        return LeafPlan(name, kind, is_optional=is_optional)
    return OptionalPlan(name, inner) if is_optional else inner


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


# No body is written that unpacks to more.
MOST_RAW_BYTES = 32 << 20
MOST_BODY_ROWS = 1 << 16
_LEVEL = 6
# What decoding of damaged bytes may raise: wrong types, text that is not UTF-8, too deep a nesting.
DAMAGES = (ValueError, LookupError, TypeError, OverflowError, RuntimeError, struct.error)

Part = Literal["samples", "told"]
Names = dict[Part, tuple[str, ...]]


class TickedSample(msgspec.Struct, frozen=True):
    """A sample and its number in the recording, by which all are ordered."""

    tick: int
    sample: Sample


class _ToldRow(msgspec.Struct, frozen=True):
    """`Told`, with findings as MessagePack, since their evidence is of any type."""

    tick: int
    time_s: float
    findings: tuple[bytes, ...]
    assessments: tuple[Assessment, ...] | None


class Body(NamedTuple):
    data: bytes
    # Uncompressed.
    raw_bytes: int
    rows: int


class BlockError(ValueError):
    """A body that cannot be read; caught where damage is counted, never shown."""


_FINDING = make_msgpack_decoder(Finding)


@cache
def _plan_of(part: Part) -> StructPlan:
    return StructPlan("", TickedSample if part == "samples" else _ToldRow)


@cache
def list_columns() -> Names:
    """The names of the columns as this version writes them."""
    return {"samples": tuple(_plan_of("samples").names()), "told": tuple(_plan_of("told").names())}


def pack_samples(rows: Sequence[TickedSample]) -> Body:
    return _pack("samples", rows)


def unpack_samples(body: Body, names: Names) -> list[TickedSample]:
    """Unpack a body; `names` are its columns as the file lists them.

    Raises:
        BlockError: It is damaged, or would unpack to more than any that is written.
    """
    return _unpack("samples", body, names)


def pack_told(rows: Sequence[Told]) -> Body:
    encode = msgspec.msgpack.encode
    return _pack(
        "told",
        [_ToldRow(it.tick, it.time_s, tuple(map(encode, it.findings)), it.assessments) for it in rows],
    )


def unpack_told(body: Body, names: Names) -> list[Told]:
    """As `unpack_samples`."""
    rows: list[_ToldRow] = _unpack("told", body, names)
    try:
        return [
            Told(it.tick, it.time_s, tuple(map(_decode_finding, it.findings)), it.assessments) for it in rows
        ]
    except DAMAGES as error:
        raise BlockError(str(error)) from error


def _decode_finding(data: bytes) -> Finding:
    return clean_texts(_FINDING.decode(data))


def _pack(part: Part, rows: Sequence[msgspec.Struct]) -> Body:
    columns: list[bytes] = []
    _plan_of(part).write(rows, columns)
    lengths = struct.pack(f"<I{len(columns)}I", len(columns), *map(len, columns))
    raw = b"".join([lengths, *columns])
    return Body(zlib.compress(raw, _LEVEL), len(raw), len(rows))


def _unpack(part: Part, body: Body, names: Names) -> list[Any]:
    if not 0 <= body.rows <= MOST_BODY_ROWS:
        raise BlockError(f"{body.rows} rows")
    try:
        columns = _split(_inflate(body), names[part])
        return list(_plan_of(part).read(columns, body.rows))
    except DAMAGES as error:
        raise BlockError(str(error)) from error


def _inflate(body: Body) -> bytes:
    """Decompress, but never more than was announced."""
    if not 0 <= body.raw_bytes <= MOST_RAW_BYTES:
        raise BlockError(f"{body.raw_bytes} bytes")
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(body.data, body.raw_bytes + 1)
    except zlib.error as error:
        raise BlockError(str(error)) from error
    if len(raw) != body.raw_bytes or not inflater.eof:
        raise BlockError(f"{len(raw)} bytes, {body.raw_bytes} expected")
    return raw


def _split(raw: bytes, names: Sequence[str]) -> dict[str, bytes]:
    (count,) = struct.unpack_from("<I", raw)
    if count != len(names):
        raise ColumnError(f"{count} columns, {len(names)} expected")
    lengths = struct.unpack_from(f"<{count}I", raw, 4)
    at = 4 + 4 * count
    columns = {}
    for name, length in zip(names, lengths, strict=True):
        columns[name] = raw[at : at + length]
        at += length
    if at != len(raw):
        raise ColumnError(f"{len(raw)} bytes, {at} expected")
    return columns


# The first byte of a column is its kind. Bytes of numbers are laid out in planes (all lowest bytes, then all
# second ones, …), so that zlib finds bytes that never change next to each other.
# Of one column: devices, processes or ranks of all ticks of a block.
MOST_ROWS = 1 << 18
_ABSENT, _CONSTANT, _INTS, _DECIMALS, _DOUBLES, _CHOICES, _SPARSE, _LIST = range(8)
_WIDTHS = ((1 << 8, "B"), (1 << 16, "H"), (1 << 32, "I"), (1 << 64, "Q"))
_ITEM_BYTES = {code: array(code).itemsize for _, code in _WIDTHS} | {"d": 8}
_ARRAY_16 = 0xDC
# First bytes of longer lists in MessagePack; of up to 15 values it is 0x90 and their number.
_ARRAY_32 = 0xDD
_LEAST_INT = -(1 << 63)
# Integers that MessagePack can hold.
_MOST_INT = (1 << 64) - 1
# Floats that are whole multiples of 1 / one of these are stored as integers; a file has the index here. The
# last is for times since 1970: between 2004 and 2038 every double is a whole number of 2^-22 s.
_POWERS = (1, 10, 100, 1000, 1_000_000, 1 << 22)
_EXACT = 1 << 53
_FEW_SHARE = 8
_CODES = {code for _, code in _WIDTHS}
_IS_SWAPPED = sys.byteorder == "big"
_HEADER = msgspec.msgpack.Decoder(tuple[bool, int, int, int, str])
# So many values decide whether a column is worth trying as decimals.
_HEAD = 4


class ColumnError(ValueError):
    """A column that no writer makes; caught where damaged blocks are counted, never shown."""


def pack_values(values: Sequence[Any], kind: str) -> bytes:
    """Pack a column of integers, floats or hashable values that MessagePack can hold; some may be None."""
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
    """Return an iterable of `count` values; `choices` decodes a list of values and refuses others."""
    if not 0 <= count <= MOST_ROWS:
        raise ColumnError(f"{count} rows")
    if count == 0:
        return ()
    if data[0] not in (_ABSENT, _SPARSE):
        return _unpack_dense(data, kind, count, choices)
    if not is_optional:
        raise ColumnError("a required value is missing")
    if data[0] == _ABSENT:
        return repeat(None, count)
    mask = data[1 : count + 1]
    present = mask.count(1)
    if len(mask) != count or present + mask.count(0) != count:
        raise ColumnError("a mask of another length")
    dense = iter(_unpack_dense(data[count + 1 :], kind, present, choices))
    return [next(dense) if is_there else None for is_there in mask]


def pack_mask(mask: Sequence[bool]) -> bytes:
    """Pack a column of whether a value is there."""
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
    how = data[0]
    body = data[1:]
    if how == _CONSTANT:
        return repeat(_decode_list(choices, body, 1)[0], count)
    if how == _LIST:
        values = _decode_list(choices, body, count)
        if len(values) != count:
            raise ColumnError(f"{len(values)} values, expected {count}")
        return values
    if how == _INTS and kind == "int":
        return _in_range(_unpack_ints(body, count))
    if how == _DECIMALS and kind == "float":
        if body[1] == _LIST:
            raise ColumnError("decimals of more than 64 bits")
        power = _POWERS[body[0]]
        return [value / power for value in _in_range(_unpack_ints(body[2:], count))]
    if how == _DOUBLES and kind == "float":
        return list(_join_bytes(body, "d", count))
    if how == _CHOICES:
        length = int.from_bytes(body[:4], "little")
        known = _decode_list(choices, body[4 : 4 + length], count)
        indexes = _unpack_ints(body[4 + length :], count)
        if min(indexes) < 0:
            raise ColumnError("an invalid choice")
        return [known[index] for index in indexes]
    raise ColumnError(f"a column of kind {how} for {kind}")


def _decode_list(choices: "msgspec.msgpack.Decoder[list[Any]]", data: bytes, most: int) -> list[Any]:
    """Decode a list of at most `most` values; its head must say so before it is decoded."""
    if data[0] >> 4 == 9:
        length = data[0] & 15
    elif data[0] in (_ARRAY_16, _ARRAY_32):
        length = int.from_bytes(data[1 : 3 if data[0] == _ARRAY_16 else 5], "big")
    else:
        raise ColumnError("no list")
    if not 0 < length <= most:
        raise ColumnError(f"{length} values, expected 1 to {most}")
    return clean_texts(choices.decode(data))


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
    """Pack integers as differences from one to the next, or from the least, whichever is shorter."""
    scale = math.gcd(*values) or 1
    dense = [value // scale for value in values] if scale > 1 else values
    low = min(dense)
    first = dense[0]
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
    stored = _join_bytes(body[1 + length :], code, stored_count)
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
    """0.0 and -0.0 are equal, but not one value."""
    if values.count(values[0]) != len(values):
        return False
    return values[0] != 0.0 or len(set(map(math.copysign, repeat(1.0), values))) == 1


def _scale(values: list[float], power: int) -> list[int] | None:
    """Return the values as integers of a power of ten, or None if that would change any."""
    for sample in (values[:_HEAD], values):
        if not all(map(math.isfinite, sample)) or max(map(abs, sample)) * power >= _EXACT:
            return None
        whole = [round(value * power) for value in sample]
        if [each / power for each in whole] != sample:
            return None
    has_negative_zero = 0 in whole and any(v == 0.0 and math.copysign(1.0, v) < 0 for v in values)
    return None if has_negative_zero else whole


def _scatter(values: "array[Any]") -> bytes:
    """Return the bytes of numbers in planes, lowest first."""
    if _IS_SWAPPED:
        values.byteswap()
    data = values.tobytes()
    size = values.itemsize
    return b"".join(data[place::size] for place in range(size))


def _join_bytes(data: bytes, code: str, count: int) -> "array[Any]":
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
