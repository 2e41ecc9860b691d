"""Seconds of a training step from sizes, degrees and peaks: what a plan is ranked by."""

from .assumptions import TimeAssumptions
from .calibration import TimedRun, fit_layer_profile, fit_runs
from .device import DeviceSpeed, describe_speed
from .estimate import estimate_step, find_slowest, settle_assumptions
from .groups import StageGroups, find_groups, place_stages
from .prices import LayerPrices, time_stage
from .products import count_model_flops
from .step import StageTime, StepTime, add_up_step, count_turns

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
