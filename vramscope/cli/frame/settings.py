"""Settings of a command line: its flags override everything else."""

from argparse import Namespace

from vramscope.engine.errors import ReadOnlyError
from vramscope.engine.settings import SETTING_KEYS, LoadedSettings, Settings, load_settings


def load_configuration(arguments: Namespace) -> LoadedSettings:
    flags = {key: getattr(arguments, key, None) for key in SETTING_KEYS}
    return load_settings(flags, config=getattr(arguments, "config", None))


def read_settings(arguments: Namespace) -> Settings:
    return load_configuration(arguments).settings


def refuse_if_read_only(arguments: Namespace, action: str) -> None:
    """Refuse to change another process if `read_only` is set anywhere in the settings.

    Args:
        action: What would change, as the first half of the sentence.
    """
    loaded = load_configuration(arguments)
    if not loaded.settings.read_only:
        return
    origin = loaded.origins["read_only"]
    if origin == "flag":
        why = "--read-only forbids that: leave it out"
    else:
        where = origin if origin == "VRAMSCOPE_READ_ONLY" else f"read_only in {origin}"
        why = f"{where} forbids that: put `VRAMSCOPE_READ_ONLY=false` before the command to allow it once"
    raise ReadOnlyError(f"{action}, and {why}")
