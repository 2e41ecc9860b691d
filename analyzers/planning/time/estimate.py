"""Seconds of a step of one given configuration."""

from collections.abc import Sequence

import msgspec

from ..cluster import Cluster
from ..theory import ModelShape, ParallelLayout, TrainingSetup, check_all, split_layers
from .assumptions import TimeAssumptions
from .device import DeviceSpeed, describe_speed
from .groups import find_groups, place_stages
from .prices import LayerPrices, time_stage
from .step import StepTime, add_up_step


def estimate_step(
    shape: ModelShape,
    layout: ParallelLayout,
    setup: TrainingSetup,
    cluster: Cluster,
    assumptions: TimeAssumptions | None = None,
) -> StepTime:
    """Return where the seconds of a step go.

    Args:
        shape: The model.
        layout: Degrees; no more ranks than the cluster has devices, which are taken from the first on.
        setup: Batch, ZeRO stage, recomputation.
        cluster: Devices and links.
        assumptions: What the times rest on.

    Raises:
        UsageError: Degrees, sizes or numbers that cannot be; one line says which and why.
    """
    check_all(shape, layout, setup)
    assumed = settle_assumptions(assumptions, cluster)
    stages = place_stages(layout)
    groups = find_groups(cluster, layout, stages, assumed)
    pieces = split_layers(shape.layers, layout)
    times = []
    for number, own in enumerate(stages):
        device = find_slowest(cluster, own)
        prices = LayerPrices(shape, layout, setup, device, groups[number], assumed)
        times.append(time_stage(prices, layout, setup, groups[number], assumed, number, pieces[number]))
    return add_up_step(times, layout, setup, assumed.factor)


def settle_assumptions(assumptions: TimeAssumptions | None, cluster: Cluster) -> TimeAssumptions:
    """Return what is assumed on a cluster: how much overlap slows computing as measured there, if it was."""
    assumed = assumptions or TimeAssumptions()
    slowdown = None if cluster.measured is None else cluster.measured.overlap_slowdown
    return assumed if slowdown is None else msgspec.structs.replace(assumed, overlap_slowdown=slowdown)


def find_slowest(cluster: Cluster, positions: Sequence[int]) -> DeviceSpeed:
    """Return the peaks of the slowest of some devices."""
    device = min((cluster.devices[at] for at in positions), key=lambda each: each.flops_per_s)
    return describe_speed(device)
