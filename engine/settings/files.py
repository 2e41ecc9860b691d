"""Settings files: read with every fault told by file, line, key and expectation."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ..errors import InputFileError, UsageError
from ..files.base.input_file import read_text_file, show_path, show_text
from ..files.base.toml_text import parse_toml
from ..paths import config_file
from .model import SETTING_KEYS, TABLES
from .values import convert_value, show_value

FILE_LIMIT_BYTES = 1 << 18
"""Many times what a person writes; the file of a stranger's folder must not keep us busy."""
_LONGEST_KEY = 64


def read_settings_file(path: Path, *, refused: Collection[str] = ()) -> dict[str, object]:
    """Return the settings in a TOML file by key, each of its field's type.

    Args:
        path: The file.
        refused: Keys that only a file of the user's own may hold, which this one is not.

    Raises:
        InputFileError: The file cannot be read, is not TOML, or holds an unknown key or a wrong value.
    """
    text = read_text_file(path, "a settings file", FILE_LIMIT_BYTES)
    table = parse_toml(text, path)
    found = {key: _check(path, text, key, value) for key, value in _flatten(path, text, table)}
    for key in found:
        if key in refused:
            raise InputFileError(
                f"{_place(path, text, key)}: {key} is not taken from the file of a folder, which anybody "
                f"may have written: set it in {config_file()}, or name this file with --config"
            )
    return found


def _flatten(path: Path, text: str, table: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield key and value; what stands in a table of ours has its name before a dot."""
    for key, value in table.items():
        if key not in TABLES:
            yield key, value
        elif isinstance(value, dict):
            yield from ((f"{key}.{inside}", found) for inside, found in value.items())
        else:
            raise InputFileError(
                f"{_place(path, text, key)}: {key} = {show_value(key, value)}: expected a table, [{key}]"
            )


def _check(path: Path, text: str, key: str, value: object) -> object:
    if key not in SETTING_KEYS:
        raise InputFileError(f'{_place(path, text, key)}: unknown setting "{show_text(key)}"{_suggest(key)}')
    try:
        return convert_value(key, value)
    except UsageError as error:
        raise InputFileError(
            f"{_place(path, text, key)}: {key} = {show_value(key, value)}: {error}"
        ) from error


def _suggest(key: str) -> str:
    import difflib

    nearest = difflib.get_close_matches(
        key[:_LONGEST_KEY].lower(), [*SETTING_KEYS, *SETTING_KEYS.values()], n=1
    )
    if nearest:
        return f'; did you mean "{nearest[0].removesuffix("_s")}"?'
    return f"; the settings are {', '.join(SETTING_KEYS)}"


def _place(path: Path, text: str, key: str) -> str:
    """Return the file and, where it is found, the line of a key or table; `a.b` is `b` in table `a`."""
    table, _, name = key.rpartition(".")
    lines = text.split("\n")
    first = _find_start(lines, table, 0) if table else 0
    begins = None if first is None else _find_start(lines, name, first)
    found = first if begins is None and table else begins
    return show_path(path) if found is None else f"{show_path(path)}:{found + 1}"


def _find_start(lines: list[str], key: str, first: int) -> int | None:
    """Return the number (from 0) of the first line that begins with a key, a table, or `table.key`."""
    start = re.compile(rf"""\[{{0,2}}\s*(?:[\w-]+\s*\.\s*)?["']?{re.escape(key)}["']?\s*[=.\]]""")
    return next((n for n in range(first, len(lines)) if start.match(lines[n].lstrip())), None)
