"""How structs become columns and columns structs again: a plan made once from the types of the fields.

Rows of nested tuples (devices of a sample, processes of a device) are laid out slot by slot: the first device
of every tick, then the second of every tick. A device keeps its place, so that its figures stand in a row.
A field that the file does not have gets its default; one that only the file has is passed over.
"""

import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, repeat
from operator import attrgetter
from typing import Any, Protocol

import msgspec

from .columns import MOST_ROWS, ColumnError, pack_mask, pack_values, unpack_values

_INT = msgspec.msgpack.Decoder(list[int])


class Plan(Protocol):
    """Writes and reads the values of one field."""

    def names(self) -> Iterator[str]:
        """Yield the names of its columns in the order in which they are written."""
        ...

    def write(self, values: Sequence[Any], out: list[bytes]) -> None:
        """Append its columns."""
        ...

    def read(self, columns: Mapping[str, bytes], count: int) -> Iterable[Any]:
        """Return `count` values; a KeyError says that the file has no such field."""
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
        """Yield its name."""
        yield self._name

    def write(self, values: Sequence[Any], out: list[bytes]) -> None:
        """Append the column."""
        out.append(pack_values(values, self._kind))

    def read(self, columns: Mapping[str, bytes], count: int) -> Iterable[Any]:
        """Return the values."""
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
        """Yield the names of its fields' columns."""
        return chain.from_iterable(plan.names() for _, _, plan in self._fields)

    def write(self, values: Sequence[Any], out: list[bytes]) -> None:
        """Append the columns of all fields."""
        for _, get, plan in self._fields:
            plan.write(list(map(get, values)), out)

    def read(self, columns: Mapping[str, bytes], count: int) -> Iterable[Any]:
        """Return the structs."""
        made = [self._read_field(field, plan, columns, count) for field, _, plan in self._fields]
        return list(map(self._struct, *made))

    def _read_field(
        self, field: msgspec.structs.FieldInfo, plan: Plan, columns: Mapping[str, bytes], count: int
    ) -> Iterable[Any]:
        if columns.keys().isdisjoint(plan.names()) and field.default is not msgspec.NODEFAULT:
            return repeat(field.default, count)
        return plan.read(columns, count)


class OptionalPlan:
    """What may be None as a whole: a column that says where it is, and the columns of those that are."""

    def __init__(self, name: str, inner: Plan) -> None:
        self._mask = LeafPlan(f"{name}?", int)
        self._inner = inner

    def names(self) -> Iterator[str]:
        """Yield the name of the mask and of what it masks."""
        yield from self._mask.names()
        yield from self._inner.names()

    def write(self, values: Sequence[Any], out: list[bytes]) -> None:
        """Append the mask and the columns of what is there."""
        there = [value is not None for value in values]
        out.append(pack_mask(there))
        self._inner.write(list(compress(values, there)), out)

    def read(self, columns: Mapping[str, bytes], count: int) -> Iterable[Any]:
        """Return the values, None where nothing was."""
        there = list(self._mask.read(columns, count))
        dense = iter(self._inner.read(columns, sum(1 for each in there if each)))
        return [next(dense) if each else None for each in there]


class TuplePlan:
    """Tuples of structs: how long each is, and all their rows, slot by slot."""

    def __init__(self, name: str, struct: type[msgspec.Struct]) -> None:
        self._lengths = LeafPlan(f"{name}#", int)
        self._rows = StructPlan(name, struct)

    def names(self) -> Iterator[str]:
        """Yield the name of the lengths and of the rows' columns."""
        yield from self._lengths.names()
        yield from self._rows.names()

    def write(self, values: Sequence[Any], out: list[bytes]) -> None:
        """Append the lengths and the rows."""
        self._lengths.write(list(map(len, values)), out)
        rows: list[Any] = []
        slot, left = 0, [value for value in values if value]
        while left:
            rows += [value[slot] for value in left]
            slot += 1
            left = [value for value in left if len(value) > slot]
        self._rows.write(rows, out)

    def read(self, columns: Mapping[str, bytes], count: int) -> Iterable[Any]:
        """Return the tuples."""
        lengths = list(self._lengths.read(columns, count))
        total = sum(lengths)
        if min(lengths, default=0) < 0 or total > MOST_ROWS:
            raise ColumnError(f"{total} rows in tuples")
        rows = list(self._rows.read(columns, total))
        if lengths and min(lengths) == max(lengths):
            slots = (rows[start : start + count] for start in range(0, total, count))
            return list(zip(*slots, strict=True)) or repeat((), count)
        made: list[list[Any]] = [[] for _ in lengths]
        taken, slot, left = iter(rows), 0, [place for place, length in enumerate(lengths) if length]
        while left:
            for place in left:
                made[place].append(next(taken))
            slot += 1
            left = [place for place in left if lengths[place] > slot]
        return list(map(tuple, made))


def plan_of(name: str, hint: Any) -> Plan:  # noqa: ANN401 - as a field is annotated
    """Return the plan of a field.

    Args:
        name: Name of the field, with those that it stands in.
        hint: Its type: a leaf, a struct, a tuple of structs, or one of these or None.
    """
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
