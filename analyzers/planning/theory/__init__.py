"""Memory of a training run from sizes alone: what each rank holds, of what, and at which moment most."""

from .estimate import check_all, estimate_stage, estimate_stages
from .layout import ParallelLayout, check_layout, split_layers
from .published import estimate_as_fork, estimate_as_published
from .rank_memory import MemoryPart, Moment, RankMemory
from .shape import ExpertShape, LatentAttention, ModelShape
from .states import StateBytes, count_states, share_states
from .training import BF16, BF16_GRADIENTS, FP16, FP32, FP32_SHARDED, GPUS, NumberFormat, TrainingSetup
from .weights import count_parameters

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
