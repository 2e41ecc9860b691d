"""One plan of all degrees at once: data, pipeline and tensor parallelism, under each device's memory."""

from .model import (
    JOINT_PLAN_SCHEMA,
    JointAssumptions,
    JointConfiguration,
    JointPlan,
    JointStage,
    PrunedCount,
    StepTime,
)

__all__ = [
    "JOINT_PLAN_SCHEMA",
    "JointAssumptions",
    "JointConfiguration",
    "JointPlan",
    "JointStage",
    "PrunedCount",
    "StepTime",
]
