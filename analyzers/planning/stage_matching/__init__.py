"""Which device runs which pipeline stage, where devices differ."""

from .matching import match_stages
from .model import Matching, StageDevice

__all__ = ["Matching", "StageDevice", "match_stages"]
