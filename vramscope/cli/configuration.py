"""Settings of one command line: its flags over everything else."""

from argparse import Namespace

from vramscope.engine.settings import SETTING_KEYS, LoadedSettings, Settings, load_settings


def load_configuration(arguments: Namespace) -> LoadedSettings:
    """Return the settings with their origins.

    Raises:
        UsageError: A flag or variable has a value that cannot be used.
        InputFileError: A settings file cannot be read or understood.
    """
    flags = {key: getattr(arguments, key, None) for key in SETTING_KEYS}
    return load_settings(flags, config=getattr(arguments, "config", None))


def read_settings(arguments: Namespace) -> Settings:
    """Return the settings of one command line."""
    return load_configuration(arguments).settings
