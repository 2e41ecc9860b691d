"""Places within a snapshot, and what is said when something else stands there than was expected."""

from collections.abc import Callable
from operator import itemgetter
from typing import NoReturn, cast

from ...errors import InputFileError

Place = tuple[str | int, ...]
"""Keys and positions from the root down."""

_NAMES = {
    dict: "a dict",
    list: "a list",
    tuple: "a tuple",
    str: "text",
    int: "an integer",
    float: "a float",
    bool: "true or false",
    bytes: "bytes",
    type(None): "None",
}


def show_place(place: Place) -> str:
    """Return a place as a person reads it: `segments[3].blocks[17].size`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".") or "the root"


def name_type(value: object) -> str:
    """Return what a value is, in words."""
    return _NAMES.get(type(value), f"a {type(value).__name__}")


def refuse(place: Place, text: str) -> NoReturn:
    """Raise what is wrong at a place.

    Raises:
        InputFileError: Always.
    """
    raise InputFileError(f"at {show_place(place)}: {text}")


def expect_dict(value: object, place: Place) -> dict[object, object]:
    """Return a dict, or refuse what is none."""
    if not isinstance(value, dict):
        refuse(place, f"expected a dict, got {name_type(value)}")
    return value


def expect_list(value: object, place: Place) -> list[object]:
    """Return a list, or refuse what is none."""
    if not isinstance(value, list):
        refuse(place, f"expected a list, got {name_type(value)}")
    return value


def expect_int(value: object, place: Place, least: int = -(2**63), most: int = 2**63 - 1) -> int:
    """Return an integer within bounds, or refuse."""
    if not isinstance(value, int):
        refuse(place, f"expected an integer, got {name_type(value)}")
    if not least <= value <= most:
        shown = value if abs(value) < 2**70 else "a number of many digits"
        refuse(place, f"expected an integer from {least} to {most}, got {shown}")
    return value


def expect_address(value: object, place: Place) -> int:
    """Return an address of 64 bits; a negative one was written as signed and is meant unsigned."""
    return expect_int(value, place, least=-(2**63), most=2**64 - 1) % 2**64


def take(fields: dict[object, object], key: str, place: Place) -> object:
    """Return the value of a key that must be there, or refuse."""
    if key not in fields:
        refuse(place, f"the key `{key}` is missing")
    return fields[key]


def make_getter(key: str) -> Callable[[object], object]:
    """Return a function that takes a key from what should be a dict; it runs at the speed of C.

    Applied to anything else, it raises what Python raises.
    """
    return cast("Callable[[object], object]", itemgetter(key))


def make_int_getter(key: str) -> Callable[[object], int]:
    """Return the same for integers; an array that takes them checks that they are."""
    return cast("Callable[[object], int]", itemgetter(key))
