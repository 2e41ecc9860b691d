"""The largest micro-batch that would fit, from steps of different sizes."""

from ...engine.model import HeadroomEstimate
from .advisor import HeadroomAdvisor
from .analyzer import HeadroomAnalyzer
from .estimate import estimate_headroom
from .points import StepSize

__all__ = ["HeadroomAdvisor", "HeadroomAnalyzer", "HeadroomEstimate", "StepSize", "estimate_headroom"]
