"""Ranks of one job that should be alike, and the one that grows away from them or limits them."""

from .analyzer import DivergenceAnalyzer
from .model import RankGroup, RankLevel
from .words import KIND

__all__ = ["KIND", "DivergenceAnalyzer", "RankGroup", "RankLevel"]
