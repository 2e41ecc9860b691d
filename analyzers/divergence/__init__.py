"""Ranks of one job that should be alike, and the one that grows away from them or limits them."""

from .analyzer import KIND, DivergenceAnalyzer, RankGroup, RankLevel

__all__ = ["KIND", "DivergenceAnalyzer", "RankGroup", "RankLevel"]
