"""What measured times teach: how efficient products are, and one factor on everything."""

from collections.abc import Sequence
from math import exp, log
from statistics import fmean, median

import msgspec

from ....engine.errors import UsageError
from ..cluster import Cluster
from ..theory import ModelShape, ParallelLayout, TrainingSetup
from .assumptions import TimeAssumptions
from .device import DeviceSpeed
from .estimate import estimate_step
from .groups import StageGroups
from .layer_time import StageClock

EFFICIENCIES = tuple(step / 100 for step in range(20, 100, 5))
"""Efficiencies that are tried where several runs were measured."""
LAUNCHES_S = (5e-6, 10e-6, 20e-6, 40e-6, 60e-6, 80e-6)
"""Seconds of one operation on the host that are tried where runs are many."""
MANY_RUNS = 10

_replace = msgspec.structs.replace


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
    ratio there. Of ten or more, the host's time of an operation is learnt with the efficiency.

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
    tried = [assumptions]
    if len(runs) > 1:
        tried = [_replace(each, product_efficiency=share) for each in tried for share in EFFICIENCIES]
    if len(runs) >= MANY_RUNS:
        tried = [_replace(each, launch_s=seconds) for each in tried for seconds in LAUNCHES_S]
    fits = [_fit_factor(runs, cluster, each) for each in tried]
    best = min(range(len(fits)), key=lambda number: fits[number][0])
    learnt = f"{name}: {len(runs)} measured step" + ("s" if len(runs) > 1 else "")
    return _replace(tried[best], factor=fits[best][1], calibration=learnt)


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
        assumed = _replace(assumptions, product_efficiency=efficiency)
        clock = StageClock(shape, ParallelLayout(), setup, device, StageGroups(), assumed)
        return clock.time_layer(0).forward.total_s

    low = 0.01
    high = 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if estimate(middle) > layer_s else (low, middle)
    return _replace(assumptions, product_efficiency=high, calibration=f"{name}: one profiled layer")


def _fit_factor(
    runs: Sequence[TimedRun], cluster: Cluster, assumptions: TimeAssumptions
) -> tuple[float, float]:
    """Return how far estimates scatter around the measured steps, and the median ratio."""
    plain = _replace(assumptions, factor=1.0)
    ratios = [
        log(run.step_s / estimate_step(run.shape, run.layout, run.setup, cluster, plain).total_s)
        for run in runs
    ]
    middle = median(ratios)
    return fmean(abs(ratio - middle) for ratio in ratios), exp(middle)
