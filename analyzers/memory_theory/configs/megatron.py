"""Runs of Megatron-LM, from its own flags and their defaults (megatron/training/arguments.py)."""

from ....engine.errors import UsageError
from ..shape import ModelShape
from ..training import Gpu
from .flags import Flags
from .megatron_layout import read_layout
from .megatron_setup import read_setup
from .megatron_shape import read_shape
from .run import TrainingRun

NOT_MODELLED = (
    "hybrid-override-pattern",
    "is-hybrid-model",
    "hybrid-layer-pattern",
    "decoder-num-layers",
    "experimental-attention-variant",
    "linear-attention-freq",
)
"""Flags of models that are not a plain stack of decoder layers."""


def read_megatron_run(
    flags: Flags, *, world_size: int, gpu: Gpu = "h100", is_deterministic: bool = False, name: str = ""
) -> TrainingRun:
    """Return the run that Megatron-LM's flags describe.

    Args:
        flags: The flags that were given; what is not, has Megatron-LM's default.
        world_size: Ranks of the job; Megatron-LM takes it from its launcher.
        gpu: Which GPU it runs on.
        is_deterministic: Whether it runs with `--deterministic-mode`, where the flags do not say.
        name: What the run is called.

    Raises:
        UsageError: A flag is missing or no number, or the degrees do not fit the world size.
    """
    for other in NOT_MODELLED:
        if flags.is_on(other):
            raise UsageError(f"{other} is set: only stacks of decoder layers with attention can be estimated")
    if "mamba" in flags.find_word("spec", ""):
        raise UsageError(
            "spec names Mamba layers: only stacks of decoder layers with attention can be estimated"
        )
    shape = read_shape(flags)
    deterministic = is_deterministic or flags.is_on("deterministic-mode")
    return build_run(shape, flags, world_size=world_size, gpu=gpu, is_deterministic=deterministic, name=name)


def build_run(
    shape: ModelShape,
    flags: Flags,
    *,
    world_size: int,
    gpu: Gpu = "h100",
    is_deterministic: bool = False,
    name: str = "",
) -> TrainingRun:
    """Return the run of a known model: layout and setup from flags; arguments as of `read_megatron_run`.

    Raises:
        UsageError: A flag is missing or no number, or the degrees do not fit the world size.
    """
    layout = read_layout(flags, shape, world_size)
    setup = read_setup(flags, layout, gpu, is_deterministic=is_deterministic)
    return TrainingRun(name=name, shape=shape, layout=layout, setup=setup)
