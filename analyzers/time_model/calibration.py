"""What measured times teach: how efficient products are, and one factor on everything."""

from collections.abc import Sequence
from math import exp, log
from statistics import fmean, median

import msgspec

from ...engine.errors import UsageError
from ..cluster_graph import Cluster
from ..memory_theory import ModelShape, ParallelLayout, TrainingSetup
from .assumptions import TimeAssumptions
from .device import DeviceSpeed
from .estimate import estimate_step
from .groups import StageGroups
from .layer_time import StageClock

EFFICIENCIES = tuple(step / 100 for step in range(20, 100, 5))
"""Efficiencies that are tried where several runs were measured."""


class TimedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run that was measured."""

    shape: ModelShape
    layout: ParallelLayout
    setup: TrainingSetup
    step_s: float


def fit_runs(
    runs: Sequence[TimedRun], cluster: Cluster, assumptions: TimeAssumptions, name: str
) -> TimeAssumptions:
    """Return assumptions that fit some measured steps best.

    Of one run a factor is learnt. Of more, the efficiency of products is the one at which estimates scatter
    least around the measured steps (mean absolute logarithm of their ratio), and the factor is their median
    ratio there.

    Args:
        runs: At least one.
        cluster: Where they ran.
        assumptions: What is assumed of the rest.
        name: What is said of where this was learnt.

    Raises:
        UsageError: There are no runs, or one cannot be.
    """
    if not runs:
        raise UsageError(f"{name}: no measured run; expected at least one row")
    tried = EFFICIENCIES if len(runs) > 1 else (assumptions.product_efficiency,)
    fits = [_fit_factor(runs, cluster, assumptions, efficiency) for efficiency in tried]
    _, efficiency, factor = min(fits)
    return msgspec.structs.replace(
        assumptions,
        product_efficiency=efficiency,
        factor=factor,
        calibration=f"{name}: {len(runs)} measured steps",
    )


def fit_layer_profile(
    layer_s: float,
    shape: ModelShape,
    setup: TrainingSetup,
    device: DeviceSpeed,
    assumptions: TimeAssumptions,
    name: str,
) -> TimeAssumptions:
    """Return assumptions under which one layer's forward pass on one device takes what was measured.

    Args:
        layer_s: Seconds of the pass of one micro-batch.
        shape: The model that was profiled.
        setup: Its sequence length and micro-batch.
        device: What it was profiled on.
        assumptions: What is assumed of the rest.
        name: What is said of where this was learnt.
    """

    def estimate(efficiency: float) -> float:
        assumed = msgspec.structs.replace(assumptions, product_efficiency=efficiency)
        clock = StageClock(shape, ParallelLayout(), setup, device, StageGroups(), assumed)
        return clock.time_layer(0).forward.total_s

    low, high = 0.01, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if estimate(middle) > layer_s else (low, middle)
    return msgspec.structs.replace(
        assumptions, product_efficiency=high, calibration=f"{name}: one profiled layer"
    )


def _fit_factor(
    runs: Sequence[TimedRun], cluster: Cluster, assumptions: TimeAssumptions, efficiency: float
) -> tuple[float, float, float]:
    """Return how far estimates scatter at an efficiency, the efficiency, and the median ratio."""
    assumed = msgspec.structs.replace(assumptions, product_efficiency=efficiency, factor=1.0)
    ratios = [log(run.step_s / _estimate(run, cluster, assumed)) for run in runs]
    middle = median(ratios)
    return fmean(abs(ratio - middle) for ratio in ratios), efficiency, exp(middle)


def _estimate(run: TimedRun, cluster: Cluster, assumptions: TimeAssumptions) -> float:
    return estimate_step(run.shape, run.layout, run.setup, cluster, assumptions).total_s
