"""Sweeps over parallel layouts: one memory trace a configuration that ran, and logs of those that did not."""

from .folders import FolderPair, find_sweeps
from .index import read_pair, read_sweep
from .model import ConfigurationLog, SkippedFile, Sweep, SweepConfiguration, SweepTrace

__all__ = [
    "ConfigurationLog",
    "FolderPair",
    "SkippedFile",
    "Sweep",
    "SweepConfiguration",
    "SweepTrace",
    "find_sweeps",
    "read_pair",
    "read_sweep",
]
