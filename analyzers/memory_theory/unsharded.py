"""What fully sharded training holds whole for a moment: weights of a unit, and its gradients.

A unit is a layer; embedding and head are units of their own (torchtitan, models/llama3/parallelize.py;
Megatron-FSDP). DeepSpeed reduces buckets of 5e8 elements unless told otherwise (`reduce_bucket_size`), which
may be more than a layer.
"""

from collections.abc import Sequence

from .training import TrainingSetup
from .weights import WeightTensor

GATHERED_UNITS = 2
"""Layers whose whole weights are there at once: the one that runs, and the next, which is being fetched."""


def count_gathered(
    outside: Sequence[WeightTensor], largest_layer: int, parameters: int, setup: TrainingSetup
) -> int:
    """Return bytes of whole weights under ZeRO-3: the larger of embedding or head, and two layers.

    torchtitan gathers a pipeline stage once for all its micro-batches (models/llama3/parallelize.py,
    reshard_after_forward).

    Args:
        outside: Tensors that belong to no layer.
        largest_layer: Parameters of the largest layer.
        parameters: All parameters of the rank.
        setup: The run.
    """
    if setup.zero_stage < 3:
        return 0
    if setup.keeps_stage_whole:
        return parameters * setup.numbers.compute_bytes
    tables = (tensor.elements for tensor in outside if tensor.part in ("embedding", "head"))
    return max(max(tables, default=0), GATHERED_UNITS * largest_layer) * setup.numbers.compute_bytes


def count_whole_gradients(parameters: int, setup: TrainingSetup) -> int:
    """Return bytes of whole gradients that wait for the last micro-batch of a pipeline to be reduced.

    (PyTorch, torch/distributed/pipelining/stage.py, backward_maybe_with_nosync; FSDP adds them up in the
    format of the reduction.)
    """
    if setup.zero_stage < 3 or not setup.keeps_stage_whole:
        return 0
    return parameters * setup.numbers.gradient_bytes


def count_reduction(parameters: int, setup: TrainingSetup) -> int:
    """Return bytes of gradients on their way to their shards: the input of a reduce-scatter.

    It is in the format of gradients, and there until the next unit's begins (PyTorch,
    torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce).

    Args:
        parameters: Of one unit.
        setup: The run.
    """
    return parameters * setup.numbers.gradient_bytes if setup.zero_stage >= 2 else 0
