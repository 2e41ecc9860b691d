"""Configurations of other programs, as the model, layout and training run that they describe."""

from .flags import Flags
from .megatron import read_megatron_run
from .run import TrainingRun

__all__ = ["Flags", "TrainingRun", "read_megatron_run"]
