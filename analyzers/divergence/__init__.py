"""Ranks of one job that should be alike, and the one that grows away from them or limits them."""

from .analyzer import GROWTH, KIND, WHAT, DivergenceAnalyzer, RankGroup, RankLevel

__all__ = ["GROWTH", "KIND", "WHAT", "DivergenceAnalyzer", "RankGroup", "RankLevel"]
