"""`plan_cluster`: how to train a model on a cluster, all degrees at once."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from vramscope.analyzers.cluster_graph import Cluster
from vramscope.analyzers.joint_plan import JointOptions, JointPlan, plan_jointly
from vramscope.analyzers.joint_plan.options import MEMORY_SHARE, RECOMPUTES, ZERO_STAGES
from vramscope.analyzers.memory_theory import ModelShape
from vramscope.analyzers.memory_theory.training import Recompute
from vramscope.analyzers.time_model import TimeAssumptions

from .clusters import read_cluster
from .described_model import describe_model

DEFAULT_SEQUENCE = 4096
"""Tokens of a sequence where nothing says; fewer where the model has fewer positions to learn."""


def plan_cluster(
    model: str | Path,
    cluster: Cluster | str | Path,
    *,
    global_batch: int,
    seq_length: int | None = None,
    max_tensor: int | None = None,
    zero_stages: Sequence[int] = ZERO_STAGES,
    recomputes: Sequence[Recompute] = RECOMPUTES,
    max_micro_batch: int = 32,
    context: int = 1,
    memory_share: float = MEMORY_SHARE,
    top: int = 10,
    efficiency: float | None = None,
    measured_times: str | Path | None = None,
) -> JointPlan:
    """Return the fastest configurations of a model on a cluster that fit, the fastest first.

    Nothing is run: memory is worked out by the memory theory, times by the time model; both are estimates.

    Args:
        model: A known name, or a configuration file, as `vramscope estimate` takes them.
        cluster: A cluster, or what `read_cluster` reads: a file, a short form as `128x8xh100`, `local`.
        global_batch: Sequences of a step, over all ranks.
        seq_length: Tokens of a sequence; None: 4,096, or as many as the model has positions if these are
        fewer.
        max_tensor: Most tensor ranks; None: as many as the smallest node has devices.
        zero_stages: ZeRO stages to choose from.
        recomputes: `none`, `selective`, `full`: what to choose from.
        max_micro_batch: Most sequences of a micro-batch.
        context: Context-parallel ranks.
        memory_share: Of each device's memory that a plan may fill.
        top: How many configurations are wanted, of different degrees each.
        efficiency: Share of the peak that large matrix products reach; None for what is assumed.
        measured_times: A file to learn times from (`learn_times`).

    Raises:
        UsageError: A name, size or option cannot be, or nothing fits; the text says what would.
        InputFileError: A file cannot be read or understood.
    """
    shape = describe_model(model).shape
    where = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    positions = shape.learned_positions or DEFAULT_SEQUENCE
    options = JointOptions(
        global_batch=global_batch,
        seq_length=min(positions, DEFAULT_SEQUENCE) if seq_length is None else seq_length,
        max_tensor=max_tensor,
        zero_stages=tuple(zero_stages),
        recomputes=tuple(recomputes),
        max_micro_batch=max_micro_batch,
        context=context,
        memory_share=memory_share,
        top=top,
    )
    assumptions = _assume(efficiency, measured_times, shape, where, options)
    return plan_jointly(Path(model).name, shape, where, options, assumptions)


def _assume(
    efficiency: float | None,
    measured_times: str | Path | None,
    shape: ModelShape,
    cluster: Cluster,
    options: JointOptions,
) -> TimeAssumptions:
    assumptions = TimeAssumptions()
    if measured_times is not None:
        from .time_calibration import learn_times

        assumptions = learn_times(Path(measured_times), shape, cluster, options)
    if efficiency is not None:
        assumptions = msgspec.structs.replace(assumptions, product_efficiency=efficiency)
    return assumptions
