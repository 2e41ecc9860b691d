"""Out of memory ahead: when, how likely, and for every subject how near it is."""

from .analyzer import OomAnalyzer

__all__ = ["OomAnalyzer"]
