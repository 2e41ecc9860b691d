"""NVIDIA devices through NVML, NVIDIA's management library."""

from .source import NvmlSource

__all__ = ["NvmlSource"]
