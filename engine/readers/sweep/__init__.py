"""Sweeps over parallel layouts: one memory trace a configuration that ran, and logs of those that did not."""

from .index import read_sweep
from .model import ConfigurationLog, SkippedFile, Sweep, SweepConfiguration, SweepTrace

__all__ = [
    "ConfigurationLog",
    "SkippedFile",
    "Sweep",
    "SweepConfiguration",
    "SweepTrace",
    "read_sweep",
]
