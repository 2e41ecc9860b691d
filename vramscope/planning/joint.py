"""`plan_cluster`: how to train a model on a cluster, all degrees at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from msgspec.structs import replace

from vramscope.analyzers.planning.cluster import Cluster
from vramscope.analyzers.planning.joint import JointOptions, JointPlan, plan_jointly
from vramscope.analyzers.planning.theory import ModelShape
from vramscope.analyzers.planning.theory.shape import Recompute
from vramscope.analyzers.planning.time import TimeAssumptions

from .clusters import read_cluster
from .described_model import describe_model

DEFAULT_SEQUENCE = 4096
"""Tokens of a sequence where nothing says; fewer where the model has fewer positions to learn."""


class PlanChoices(TypedDict, total=False):
    """What `plan_cluster` chooses from; what is left out is as in `JointOptions`."""

    max_tensor: int | None
    """Most tensor ranks; None: as many as the smallest node has devices."""
    zero_stages: Sequence[int]
    recomputes: Sequence[Recompute]
    """Some of `none`, `selective` and `full`."""
    max_micro_batch: int
    """Most sequences of a micro-batch."""
    context: int
    """Context-parallel ranks."""
    memory_share: float
    """Of each device's memory that a plan may fill."""
    top: int
    """How many configurations are wanted, of different degrees each."""


def plan_cluster(
    model: str | Path,
    cluster: Cluster | str | Path,
    *,
    global_batch: int,
    seq_length: int | None = None,
    efficiency: float | None = None,
    measured_times: str | Path | None = None,
    **choices: Unpack[PlanChoices],
) -> JointPlan:
    """Return the fastest configurations that fit, the fastest first; times and bytes are estimates.

    Args:
        model: A known name, or a configuration file, as `vramscope estimate` takes them.
        cluster: A cluster, or what `read_cluster` reads: a file, a short form as `128x8xh100`, `local`.
        global_batch: Sequences of a step, over all ranks.
        seq_length: Tokens of a sequence; None: 4,096, or as many as the model has learned positions.
        efficiency: Share of the peak that large matrix products reach; None for what is assumed.
        measured_times: A file to learn times from (`learn_times`).
        choices: What to choose from (`PlanChoices`).

    Raises:
        UsageError: A name, size or option cannot be, or nothing fits; the text says what would.
        InputFileError: A file cannot be read or understood.
    """
    shape = describe_model(model).shape
    where = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    usual = min(shape.learned_positions or DEFAULT_SEQUENCE, DEFAULT_SEQUENCE)
    tokens = usual if seq_length is None else seq_length
    options = replace(JointOptions(global_batch=global_batch, seq_length=tokens), **_settle(choices))
    assumptions = _assume(efficiency, measured_times, shape, where, options)
    return plan_jointly(Path(model).name, shape, where, options, assumptions)


def _settle(choices: PlanChoices) -> dict[str, object]:
    settled: dict[str, object] = dict(choices)
    for name in ("zero_stages", "recomputes"):
        if name in settled:
            settled[name] = tuple(choices[name])
    return settled


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
        assumptions = replace(assumptions, product_efficiency=efficiency)
    return assumptions
