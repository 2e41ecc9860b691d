"""What a study says of each phase: one value a length, and the law of them."""

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

import msgspec

from ....engine.model.phase_memory import SETUP_PHASES, STEP_PHASES, LengthStudy, PhaseRun, PrivacyMode
from .fitting import LEAST_POINTS, fit_law
from .law import LengthLaw
from .peaks import PeakKind, PhaseLaw, fit_peaks, read_peak

PANELS: dict[str, tuple[str, ...]] = {
    "Model Creation": ("Model Creation",),
    "DP Setup": ("DP Setup",),
    "Forward Pass": ("Forward", "Loss"),
    "Backward Pass": ("Backward",),
    "Optimizer Step": ("Optimizer Step",),
    "Zero Gradients": ("Zero Gradients",),
}
"""The six panels, and the phases that are added up for each: the loss belongs to the forward pass."""
PHASES: dict[str, tuple[str, ...]] = {name: (name,) for name in (*SETUP_PHASES, *STEP_PHASES)}
"""Every phase by itself."""
_KINDS: tuple[PeakKind, ...] = ("allocated", "reserved")
PEAK_ALLOCATED = "peak allocated"
PEAK_RESERVED = "peak reserved"
MORE_THAN_NONE = "more than none"


class LengthSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one algorithm over the lengths of a study."""

    privacy: PrivacyMode
    name: str
    lengths: tuple[int, ...]
    values_bytes: tuple[int | None, ...]
    """By length; None where nothing was measured, or the run did not come so far."""
    law: LengthLaw | None = None
    """None where points are too few, or the figure follows no single law."""
    largest_of: tuple[PhaseLaw, ...] = ()
    """Of a peak: the laws of the phases that are the largest at one length or another."""
    residual_bytes: float | None = None
    """Root of the mean square of what was measured less what laws say; None without any."""
    predicted_bytes: dict[int, float] = {}
    """What is predicted of lengths without a value."""

    @property
    def points(self) -> int:
        """How many lengths have a value."""
        return sum(value is not None for value in self.values_bytes)

    @property
    def is_measured(self) -> bool:
        """Whether any length has a value."""
        return self.points > 0


def make_series(
    study: LengthStudy, privacy: PrivacyMode, sums: dict[str, tuple[str, ...]]
) -> tuple[LengthSeries, ...]:
    """Return the difference of allocated memory over phases, by length.

    Args:
        study: The runs.
        privacy: Of which algorithm.
        sums: Names, and the phases whose differences are added up for each: `PANELS` or `PHASES`.
    """
    runs = _list_runs(study, privacy)
    return tuple(
        _fit(
            privacy,
            name,
            study.lengths,
            [None if run is None else find_difference(run, phases) for run in runs],
        )
        for name, phases in sums.items()
    )


def make_peak_series(study: LengthStudy, privacy: PrivacyMode) -> tuple[LengthSeries, LengthSeries]:
    """Return the peaks of allocated and of reserved memory by length, of runs that finished.

    A peak is the largest of several phases, and so is what is said of it and predicted, see `fit_peaks`.
    """
    allocated, reserved = (_make_peaks(study, privacy, kind) for kind in _KINDS)
    # What is allocated is reserved too, also where the law of what is reserved was found among small sizes.
    predicted = {
        length: max(by, allocated.predicted_bytes.get(length, by))
        for length, by in reserved.predicted_bytes.items()
    }
    return allocated, msgspec.structs.replace(reserved, predicted_bytes=predicted)


def _make_peaks(study: LengthStudy, privacy: PrivacyMode, kind: PeakKind) -> LengthSeries:
    named = dict(zip(study.lengths, _list_runs(study, privacy), strict=True))
    ended = {length: run for length, run in named.items() if run is not None and run.end == "finished"}
    peaks = {length: run.peak for length, run in ended.items()}
    values = [
        None if (peak := peaks.get(length)) is None else read_peak(peak, kind) for length in study.lengths
    ]
    laws = fit_peaks({length: run for length, run in named.items() if run is not None}, kind)
    told = {length: laws.predict(length) for length in study.lengths}
    pairs = list(zip(study.lengths, values, strict=True))
    missed = [value - by for length, value in pairs if value is not None and (by := told[length]) is not None]
    # Through two points goes a line, which is enough to predict by, and no law.
    has_law = all(each.law.points >= LEAST_POINTS for each in laws.laws)
    return LengthSeries(
        privacy=privacy,
        name=PEAK_ALLOCATED if kind == "allocated" else PEAK_RESERVED,
        lengths=study.lengths,
        values_bytes=tuple(values),
        largest_of=laws.find_largest(study.lengths) if has_law else (),
        residual_bytes=math.sqrt(fmean(each * each for each in missed)) if has_law and missed else None,
        predicted_bytes={
            length: by for length, value in pairs if value is None and (by := told[length]) is not None
        },
    )


def make_cost_series(study: LengthStudy) -> tuple[LengthSeries, ...]:
    """Return by how much the peak of allocated memory of each algorithm is above that of plain training.

    Empty where plain training was not among what was compared.
    """
    if "none" not in study.privacy_modes:
        return ()
    plain, _ = make_peak_series(study, "none")
    return tuple(
        LengthSeries(
            privacy=mode,
            name=MORE_THAN_NONE,
            lengths=study.lengths,
            values_bytes=tuple(_subtract(make_peak_series(study, mode)[0], plain)),
        )
        for mode in study.privacy_modes
        if mode != "none"
    )


def find_difference(run: PhaseRun, phases: Sequence[str]) -> int | None:
    """Return what phases added to allocated memory in the last step; None where the run did not come so far.

    Earlier steps do not stand for it: the first makes what later ones find, such as the optimizer's state.
    """
    told = (each for each in run.phases if each.step in (None, run.training.num_steps))
    last = {each.phase: each.allocated_difference_bytes for each in told}
    values = [last.get(phase) for phase in phases]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _list_runs(study: LengthStudy, privacy: PrivacyMode) -> list[PhaseRun | None]:
    points = [study.find_point(privacy, length) for length in study.lengths]
    return [None if point is None else point.run for point in points]


def _subtract(series: LengthSeries, other: LengthSeries) -> Iterator[int | None]:
    for one, less in zip(series.values_bytes, other.values_bytes, strict=True):
        yield None if one is None or less is None else one - less


def _fit(
    privacy: PrivacyMode, name: str, lengths: tuple[int, ...], values: Sequence[int | None]
) -> LengthSeries:
    known = [(length, value) for length, value in zip(lengths, values, strict=True) if value is not None]
    law = fit_law([length for length, _ in known], [value for _, value in known])
    missing = [length for length, value in zip(lengths, values, strict=True) if value is None]
    return LengthSeries(
        privacy=privacy,
        name=name,
        lengths=lengths,
        values_bytes=tuple(values),
        law=law,
        residual_bytes=None if law is None else law.residual_bytes,
        predicted_bytes={} if law is None else {length: law.predict(length) for length in missing},
    )
