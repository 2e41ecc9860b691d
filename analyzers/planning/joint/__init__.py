"""One plan of all degrees at once: data, pipeline and tensor parallelism, under each device's memory."""

from ..time import StepTime
from .search import plan_jointly
from .space import (
    JOINT_PLAN_SCHEMA,
    JointAssumptions,
    JointConfiguration,
    JointOptions,
    JointPlan,
    JointStage,
    PrunedCount,
)

__all__ = [
    "JOINT_PLAN_SCHEMA",
    "JointAssumptions",
    "JointConfiguration",
    "JointOptions",
    "JointPlan",
    "JointStage",
    "PrunedCount",
    "StepTime",
    "plan_jointly",
]
