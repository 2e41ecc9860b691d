"""Figures of memory over time, PNG for the eye and PDF for the page; matplotlib loads when one is drawn."""

from .charts import plot_devices_over_time, plot_fragmentation, plot_memory_usage, plot_peaks
from .model import (
    Curve,
    CurveRecorder,
    DeviceFigure,
    DevicesOverTime,
    FigureFormat,
    FragmentationFigure,
    Marker,
    Peaks,
    make_devices_over_time,
)

__all__ = [
    "Curve",
    "CurveRecorder",
    "DeviceFigure",
    "DevicesOverTime",
    "FigureFormat",
    "FragmentationFigure",
    "Marker",
    "Peaks",
    "make_devices_over_time",
    "plot_devices_over_time",
    "plot_fragmentation",
    "plot_memory_usage",
    "plot_peaks",
]
