"""Saving settings: into the user's file, with the comments and the order people gave it."""

import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import InputFileError, UsageError
from ..files.base.input_file import read_text_file, show_path, show_text
from ..files.base.output_file import replacing
from ..paths import config_file
from .model import SETTING_KEYS
from .values import convert_value


def save_settings(values: Mapping[str, object], *, path: Path | None = None) -> Path:
    """Write settings into a settings file and return its path; all else in the file stays as it is.

    The file is replaced in one step, so that a reader never meets half of it; a link stays a link.

    Args:
        values: Values by key of the settings file or by field of `Settings`; None removes the key.
        path: File to write; None for the user's own.

    Raises:
        UsageError: A key is unknown or a value does not fit.
        InputFileError: The file cannot be understood or written.
    """
    path = Path(os.path.realpath(config_file() if path is None else path))
    checked = {_key(name): _checked(name, value) for name, value in values.items()}
    try:
        text = _updated_text(path, checked)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise InputFileError(f"{path}: settings not saved: {error.strerror or error}") from error
    return path


def _key(name: str) -> str:
    key = name if name in SETTING_KEYS else name.removesuffix("_s")
    if key not in SETTING_KEYS:
        raise UsageError(f'unknown setting "{name}"; the settings are {", ".join(SETTING_KEYS)}')
    return key


def _checked(name: str, value: object) -> object:
    try:
        return None if value is None else convert_value(_key(name), value)
    except UsageError as error:
        raise UsageError(f"{name} = {value!r}: {error}") from error


def _updated_text(path: Path, values: Mapping[str, object]) -> str:
    # tomlkit keeps comments and order; it is slow to import, so only saving pays for it.
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    from ..files.base.toml_text import parse_toml
    from .files import FILE_LIMIT_BYTES

    try:
        text = read_text_file(path, "a settings file", FILE_LIMIT_BYTES) if os.path.lexists(path) else ""
        parse_toml(text, path)  # tomlkit has no bounds, and is many times slower
        document = tomlkit.parse(text)
    except InputFileError as error:
        raise InputFileError(f"settings not saved: {error}") from error
    except TOMLKitError as error:
        raise InputFileError(
            f"settings not saved: {show_path(path)}: {show_text(str(error), 200)}"
        ) from error
    for key, value in values.items():
        table, _, name = key.rpartition(".")
        inside = document.setdefault(table, tomlkit.table()) if table else document
        if value is None:
            inside.pop(name, None)
        else:
            inside[name] = list(value) if isinstance(value, tuple) else value
    return tomlkit.dumps(document)
