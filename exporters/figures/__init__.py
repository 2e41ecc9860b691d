"""Figures of memory over time, PNG for the eye and PDF for the page; matplotlib loads when one is drawn."""

from .curve import Curve, CurveRecorder
from .fragmentation import plot_fragmentation
from .heat_map import plot_heatmap
from .heat_map_cells import make_heat_map
from .memory_usage import plot_memory_usage
from .model import DeviceFigure, FigureFormat, FragmentationFigure, HeatMap, Marker, Peaks
from .peaks import plot_peaks

__all__ = [
    "Curve",
    "CurveRecorder",
    "DeviceFigure",
    "FigureFormat",
    "FragmentationFigure",
    "HeatMap",
    "Marker",
    "Peaks",
    "make_heat_map",
    "plot_fragmentation",
    "plot_heatmap",
    "plot_memory_usage",
    "plot_peaks",
]
