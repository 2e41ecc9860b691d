"""Seconds of a training step from sizes, degrees and peaks: what a plan is ranked by."""

from .estimate import (
    LayerPrices,
    StageTime,
    StepTime,
    TimedRun,
    add_up_step,
    count_turns,
    estimate_step,
    find_slowest,
    fit_layer_profile,
    fit_runs,
    settle_assumptions,
    time_stage,
)
from .groups import DeviceSpeed, StageGroups, TimeAssumptions, describe_speed, find_groups, place_stages
from .layer_time import count_model_flops

__all__ = [
    "DeviceSpeed",
    "LayerPrices",
    "StageGroups",
    "StageTime",
    "StepTime",
    "TimeAssumptions",
    "TimedRun",
    "add_up_step",
    "count_model_flops",
    "count_turns",
    "describe_speed",
    "estimate_step",
    "find_groups",
    "find_slowest",
    "fit_layer_profile",
    "fit_runs",
    "place_stages",
    "settle_assumptions",
    "time_stage",
]
