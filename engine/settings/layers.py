"""The layers of settings: flag over environment over `./vramscope.toml` over user file over default."""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from ..errors import InputFileError, UsageError
from ..extras import find_missing_package
from ..files.base.input_file import read_text_file, show_path, show_text
from ..files.base.output_file import replacing
from ..files.base.output_route import save_by_helper
from ..files.base.toml_text import parse_toml
from ..paths import config_file
from ..text import find_nearest
from .model import (
    OWN_FILE_KEYS,
    RECORD_FOLDER_KEY,
    SETTING_KEYS,
    TABLES,
    WEBHOOK_KEY,
    Settings,
    convert_value,
    show_value,
)

# Many times what a person writes; the file of a stranger's folder must not keep us busy.
FILE_LIMIT_BYTES = 1 << 18
_LONGEST_KEY = 64


def read_settings_file(path: Path, *, refused: Collection[str] = ()) -> dict[str, object]:
    """Return the settings in a TOML file by key, each of its field's type.

    Args:
        refused: Keys that only a file of the user's own may have, which this one is not.

    Raises:
        InputFileError: The file cannot be read, is not TOML, or has an unknown key or a wrong value.
    """
    text = read_text_file(path, "a settings file", FILE_LIMIT_BYTES)
    table = parse_toml(text, path)
    found = {key: _check(path, text, key, value) for key, value in _flatten(path, text, table)}
    for key in found:
        if key in refused:
            raise InputFileError(
                f"{_place(path, text, key)}: {key} is ignored in a folder's file, which anyone may "
                f"have written: set it in {config_file()}, or give this file with --config"
            )
    return found


def _flatten(path: Path, text: str, table: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield key and value; inside a table of ours, after its name and a dot."""
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
    nearest = find_nearest(key[:_LONGEST_KEY].lower(), [*SETTING_KEYS, *SETTING_KEYS.values()])
    if nearest:
        return f'; did you mean "{nearest[0].removesuffix("_s")}"?'
    return f"; the settings are {', '.join(SETTING_KEYS)}"


def _place(path: Path, text: str, key: str) -> str:
    """Return the file and, if it is found, the line of a key or table; `a.b` is `b` in table `a`."""
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


def save_settings(values: Mapping[str, object], *, path: Path | None = None) -> Path:
    """Write settings into a settings file and return its path; all else in the file stays as it is.

    The file is replaced in one step, so that a reader never finds half of it; a link stays a link.

    Args:
        values: Values by key of the settings file or by field of `Settings`; None removes the key.
        path: File to write; None for the user's own.

    Raises:
        UsageError: A key is unknown or a value does not fit.
        InputFileError: The file cannot be understood or written.
        PackageMissingError: tomlkit is not installed.
        OutputFileError: This process is confined, and its helper says one of these things.
    """
    saved = save_by_helper(values)
    if saved is not None:
        return saved
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
    try:
        import tomlkit
        from tomlkit.exceptions import TOMLKitError
    except ModuleNotFoundError as error:
        raise find_missing_package(error) or error from None

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


PROJECT_FILE_NAME = "vramscope.toml"
_VARIABLE_PREFIX = "VRAMSCOPE_"
# Variables of ours that are no settings; a job of `vramscope run` finds its own among them.
OTHER_VARIABLES = frozenset(
    {
        "VRAMSCOPE_ADVICE",
        "VRAMSCOPE_CONFIG",
        "VRAMSCOPE_DEBUG",
        "VRAMSCOPE_JOB",
        "VRAMSCOPE_NODE",
        "VRAMSCOPE_PROBE",
        "VRAMSCOPE_ROOT",
        "VRAMSCOPE_RUNTIME_DIR",
        "VRAMSCOPE_SANDBOX",
        "VRAMSCOPE_SIMULATE",
        "VRAMSCOPE_SSH_COMMAND",
        "VRAMSCOPE_USER_PATH",
    }
)
# Prefix of the variables in which the command of a hook finds the finding.
FINDING_PREFIX = "VRAMSCOPE_FINDING_"


class LoadedSettings(msgspec.Struct, frozen=True):
    settings: Settings
    # Settings files that were read, the one that counts more last.
    files: tuple[Path, ...] = ()
    # Key to where its value was set, for every setting that is not the default.
    origins: dict[str, str] = {}


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    config: Path | None = None,
) -> LoadedSettings:
    """Return the settings of this run.

    Args:
        flags: Values given on the command line by key; None means not given.
        environ: Environment variables; None for this process's.
        folder: Folder of `vramscope.toml`; None for the current one.
        config: The only settings file to read, which must exist; None to look for them.

    Raises:
        UsageError: A flag or variable has a value that cannot be used.
        InputFileError: A settings file cannot be read or understood.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    project = (Path.cwd() if folder is None else folder) / PROJECT_FILE_NAME
    files = _list_files(environ, project, config)
    for path in files:
        refused = list_own_keys() if path == project else frozenset[str]()
        for key, value in read_settings_file(path, refused=refused).items():
            if path == project and key == "read_only" and values.get(key):
                continue  # what a person forbids everywhere, no folder permits
            values[key] = value
            origins[key] = str(path)
    for key, (variable, value) in _read_environment(environ).items():
        values[key] = value
        origins[key] = variable
    for key, value in (flags or {}).items():
        if value is not None:
            written = f"--{key.replace('_', '-')} {value}"
            values[key] = _convert_named(written, key, value)
            origins[key] = "flag"
    settings = msgspec.convert(_nest(values), Settings)
    return LoadedSettings(settings=settings, files=files, origins=origins)


def list_own_keys() -> frozenset[str]:
    """Return what `./vramscope.toml` cannot set: whoever wrote that file is not who runs vramscope.

    A stranger's repository starts no program, sends nothing, silences no alert and names no place to write.
    """
    of_alerts = {key for key in SETTING_KEYS if key.startswith("alerts.")}
    return OWN_FILE_KEYS | {RECORD_FOLDER_KEY} | (of_alerts - {"alerts.bell", "alerts.bell_level"})


def _nest(values: Mapping[str, object]) -> dict[str, object]:
    """Return values by field, those of a table inside one of their own."""
    fields: dict[str, object] = {}
    for key, value in values.items():
        table, _, field = SETTING_KEYS[key].rpartition(".")
        inside = fields.setdefault(table, {}) if table else fields
        assert isinstance(inside, dict)  # noqa: S101 - no setting has the name of a table
        inside[field] = value
    return fields


def _list_files(environ: Mapping[str, str], project: Path, config: Path | None) -> tuple[Path, ...]:
    if config is None and environ.get("VRAMSCOPE_CONFIG"):
        config = Path(environ["VRAMSCOPE_CONFIG"]).expanduser()
    if config is not None:
        return (config,)
    return tuple(path for path in (config_file(environ), project) if _exists(path))


def _exists(path: Path) -> bool:
    """Return whether there is anything at a path; if that cannot be known, nothing is read."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    except OSError:  # links in a circle, a name that is too long: reading it says what is wrong
        return True
    return True


def _read_environment(environ: Mapping[str, str]) -> dict[str, tuple[str, object]]:
    """Return key to variable and value, for the variables that are set and not empty."""
    found: dict[str, tuple[str, object]] = {}
    if environ.get("NO_COLOR"):
        found["color"] = ("NO_COLOR", False)
    for key in SETTING_KEYS:
        variable = _variable_of(key)
        text = environ.get(variable)
        if text:
            written = f"{variable}={'…' if key == WEBHOOK_KEY else text}"
            found[key] = (variable, _convert_named(written, key, text))
    return found


def _variable_of(key: str) -> str:
    return _VARIABLE_PREFIX + key.upper().replace(".", "_")


def list_unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the names of variables that begin like ours and mean nothing to vramscope."""
    known = OTHER_VARIABLES | {_variable_of(key) for key in SETTING_KEYS}
    ours = [name for name in environ if name.startswith(_VARIABLE_PREFIX) and name not in known]
    return sorted(name for name in ours if not name.startswith(FINDING_PREFIX))


def _convert_named(written: str, key: str, value: object) -> object:
    try:
        return convert_value(key, value)
    except UsageError as error:
        raise UsageError(f"{written}: {error}") from error
