"""The largest micro-batch that would fit, from steps of different sizes."""

from .advisor import HeadroomAdvisor
from .estimate import HeadroomEstimate, StepSize, estimate_headroom

__all__ = ["HeadroomAdvisor", "HeadroomEstimate", "StepSize", "estimate_headroom"]
