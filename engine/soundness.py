"""Numbers of others are accepted only if they are possible: times of a calendar, finite values.

A decoder checks types. What it lets through and no screen, history or date can represent (NaN, infinities, a
time of 1e300, an integer that no column holds) is found here, in every field of every kind of message. Which
fields hold numbers is computed once for each type, and all structs of one type are checked together: a viewer
reads a thousand devices a second.
"""

import math
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from .errors import WireError

# msgspec (0.22) works out the fields of a struct when the first decoder that holds it is made, and runs
# Python code for that. A second thread that makes a decoder with the same struct meanwhile gets it half
# worked out, and the process ends by a segmentation fault at its first message. So decoders of structs that
# several threads read are made here, under a lock.

Kind = TypeVar("Kind")
_MAKING = threading.Lock()


def make_msgpack_decoder(kind: type[Kind]) -> "msgspec.msgpack.Decoder[Kind]":
    with _MAKING:
        return msgspec.msgpack.Decoder(kind)


def make_json_decoder(kind: type[Kind]) -> "msgspec.json.Decoder[Kind]":
    with _MAKING:
        return msgspec.json.Decoder(kind)


EARLIEST_S = -62_000_000_000.0
# Within the years 5 and 9999: no other dates can be written, whatever the time zone.
LATEST_S = 253_402_000_000.0
# No column of a history or recording holds a larger number.
LARGEST = float(2**63 - 1)
MAX_REASON_CHARACTERS = 200

Part = TypeVar("Part", bound=msgspec.Struct)
_WITHOUT_NUMBERS = (str, bytes, bool, msgspec.Raw)
# Returns whether all numbers in some values of one type are possible.
_Check = Callable[[list[Any]], bool]
_CHECKERS: dict[type[msgspec.Struct], "_StructChecker"] = {}


def check_numbers(body: msgspec.Struct) -> None:
    """Refuse a message with an impossible number.

    Raises:
        WireError: It has one; the text says which field.
    """
    if not _checker_of(type(body)).are_sound([body]):
        raise WireError(f"{type(body).__name__}{_find('', body)}"[:MAX_REASON_CHARACTERS])


def is_sound(body: msgspec.Struct) -> bool:
    """Return whether all numbers of a message, or of a part of one, are possible."""
    return _checker_of(type(body)).are_sound([body])


def is_time(seconds: float) -> bool:
    """Return whether a number of seconds can be a time or a duration."""
    return EARLIEST_S <= seconds <= LATEST_S


def mend_numbers(body: Part) -> Part:
    """Make the impossible values of a message of our own unmeasured.

    Raises:
        WireError: An impossible number is in a field that must have one.
    """
    if is_sound(body):
        return body
    mended: Part = _repair(body)
    check_numbers(mended)
    return mended


class _StructChecker:
    """Checks the numbers of structs of one type: their sum, and each column where that is too much."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self.hints = get_type_hints(kind)
        numbers = [name for name, hint in self.hints.items() if _is_number(hint)]
        self._columns = [(attrgetter(name), *_limits_of(name)) for name in numbers]
        named: dict[float, list[str]] = {}
        for name, (_, least, most) in zip(numbers, self._columns, strict=True):
            named.setdefault(min(-least, most), []).append(name)
        # A second name makes a reader return a tuple, also of one field.
        self._groups = [(attrgetter(*names, names[0]), limit) for limit, names in named.items()]
        self._read_interval = attrgetter("interval_s") if "interval_s" in self.hints else None
        nested = ((name, _make_check(hint)) for name, hint in self.hints.items() if not _is_number(hint))
        self._nested = [(attrgetter(name), check) for name, check in nested if check is not None]

    def are_sound(self, structs: list[msgspec.Struct]) -> bool:
        if not (self._are_small(structs) or self._are_within(structs)):
            return False
        if self._read_interval is not None and min(map(self._read_interval, structs)) <= 0:
            return False
        for read, check in self._nested:
            parts = list(filter(None, map(read, structs)))
            if parts and not check(parts):
                return False
        return True

    def _are_small(self, structs: list[msgspec.Struct]) -> bool:
        """Return whether even the sum of all numbers is within their limits, as nearly always."""
        try:
            for read, limit in self._groups:
                # Not `>`: a sum that is no number is within nothing.
                if not sum(map(abs, filter(None, chain.from_iterable(map(read, structs))))) <= limit:
                    return False
        except OverflowError:  # an integer that no float holds, as JSON may have
            return False
        return True

    def _are_within(self, structs: list[msgspec.Struct]) -> bool:
        for read, least, most in self._columns:
            values = list(filter(None, map(read, structs)))
            if values and not (max(values) <= most and min(values) >= least and math.isfinite(sum(values))):
                return False
        return True


def _checker_of(kind: type[msgspec.Struct]) -> _StructChecker:
    checker = _CHECKERS.get(kind)
    if checker is None:
        checker = _CHECKERS[kind] = _StructChecker(kind)
    return checker


def _limits_of(name: str) -> tuple[float, float]:
    is_of_time = name == "seconds" or (name.endswith("_s") and not name.endswith("_per_s"))
    return (EARLIEST_S, LATEST_S) if is_of_time else (-LARGEST, LARGEST)


def _members(hint: object) -> list[object]:
    """Return the possible types of a value, without None."""
    is_union = get_origin(hint) in (Union, types.UnionType)
    return [it for it in (get_args(hint) if is_union else (hint,)) if it is not types.NoneType]


def _is_number(hint: object) -> bool:
    return all(it in (int, float) for it in _members(hint))


def _make_check(hint: object) -> _Check | None:
    """Return the check for values of a type; None if the type has no numbers."""
    members = [it for it in _members(hint) if it not in _WITHOUT_NUMBERS and get_origin(it) is not Literal]
    if len(members) != 1:
        return _are_all_sound if members else None
    member = members[0]
    origin = get_origin(members[0])
    if isinstance(member, type) and issubclass(member, msgspec.Struct):
        return lambda structs: _checker_of(member).are_sound(structs)
    inner = [it for it in get_args(member)[origin is dict :] if it is not Ellipsis]
    check = _make_check(inner[0]) if len(inner) == 1 else None
    if check is None:
        has_numbers = any(_is_number(it) or _make_check(it) is not None for it in inner)
        return _are_all_sound if has_numbers else None
    if origin is dict:
        return lambda dicts: _check_all(check, chain.from_iterable(each.values() for each in dicts))
    return lambda items: _check_all(check, chain.from_iterable(items))


def _check_all(check: _Check, values: Iterator[object]) -> bool:
    found = list(filter(None, values))
    return not found or check(found)


def _are_all_sound(values: Iterable[object]) -> bool:
    return all(_find("", value) is None for value in values)


def _find(name: str, value: object) -> str | None:
    """Name the impossible number in a value, as `.devices[3].power_w is nan`, or return None."""
    if isinstance(value, int | float):
        least, most = _limits_of(name)
        is_wrong = not least <= value <= most or (name == "interval_s" and value <= 0)
        if not is_wrong:
            return None
        # An integer of JSON may be one that no float holds.
        is_writable = isinstance(value, float) or abs(value) <= sys.float_info.max
        return f" is {value:.3g}" if is_writable else " is too large"
    parts: Iterable[tuple[str, str, object]] = ()
    if isinstance(value, msgspec.Struct):
        parts = ((f".{it}", it, getattr(value, it)) for it in value.__struct_fields__)
    elif isinstance(value, tuple | list):
        parts = ((f"[{at}]", "", it) for at, it in enumerate(value))
    elif isinstance(value, dict):
        parts = (("[…]", "", it) for it in value.values())
    for where, field, part in parts:
        found = _find(field, part)
        if found is not None:
            return f"{where}{found}"
    return None


def _repair(part: Part) -> Part:
    """Replace impossible optional numbers by None."""
    changes: dict[str, object] = {}
    for name, hint in _checker_of(type(part)).hints.items():
        value = getattr(part, name)
        if isinstance(value, msgspec.Struct):
            changes[name] = _repair(value)
        elif isinstance(value, tuple):
            changes[name] = tuple(_repair(it) if isinstance(it, msgspec.Struct) else it for it in value)
        elif _find(name, value) is not None and types.NoneType in get_args(hint):
            changes[name] = None
    return msgspec.structs.replace(part, **changes)
