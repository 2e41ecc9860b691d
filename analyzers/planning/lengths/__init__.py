"""How memory grows with the length of a sequence: values by phase and the laws that they follow."""

from .fitting import LEAST_POINTS, fit_law
from .law import LawForm, LengthLaw
from .peaks import PeakKind, PeakLaws, PhaseLaw, fit_peaks, read_peak
from .series import (
    MORE_THAN_NONE,
    PANELS,
    PEAK_ALLOCATED,
    PEAK_RESERVED,
    PHASES,
    LengthSeries,
    find_difference,
    make_cost_series,
    make_peak_series,
    make_series,
)
from .words import say_law, say_residual, say_series, say_size

__all__ = [
    "LEAST_POINTS",
    "MORE_THAN_NONE",
    "PANELS",
    "PEAK_ALLOCATED",
    "PEAK_RESERVED",
    "PHASES",
    "LawForm",
    "LengthLaw",
    "LengthSeries",
    "PeakKind",
    "PeakLaws",
    "PhaseLaw",
    "find_difference",
    "fit_law",
    "fit_peaks",
    "make_cost_series",
    "make_peak_series",
    "make_series",
    "read_peak",
    "say_law",
    "say_residual",
    "say_series",
    "say_size",
]
