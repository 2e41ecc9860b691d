"""Values of settings: from a file, the environment or a flag to the type of their field."""

from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from ..errors import UsageError
from ..files.base.input_file import show_text
from ..units import parse_duration
from .alerts import COMMAND_KEY, WEBHOOK_KEY
from .model import SETTING_KEYS, TABLES, Settings
from .record import RECORD_FOLDER_KEY

_TYPES: dict[str, Any] = get_type_hints(Settings, include_extras=True) | {
    f"{table}.{field}": hint
    for table, struct in TABLES.items()
    for field, hint in get_type_hints(struct, include_extras=True).items()
}
_OTHER_EXPECTATIONS = {
    COMMAND_KEY: "a program with its arguments, as one text or as a list",
    WEBHOOK_KEY: "an address that begins with http:// or https://",
    RECORD_FOLDER_KEY: "a folder, in quotation marks",
}
_WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def convert_value(key: str, value: object) -> object:
    """Return a value as the type of its setting.

    Args:
        key: Key of the setting, as in a settings file.
        value: What was written: a TOML value, or the text of a flag or variable.

    Raises:
        UsageError: The value does not fit; the text says what was expected, the caller says where.
    """
    field = SETTING_KEYS[key]
    try:
        return msgspec.convert(_prepare(field, value), _TYPES[field])
    except (msgspec.ValidationError, UsageError, OverflowError) as error:
        raise UsageError(f"expected {describe_expectation(key)}") from error


def describe_expectation(key: str) -> str:
    """Return in words what values a setting takes."""
    field = SETTING_KEYS[key]
    if _is_duration(field):
        meta = next(part for part in get_args(_TYPES[field]) if isinstance(part, msgspec.Meta))
        return f"seconds or a duration such as 500ms, 90s or 10m, from {meta.ge:g} to {meta.le:g} seconds"
    if key in _OTHER_EXPECTATIONS:
        return _OTHER_EXPECTATIONS[key]
    choices = ", ".join(list_choices(key))
    if _is_list(field):
        return f"a list of words out of {choices}" if choices else "a list of words"
    return f"one of {choices}" if choices else "true or false"


def list_choices(key: str) -> tuple[str, ...]:
    """Return the words a setting can be, or nothing where it is not a choice among words."""
    hint = _TYPES[SETTING_KEYS[key]]
    for part in (hint, *get_args(hint)):
        if get_origin(part) is Literal:
            return get_args(part)
    return ()


def _prepare(field: str, value: object) -> object:
    """Bring text that a person wrote closer to the type of its field."""
    if isinstance(value, str) and _is_duration(field):
        return parse_duration(value)
    if isinstance(value, int) and not isinstance(value, bool) and _is_duration(field):
        return float(value)
    if isinstance(value, str) and field == COMMAND_KEY:
        return _split_command(value)
    if isinstance(value, str) and _is_list(field):
        return [word.strip() for word in value.split(",") if word.strip()]
    if isinstance(value, str) and field != RECORD_FOLDER_KEY and not list_choices(field.removesuffix("_s")):
        return _WORDS.get(value.strip().lower(), value)
    return value


def _is_duration(field: str) -> bool:
    return field.endswith("_s")


def _is_list(field: str) -> bool:
    return get_origin(_TYPES[field]) is tuple


def _split_command(text: str) -> list[str]:
    import shlex

    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"a quotation mark is not closed in {text!r}") from error


def show_value(key: str, value: object) -> str:
    """Return a value as it may be printed: an address may hold a secret, and is not repeated."""
    if key == WEBHOOK_KEY:
        return "…"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{show_text(value)}"'
    try:
        return show_text(str(value))
    except ValueError:  # an int of more digits than Python prints
        return "a number of thousands of digits"
