"""The layers of settings: flag over environment over `./vramscope.toml` over user file over default."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ..errors import UsageError
from ..paths import config_file
from .alerts import OWN_FILE_KEYS, WEBHOOK_KEY
from .model import SETTING_KEYS, Settings
from .values import convert_value

PROJECT_FILE_NAME = "vramscope.toml"
_VARIABLE_PREFIX = "VRAMSCOPE_"
OTHER_VARIABLES = frozenset(
    {
        "VRAMSCOPE_ADVICE",
        "VRAMSCOPE_CONFIG",
        "VRAMSCOPE_DEBUG",
        "VRAMSCOPE_JOB",
        "VRAMSCOPE_NODE",
        "VRAMSCOPE_PROBE",
        "VRAMSCOPE_RUNTIME_DIR",
        "VRAMSCOPE_SIMULATE",
        "VRAMSCOPE_SSH_COMMAND",
        "VRAMSCOPE_USER_PATH",
    }
)
"""Variables of ours that are no settings; a job of `vramscope run` finds its own among them."""
FINDING_PREFIX = "VRAMSCOPE_FINDING_"
"""Begins the variables in which the command of a hook finds the finding."""


class LoadedSettings(msgspec.Struct, frozen=True):
    """Settings with where they came from."""

    settings: Settings
    files: tuple[Path, ...] = ()
    """Settings files that were read, the one that counts more last."""
    origins: dict[str, str] = {}
    """Key to where its value was set, for every setting that is not the default."""


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
        folder: Folder in which `vramscope.toml` is looked for; None for the current one.
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
        from .files import read_settings_file

        refused = OWN_FILE_KEYS if path == project else frozenset[str]()
        for key, value in read_settings_file(path, refused=refused).items():
            if path == project and key == "read_only" and values.get(key):
                continue  # what a person forbids everywhere, no folder permits
            values[key], origins[key] = value, str(path)
    for key, (variable, value) in _read_environment(environ).items():
        values[key], origins[key] = value, variable
    for key, value in (flags or {}).items():
        if value is not None:
            written = f"--{key.replace('_', '-')} {value}"
            values[key], origins[key] = _convert_named(written, key, value), "flag"
    settings = msgspec.convert(_nest(values), Settings)
    return LoadedSettings(settings=settings, files=files, origins=origins)


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
    """Tell whether there is anything at a path; where that cannot be known, nothing is read."""
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
