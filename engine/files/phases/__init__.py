"""Runs by phase: our own reports, and what the phase profilers of Opacus print and write."""

from .finding import is_phase_file, read_phase_file

__all__ = ["is_phase_file", "read_phase_file"]
