"""`describe_model`: the sizes of a model, from a name or a configuration of any kind that is read here."""

from pathlib import Path

from vramscope.analyzers.planning.graph.catalog import MODELS
from vramscope.analyzers.planning.theory.configs.document import Described, describe_config, describe_preset
from vramscope.analyzers.planning.theory.presets import PRESETS
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.files.run_config import read_run_config

from .model_file import find_model_file, make_name


def describe_model(model: str | Path) -> Described:
    """Return what a name or a file says of a model and of its training.

    Args:
        model: A known name, or a file: `config.json` of Hugging Face (or the folder that it is in),
            Megatron-LM's arguments, a configuration of Galvatron or of torchtitan.

    Raises:
        UsageError: No decoder has the name; the text has the nearest.
        InputFileError: The file cannot be read or understood.
    """
    path = find_model_file(model)
    if path is None:
        return describe_preset(_check_is_decoder(str(model).strip()))
    config = read_run_config(path)
    try:
        return describe_config(config)
    except UsageError as error:
        raise InputFileError(f"{show_path(path)}: {error}") from error


def _check_is_decoder(name: str) -> str:
    key = make_name(name)
    if key in MODELS and key not in PRESETS:
        raise UsageError(
            f"{name} is no decoder, and the memory theory knows decoders only; its layers can be split with "
            f"`vramscope plan --model {key} --stages 2-8`"
        )
    return name
