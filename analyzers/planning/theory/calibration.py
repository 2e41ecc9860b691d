"""Fits an estimate to somebody's own measurements: two numbers that shift it.

Between steps a software stack holds a constant more or less than the theory says (workspaces of its
libraries), and keeps activations in a constant ratio to it (its kernels). Both are medians over measured
runs, so that single odd runs do not move them.
"""

from collections.abc import Sequence
from statistics import fmean, median

import msgspec

from ....engine.errors import UsageError

SCHEMA = "vramscope.calibration/1"
# Fewer measured runs say nothing about the next one.
LEAST_RUNS = 4


class Measured(msgspec.Struct, frozen=True):
    """Predicted and measured bytes of one run."""

    predicted_allocated_bytes: int
    predicted_peak_bytes: int
    allocated_bytes: int
    peak_bytes: int


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Two numbers that correct the memory theory, and how accurate they are."""

    schema: str = SCHEMA
    source: str = ""
    """Name of the file of measurements."""
    runs: int
    offset_bytes: int
    """Bytes added to what is allocated between steps, and so to the peak."""
    activation_scale: float
    """Factor for the peak's share above that."""
    plain_error_percent: float
    """Mean absolute error of the peak without calibration, on runs that it was not fitted to."""
    held_out_error_percent: float
    """The same with calibration, fitted to the other half of the runs."""

    def shift(self, allocated_bytes: int, peak_bytes: int) -> tuple[int, int]:
        """Shift an estimate of allocated and peak bytes by these measurements."""
        allocated = max(0, allocated_bytes + self.offset_bytes)
        return allocated, allocated + round(self.activation_scale * (peak_bytes - allocated_bytes))


def fit_calibration(runs: Sequence[Measured], source: str = "") -> Calibration:
    """Fit the two numbers to measured runs.

    Every second run is held out once, the others the second time; the errors are means over both halves.

    Raises:
        UsageError: Fewer than four runs.
    """
    if len(runs) < LEAST_RUNS:
        raise UsageError(
            f"{len(runs)} measured runs are too few to calibrate by; expected at least {LEAST_RUNS}"
        )
    offset, scale = _fit(runs)
    halves = ((runs[::2], runs[1::2]), (runs[1::2], runs[::2]))
    shifted = [_measure_error(_fit(known), held) for known, held in halves]
    plain = [_measure_error((0, 1.0), held) for _, held in halves]
    return Calibration(
        source=source,
        runs=len(runs),
        offset_bytes=offset,
        activation_scale=scale,
        plain_error_percent=fmean(plain),
        held_out_error_percent=fmean(shifted),
    )


def _fit(runs: Sequence[Measured]) -> tuple[int, float]:
    offset = round(median(run.allocated_bytes - run.predicted_allocated_bytes for run in runs))
    ratios = [
        (run.peak_bytes - run.allocated_bytes) / above
        for run in runs
        if (above := run.predicted_peak_bytes - run.predicted_allocated_bytes) > 0
    ]
    return offset, median(ratios) if ratios else 1.0


def _measure_error(fitted: tuple[int, float], runs: Sequence[Measured]) -> float:
    """Return the mean absolute error of the peak in percent."""
    offset, scale = fitted
    errors = []
    for run in runs:
        above = run.predicted_peak_bytes - run.predicted_allocated_bytes
        predicted = run.predicted_allocated_bytes + offset + scale * above
        errors.append(abs(predicted / run.peak_bytes - 1))
    return 100 * fmean(errors)
