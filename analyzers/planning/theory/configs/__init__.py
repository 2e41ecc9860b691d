"""Configurations of other programs, as the model, layout and training run that they describe."""

from .flags import Flags, TrainingRun
from .megatron import read_megatron_run

__all__ = ["Flags", "TrainingRun", "read_megatron_run"]
