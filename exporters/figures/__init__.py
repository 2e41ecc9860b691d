"""Figures of memory over time, PNG for the eye and PDF for the page; matplotlib loads when one is drawn."""

from .charts import plot_fragmentation, plot_heatmap, plot_memory_usage, plot_peaks
from .model import (
    Curve,
    CurveRecorder,
    DeviceFigure,
    FigureFormat,
    FragmentationFigure,
    HeatMap,
    Marker,
    Peaks,
    make_heat_map,
)

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
