"""Bytes that parameters cost on one rank: weights, gradients, master weights, moments, and how they shard."""

from collections.abc import Sequence

import msgspec

from .layout import ParallelLayout
from .training import NumberFormat, TrainingSetup
from .weights import WeightTensor
from .workspaces import round_up


class StateBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of model states on one rank."""

    weights: int = 0
    gradients: int = 0
    master_weights: int = 0
    optimizer: int = 0
    gradient_copies: int = 0
    """fp32 gradients between the optimizer's step and the next step."""
    fp8_copies: int = 0
    """Weights once more in fp8, as they are and transposed."""
    rounding: int = 0
    """What the allocator adds: every tensor is a multiple of 512 bytes."""

    @property
    def total(self) -> int:
        """Return all of them together."""
        return sum(getattr(self, name) for name in self.__struct_fields__)


def count_states(weights: Sequence[WeightTensor], layout: ParallelLayout, setup: TrainingSetup) -> StateBytes:
    """Return the bytes of the states of one rank's parameters.

    Stage 1 divides master weights and moments by the data ranks, 2 gradients too, 3 weights too (ZeRO,
    arXiv 1910.02054, section 5). Data ranks are DP x CP / instances for dense parameters, and the copies of
    an expert for routed ones (Megatron-LM, core/distributed/distributed_data_parallel.py).
    """
    dense = layout.data * layout.context // setup.optimizer_instances or 1
    total = _Sum()
    for tensor in weights:
        total.add(tensor, setup, layout.expert_data if tensor.is_expert else dense)
    return total.as_bytes()


def sum_states(shares: Sequence[tuple[StateBytes, int]]) -> StateBytes:
    """Return the states of parts of a rank, each with how often it is there."""
    names = StateBytes.__struct_fields__
    return StateBytes(**{name: sum(getattr(part, name) * times for part, times in shares) for name in names})


def share_states(parameters: int, ranks: int, stage: int, numbers: NumberFormat) -> float:
    """Return the bytes of model states a rank holds of one number of parameters under a ZeRO stage."""
    split = [ranks if stage >= least else 1 for least in (3, 2, 1, 1)]
    sizes = (numbers.weight_bytes, numbers.gradient_bytes, numbers.master_bytes, numbers.moment_bytes)
    return sum(parameters * size / parts for size, parts in zip(sizes, split, strict=True))


class _Sum:
    """States summed up tensor by tensor."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(StateBytes.__struct_fields__, 0)

    def add(self, tensor: WeightTensor, setup: TrainingSetup, ranks: int) -> None:
        """Add the states of tensors of one size."""
        numbers = setup.numbers
        stage = setup.zero_stage
        weight = 1 if setup.has_fp8_weights and tensor.is_matrix else numbers.weight_bytes
        self._add("weights", tensor, weight, ranks if stage >= 3 else 1)
        self._add("gradients", tensor, numbers.gradient_bytes, ranks if stage >= 2 else 1, is_one_buffer=True)
        shards = ranks if stage >= 1 else 1
        self._add("master_weights", tensor, numbers.master_bytes, shards)
        moments = numbers.moment_bytes
        if tensor.is_matrix and numbers.matrix_moment_bytes is not None:
            moments = numbers.matrix_moment_bytes
        self._add("optimizer", tensor, moments // 2, shards, copies=2)
        self._add("gradient_copies", tensor, numbers.gradient_copy_bytes, shards)
        if setup.is_fp8 and tensor.is_matrix:
            # The weight itself is one of the copies where it is kept in fp8.
            self._add("fp8_copies", tensor, 1, 1, copies=setup.fp8_copies - setup.has_fp8_weights)

    def _add(
        self,
        name: str,
        tensor: WeightTensor,
        element_bytes: int,
        shards: int,
        *,
        copies: int = 1,
        is_one_buffer: bool = False,
    ) -> None:
        exact = -(-tensor.elements // shards) * element_bytes
        self._sums[name] += exact * tensor.copies * copies
        if shards == 1 and not is_one_buffer:
            self._sums["rounding"] += (round_up(exact) - exact) * tensor.copies * copies

    def as_bytes(self) -> StateBytes:
        """Return the sums."""
        return StateBytes(**self._sums)
