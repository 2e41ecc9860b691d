"""Settings files: read with every fault told by file, line, key and expectation."""

import difflib
import re
import tomllib
from pathlib import Path

from ..errors import InputFileError, UsageError
from .model import SETTING_KEYS
from .values import convert_value

FILE_LIMIT_BYTES = 1 << 20


def read_settings_file(path: Path) -> dict[str, object]:
    """Return the settings in a TOML file by key, each of its field's type.

    Raises:
        InputFileError: The file cannot be read, is not TOML, or holds an unknown key or a wrong value.
    """
    text = _read_text(path)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputFileError(f"{path}: not TOML: {error}") from error
    return {key: _check(path, text, key, value) for key, value in table.items()}


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
        raise InputFileError(f"{where}: {key} = {_show(value)}: {error}") from error


def _suggest(key: str) -> str:
    nearest = difflib.get_close_matches(key.lower(), [*SETTING_KEYS, *SETTING_KEYS.values()], n=1)
    if nearest:
        return f'; did you mean "{nearest[0].removesuffix("_s")}"?'
    return f"; the settings are {', '.join(SETTING_KEYS)}"


def find_line(text: str, key: str) -> int:
    """Return the line (from 1) on which a top-level key or table of a TOML text begins."""
    start = re.compile(rf"""^\s*\[{{0,2}}\s*["']?{re.escape(key)}["']?\s*[=.\]]""")
    for number, line in enumerate(text.splitlines(), start=1):
        if start.match(line):
            return number
    return 1


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else repr(value)
