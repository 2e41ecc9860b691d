"""Text that steers a terminal, hides or reorders what is read, and facts in which every text is hostile."""

import types
import typing
from typing import Literal, TypeVar

import msgspec

OWN_SEQUENCES = r"\x1b\[[0-9;]*m"
"""What a table in colour may write."""
PRINTED = (
    "\x1b]52;c;QUFB\x07\x1b]0;owned\x07\x1b[5m\x9b31m\x84\x7f"
    "\u061c\u202e\u2066\u200b\ufeff\u2028\n\t\r\U000e0041"
)
HOSTILE = f"{PRINTED}\ud800[bold][link=x]"
"""With half of a surrogate pair, which no file or message in UTF-8 can hold; and Rich's own markup."""

_Value = TypeVar("_Value")


def list_forbidden(text: str) -> list[str]:
    """Return the characters of an output that may steer the terminal it is shown on."""
    return sorted({ascii(it) for it in text if not it.isprintable() and it != "\n"})


def poison(value: _Value, text: str = PRINTED) -> _Value:
    """Return a struct of which every text, also within, begins with a hostile one; what was absent is too.

    Equal texts stay equal, so that what names a device still does.
    """
    return typing.cast("_Value", _poison(value, type(value), text))


def _poison(value: object, hint: object, text: str) -> object:
    if typing.get_origin(hint) is Literal:
        return value
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if str in choices and (value is None or isinstance(value, str)):
        return f"{text}{value or ''}"
    if isinstance(value, msgspec.Struct):
        hints = typing.get_type_hints(type(value))
        fields = {name: _poison(getattr(value, name), hints[name], text) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    if isinstance(value, tuple):
        kinds = [it for choice in choices for it in typing.get_args(choice) if it is not Ellipsis]
        return tuple(_poison(it, kinds[0] if len(kinds) == 1 else type(it), text) for it in value)
    return value
