"""What a plan said of every stage, what was measured, and the plan that follows from it."""

from .feedback import make_feedback
from .measurement import JobMeasurement, MeasuredJob, MeasuredStage
from .model import FEEDBACK_SCHEMA, FeedbackSplit, FeedbackStage, PlanFeedback

__all__ = [
    "FEEDBACK_SCHEMA",
    "FeedbackSplit",
    "FeedbackStage",
    "JobMeasurement",
    "MeasuredJob",
    "MeasuredStage",
    "PlanFeedback",
    "make_feedback",
]
