"""The memory of a server for a model: weights, cache of a token, and what fits onto a device."""

from .estimate import choose_batches, estimate_serving
from .model import SCHEMA, PoolPlan, RankPlan, ServedModel, ServingReport, ServingSetup, Span
from .reading import PRECISIONS, Precision, describe_served_preset, names_served_type, read_served_model

__all__ = [
    "PRECISIONS",
    "SCHEMA",
    "PoolPlan",
    "Precision",
    "RankPlan",
    "ServedModel",
    "ServingReport",
    "ServingSetup",
    "Span",
    "choose_batches",
    "describe_served_preset",
    "estimate_serving",
    "names_served_type",
    "read_served_model",
]
