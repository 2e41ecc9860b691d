"""Models as graphs of layers: parameters, bytes and FLOPs of each, and what they hand on."""

from .architecture import Architecture, Family
from .catalog import MODELS, find_model
from .chain import Figures
from .graph import ModelGraph, plan_layers
from .layer import MIB, STATE_BYTES, DataType, EdgeInfo, LayerNode, LayerType, StateBytes
from .sizes import Batch

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
