"""Models as graphs of layers: parameters, bytes and FLOPs of each, and what they hand on."""

from .catalog import MODELS, Architecture, Batch, Family, find_model
from .graph import (
    MIB,
    STATE_BYTES,
    DataType,
    EdgeInfo,
    Figures,
    LayerNode,
    LayerType,
    ModelGraph,
    StateBytes,
    plan_layers,
)

__all__ = [
    "MIB",
    "MODELS",
    "STATE_BYTES",
    "Architecture",
    "Batch",
    "DataType",
    "EdgeInfo",
    "Family",
    "Figures",
    "LayerNode",
    "LayerType",
    "ModelGraph",
    "StateBytes",
    "find_model",
    "plan_layers",
]
