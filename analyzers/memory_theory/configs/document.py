"""A configuration file of any kind, as the model and the flags it stands for."""

from typing import NamedTuple

from ....engine.readers.run_config import RunConfig
from ..presets import find_preset
from ..shape import ModelShape
from .flags import Flags
from .galvatron import flag_galvatron
from .hugging_face import flag_hugging_face, flag_plain_training
from .megatron_shape import read_shape
from .torchtitan import count_torchtitan_data, flag_torchtitan, name_torchtitan_model


class Described(NamedTuple):
    """A model, and what else its description says of the run."""

    shape: ModelShape
    flags: dict[str, object]
    """Flags of Megatron-LM for layout and setup."""
    data: int | None = None
    """Data ranks, where they are given."""


def describe_preset(name: str) -> Described:
    """Return a model by its name, trained without dropout in bf16.

    Raises:
        UsageError: No model has the name.
    """
    return Described(find_preset(name), flag_plain_training())


def describe_config(config: RunConfig) -> Described:
    """Return what a configuration describes.

    Raises:
        UsageError: A size is missing or no number.
    """
    if config.kind == "torchtitan":
        shape = find_preset(name_torchtitan_model(config.values))
        return Described(shape, flag_torchtitan(config.values), count_torchtitan_data(config.values))
    flags = config.values
    if config.kind == "hugging_face":
        flags = flag_hugging_face(flags)
    elif config.kind == "galvatron":
        flags = flag_galvatron(flags)
    return Described(read_shape(Flags(flags)), flags)
