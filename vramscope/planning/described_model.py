"""`describe_model`: the sizes of a model, from a name or a configuration of any kind that is read here."""

from pathlib import Path

from vramscope.analyzers.memory_theory.configs.document import Described, describe_config, describe_preset
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.readers.input_file import show_path
from vramscope.engine.readers.run_config import read_run_config

SUFFIXES = (".json", ".yaml", ".yml", ".toml", ".txt", ".log")
"""Of files: a model that ends so is one, whether it exists or not."""


def describe_model(model: str | Path) -> Described:
    """Return what a name or a file says of a model and of its training.

    Args:
        model: A known name, or a file: `config.json` of Hugging Face, Megatron-LM's arguments, a
            configuration of Galvatron or of torchtitan.

    Raises:
        UsageError: No model has the name; the text has the nearest.
        InputFileError: The file cannot be read or understood.
    """
    path = Path(model)
    if path.suffix not in SUFFIXES and not path.exists():
        return describe_preset(str(model))
    config = read_run_config(path)
    try:
        return describe_config(config)
    except UsageError as error:
        raise InputFileError(f"{show_path(path)}: {error}") from error
