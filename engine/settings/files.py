"""Settings files: read with every fault told by file, line, key and expectation."""

import difflib
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ..errors import InputFileError, UsageError
from ..paths import config_file
from .model import SETTING_KEYS, TABLES
from .values import convert_value, show_value

FILE_LIMIT_BYTES = 1 << 20


def read_settings_file(path: Path, *, refused: Collection[str] = ()) -> dict[str, object]:
    """Return the settings in a TOML file by key, each of its field's type.

    Args:
        path: The file.
        refused: Keys that only a file of the user's own may hold, which this one is not.

    Raises:
        InputFileError: The file cannot be read, is not TOML, or holds an unknown key or a wrong value.
    """
    text = _read_text(path)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputFileError(f"{path}: not TOML: {error}") from error
    found = {key: _check(path, text, key, value) for key, value in _flatten(path, text, table)}
    for key in found:
        if key in refused:
            raise InputFileError(
                f"{path}:{find_line(text, key)}: {key} is not taken from the file of a folder, which anybody "
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
            where = f"{path}:{find_line(text, key)}"
            raise InputFileError(f"{where}: {key} = {show_value(key, value)}: expected a table, [{key}]")


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_LIMIT_BYTES + 1)
        if len(data) > FILE_LIMIT_BYTES:
            raise InputFileError(f"{path}: longer than {FILE_LIMIT_BYTES} bytes; expected a settings file")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}; expected a settings file") from error
    except UnicodeDecodeError as error:
        raise InputFileError(
            f"{path}: not UTF-8 text at byte {error.start}; expected a settings file"
        ) from error


def _check(path: Path, text: str, key: str, value: object) -> object:
    where = f"{path}:{find_line(text, key)}"
    if key not in SETTING_KEYS:
        raise InputFileError(f'{where}: unknown setting "{key}"{_suggest(key)}')
    try:
        return convert_value(key, value)
    except UsageError as error:
        raise InputFileError(f"{where}: {key} = {show_value(key, value)}: {error}") from error


def _suggest(key: str) -> str:
    nearest = difflib.get_close_matches(key.lower(), [*SETTING_KEYS, *SETTING_KEYS.values()], n=1)
    if nearest:
        return f'; did you mean "{nearest[0].removesuffix("_s")}"?'
    return f"; the settings are {', '.join(SETTING_KEYS)}"


def find_line(text: str, key: str) -> int:
    """Return the line (from 1) on which a key or table of a TOML text begins; `a.b` is `b` in table `a`."""
    table, _, name = key.rpartition(".")
    lines = text.splitlines()
    first = _find_start(lines, table, 0) if table else 0
    if first is None:
        return 1
    begins = _find_start(lines, name, first)
    return 1 + (first if begins is None else begins)


def _find_start(lines: list[str], key: str, first: int) -> int | None:
    """Return the number (from 0) of the first line that begins with a key, a table, or `table.key`."""
    start = re.compile(rf"""^\s*\[{{0,2}}\s*(?:[\w-]+\s*\.\s*)?["']?{re.escape(key)}["']?\s*[=.\]]""")
    return next((n for n in range(first, len(lines)) if start.match(lines[n])), None)
