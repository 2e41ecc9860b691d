"""Memory of a training run from sizes alone: what each rank holds, of what, and at which moment most."""

from .estimate import MemoryPart, Moment, RankMemory, check_all, estimate_stage, estimate_stages
from .presets import estimate_as_fork, estimate_as_published
from .shape import (
    BF16,
    BF16_GRADIENTS,
    FP16,
    FP32,
    FP32_SHARDED,
    GPUS,
    ExpertShape,
    LatentAttention,
    ModelShape,
    NumberFormat,
    ParallelLayout,
    TrainingSetup,
    check_layout,
    split_layers,
)
from .weights import StateBytes, count_parameters, count_states, share_states

__all__ = [
    "BF16",
    "BF16_GRADIENTS",
    "FP16",
    "FP32",
    "FP32_SHARDED",
    "GPUS",
    "ExpertShape",
    "LatentAttention",
    "MemoryPart",
    "ModelShape",
    "Moment",
    "NumberFormat",
    "ParallelLayout",
    "RankMemory",
    "StateBytes",
    "TrainingSetup",
    "check_all",
    "check_layout",
    "count_parameters",
    "count_states",
    "estimate_as_fork",
    "estimate_as_published",
    "estimate_stage",
    "estimate_stages",
    "share_states",
    "split_layers",
]
