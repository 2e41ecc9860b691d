"""Advice about a training by phase: which phase to attack, what makes up its peak, what would lower it."""

from .advice import advise_phases
from .model import AdviceTrial, PartBasis, PartName, PeakPart, PhaseAdvice, PhaseChange

__all__ = ["AdviceTrial", "PartBasis", "PartName", "PeakPart", "PhaseAdvice", "PhaseChange", "advise_phases"]
