"""Leaks: floors of device memory, or resident host memory, that grow without end."""

from .analyzer import LeakAnalyzer

__all__ = ["LeakAnalyzer"]
