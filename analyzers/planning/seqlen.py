"""How memory grows with the length of a sequence: values by phase and the laws that they follow."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from statistics import fmean, stdev
from typing import Literal

import msgspec

from ...engine.model.phase_memory import (
    SETUP_PHASES,
    STEP_PHASES,
    LengthStudy,
    MemoryLevels,
    PhaseRun,
    PrivacyMode,
)
from ...engine.units import GIB, KIB, MIB
from ...engine.unmeasured import sum_all

# How memory depends on the length of a sequence: a polynomial of few terms, and how well it fits.

LawForm = Literal["constant", "linear", "quadratic"]
# By number of their terms.
FORMS: tuple[LawForm, ...] = ("constant", "linear", "quadratic")


class LengthLaw(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes as a polynomial of the tokens of a sequence."""

    form: LawForm
    constant_bytes: float
    bytes_per_token: float = 0.0
    bytes_per_token_squared: float = 0.0
    points: int
    """Number of points that it was fitted to."""
    residual_bytes: float
    """Root mean square of measured less the law."""
    left_out_bytes: float
    """The same for each point and the law fitted to the others: the expected error of predictions."""

    def predict(self, seq_length: float) -> float:
        return self.constant_bytes + seq_length * (
            self.bytes_per_token + seq_length * self.bytes_per_token_squared
        )


# Which law points follow: least squares; the form is chosen by how well it predicts points left out.

# Method: leave-one-out cross-validation (Stone, 1974) with the rule of one standard error (Breiman, Friedman,
# Olshen and Stone, 1984): among the forms that predict about as well as the best one, the one with the fewest
# terms. Arithmetic is exact, so that points which follow a law to the byte leave no residual.

LEAST_POINTS = 3
# The CUDA caching allocator rounds sizes up to it, so that no law is more exact than that.
BLOCK_BYTES = 512


def fit_law(lengths: Sequence[int], values_bytes: Sequence[int]) -> LengthLaw | None:
    """Fit a law to measured values at different lengths in tokens; None where they are too few for any."""
    count = len(lengths)
    if count < LEAST_POINTS:
        return None
    # A form needs a point beyond its terms, also where one is left out.
    most_terms = min(len(FORMS), count - 1)
    errors = {terms: _leave_each_out(lengths, values_bytes, terms) for terms in range(1, most_terms + 1)}
    terms = _choose_terms(errors)
    coefficients = _solve(lengths, values_bytes, terms)
    residuals = [
        value - _evaluate(coefficients, length) for length, value in zip(lengths, values_bytes, strict=True)
    ]
    constant, slope, curvature = (float(each) for each in (*coefficients, Fraction(0), Fraction(0))[:3])
    return LengthLaw(
        form=FORMS[terms - 1],
        constant_bytes=constant,
        bytes_per_token=slope,
        bytes_per_token_squared=curvature,
        points=count,
        residual_bytes=_find_root_mean_square(residuals),
        left_out_bytes=_find_root_mean_square(errors[terms]),
    )


def _choose_terms(errors: dict[int, list[Fraction]]) -> int:
    squares = {terms: [float(each * each) for each in missed] for terms, missed in errors.items()}
    best = min(squares.values(), key=fmean)
    allowed = fmean(best) + stdev(best) / math.sqrt(len(best)) + BLOCK_BYTES**2
    return next(terms for terms in sorted(squares) if fmean(squares[terms]) <= allowed)


def _leave_each_out(lengths: Sequence[int], values: Sequence[int], terms: int) -> list[Fraction]:
    """Return by how much the law of the others misses each point."""
    missed = []
    for at, (length, value) in enumerate(zip(lengths, values, strict=True)):
        others = [*lengths[:at], *lengths[at + 1 :]], [*values[:at], *values[at + 1 :]]
        missed.append(value - _evaluate(_solve(*others, terms), length))
    return missed


def _evaluate(coefficients: Sequence[Fraction], length: int) -> Fraction:
    return sum((each * length**power for power, each in enumerate(coefficients)), Fraction(0))


def _solve(lengths: Sequence[int], values: Sequence[int], terms: int) -> list[Fraction]:
    """Return the coefficients of least squares, by elimination in the normal equations."""
    moments = [Fraction(sum(length**power for length in lengths)) for power in range(2 * terms - 1)]
    rows = [
        [
            *moments[power : power + terms],
            Fraction(sum(value * length**power for length, value in zip(lengths, values, strict=True))),
        ]
        for power in range(terms)
    ]
    for at in range(terms):
        # The matrix is positive definite as long as lengths differ: no pivot is zero.
        rows[at] = [each / rows[at][at] for each in rows[at]]
        for other in range(terms):
            if other != at:
                factor = rows[other][at]
                rows[other] = [
                    each - factor * taken for each, taken in zip(rows[other], rows[at], strict=True)
                ]
    return [row[-1] for row in rows]


def _find_root_mean_square(values: Sequence[Fraction]) -> float:
    return math.sqrt(fmean(float(each * each) for each in values))


# What a run of another size would need at most: the largest of the laws of its phases.

# The peak of a run is the largest of several phases, and which one that is changes with the size: a law
# fitted to the peaks alone breaks there, laws of the phases do not.

PeakKind = Literal["allocated", "reserved"]


class PhaseLaw(msgspec.Struct, frozen=True, kw_only=True):
    """The law by which the peak of one phase grows."""

    phase: str
    step: int | None
    """None for phases before the first step."""
    law: LengthLaw


class PeakLaws(msgspec.Struct, frozen=True):
    """The laws of the peaks of all phases; empty where one of them was seen at a single size."""

    laws: tuple[PhaseLaw, ...]

    def predict(self, size: int) -> float | None:
        """Return the bytes that a run of a size would need at most; None where nothing is known."""
        return max((each.law.predict(size) for each in self.laws), default=None)

    def find_largest(self, sizes: Sequence[int]) -> tuple[PhaseLaw, ...]:
        """Return the laws that are the largest of all at any of some sizes, in the order of the sizes."""
        if not self.laws:
            return ()
        largest = (max(self.laws, key=lambda each: each.law.predict(size)) for size in sizes)
        return tuple({(each.phase, each.step): each for each in largest}.values())


def fit_peaks(runs: Mapping[int, PhaseRun], kind: PeakKind) -> PeakLaws:
    """Fit the laws of the peaks; two sizes give a line.

    Args:
        runs: By their size: tokens of a sequence, or sequences of a batch. A run out of memory contributes
            the
            phases before.
    """
    peaks: dict[tuple[str, int | None], dict[int, int]] = defaultdict(dict)
    for size, run in runs.items():
        for each in run.phases:
            value = read_peak(each.peak, kind)
            if value is not None:
                peaks[each.phase, each.step][size] = value
    laws = []
    for (phase, step), values in peaks.items():
        law = _fit_peak(list(values), list(values.values()))
        if law is None:
            return PeakLaws(())  # the phase without a law may be the one that needs most
        laws.append(PhaseLaw(phase=phase, step=step, law=law))
    return PeakLaws(tuple(laws))


def read_peak(levels: MemoryLevels, kind: PeakKind) -> int | None:
    """Return the peak of one kind; None is unmeasured."""
    return levels.allocated_bytes if kind == "allocated" else levels.reserved_bytes


def _fit_peak(sizes: Sequence[int], values: Sequence[int]) -> LengthLaw | None:
    if len(sizes) != 2:
        return fit_law(sizes, values)
    slope = (values[1] - values[0]) / (sizes[1] - sizes[0])
    return LengthLaw(
        form="linear",
        constant_bytes=values[0] - slope * sizes[0],
        bytes_per_token=slope,
        points=2,
        residual_bytes=0.0,
        left_out_bytes=0.0,
    )


# What a study says of each phase: one value a length, and the law of them.

# The six panels, and the phases that are added up for each: the loss belongs to the forward pass.

PANELS: dict[str, tuple[str, ...]] = {
    "Model Creation": ("Model Creation",),
    "DP Setup": ("DP Setup",),
    "Forward Pass": ("Forward", "Loss"),
    "Backward Pass": ("Backward",),
    "Optimizer Step": ("Optimizer Step",),
    "Zero Gradients": ("Zero Gradients",),
}
# Every phase by itself.
PHASES: dict[str, tuple[str, ...]] = {name: (name,) for name in (*SETUP_PHASES, *STEP_PHASES)}
_KINDS: tuple[PeakKind, ...] = ("allocated", "reserved")
PEAK_ALLOCATED = "peak allocated"
PEAK_RESERVED = "peak reserved"
MORE_THAN_NONE = "more than none"


class LengthSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One number of one algorithm over the lengths of a study."""

    privacy: PrivacyMode
    name: str
    lengths: tuple[int, ...]
    # By length; None where nothing was measured, or the run did not come so far.
    values_bytes: tuple[int | None, ...]
    # None where points are too few, or the values follow no single law.
    law: LengthLaw | None = None
    # For a peak: the laws of the phases that are the largest at some length.
    largest_of: tuple[PhaseLaw, ...] = ()
    # Root mean square of measured less predicted; None without a law.
    residual_bytes: float | None = None
    # Predictions for the lengths without a value.
    predicted_bytes: dict[int, float] = {}

    @property
    def points(self) -> int:
        return sum(value is not None for value in self.values_bytes)

    @property
    def is_measured(self) -> bool:
        return self.points > 0


def make_series(
    study: LengthStudy, privacy: PrivacyMode, sums: dict[str, tuple[str, ...]]
) -> tuple[LengthSeries, ...]:
    """Return the difference of allocated memory over phases, by length.

    `sums` names the phases whose differences are added up: `PANELS` or `PHASES`.
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

    A peak is the largest of several phases, and so is its prediction, see `fit_peaks`.
    """
    allocated, reserved = (_make_peaks(study, privacy, kind) for kind in _KINDS)
    # What is allocated is reserved too, also where the law of reserved memory was found among small sizes.
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
    predicted = {length: laws.predict(length) for length in study.lengths}
    pairs = list(zip(study.lengths, values, strict=True))
    missed = [
        value - by for length, value in pairs if value is not None and (by := predicted[length]) is not None
    ]
    # Through two points goes a line, which is enough to predict by, but proves no law.
    has_law = all(each.law.points >= LEAST_POINTS for each in laws.laws)
    return LengthSeries(
        privacy=privacy,
        name=PEAK_ALLOCATED if kind == "allocated" else PEAK_RESERVED,
        lengths=study.lengths,
        values_bytes=tuple(values),
        largest_of=laws.find_largest(study.lengths) if has_law else (),
        residual_bytes=math.sqrt(fmean(each * each for each in missed)) if has_law and missed else None,
        predicted_bytes={
            length: by for length, value in pairs if value is None and (by := predicted[length]) is not None
        },
    )


def make_cost_series(study: LengthStudy) -> tuple[LengthSeries, ...]:
    """Return how far the peak of allocated memory of each algorithm is above plain training.

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
            values_bytes=tuple(
                None if one is None or less is None else one - less
                for one, less in zip(
                    make_peak_series(study, mode)[0].values_bytes, plain.values_bytes, strict=True
                )
            ),
        )
        for mode in study.privacy_modes
        if mode != "none"
    )


def find_difference(run: PhaseRun, phases: Sequence[str]) -> int | None:
    """Return what phases added to allocated memory in the last step; None where the run did not come so far.

    Earlier steps are no substitute: the first makes what later ones find, such as the optimizer's state.
    """
    last_phases = (each for each in run.phases if each.step in (None, run.training.num_steps))
    last = {each.phase: each.allocated_difference_bytes for each in last_phases}
    return sum_all(last.get(phase) for phase in phases)


def _list_runs(study: LengthStudy, privacy: PrivacyMode) -> list[PhaseRun | None]:
    points = [study.find_point(privacy, length) for length in study.lengths]
    return [None if point is None else point.run for point in points]


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


# A law in words: `1.9 MiB + 0.81 MiB/token`.

_UNITS = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "B"))


def say_law(law: LengthLaw | None, points: int) -> str:
    """Describe a law fitted to so many points, or say that there is none."""
    if law is None:
        return "1 point, no law" if points == 1 else f"{points} points, no law"
    terms = [
        (law.constant_bytes, ""),
        (law.bytes_per_token, "/token"),
        (law.bytes_per_token_squared, "/token^2"),
    ]
    said = [(value < 0, say_size(abs(value)) + per) for value, per in terms if say_size(abs(value)) != "0 B"]
    return _join(said) or "0 B"


def say_series(series: LengthSeries) -> str:
    """Describe the law of a series, or the laws that a peak is the largest of, or say that there is none."""
    if not series.largest_of:
        return say_law(series.law, series.points)
    texts = []
    for each in series.largest_of:
        phase = each.phase if each.step is None else f"{each.phase} of step {each.step}"
        texts.append(f"{say_law(each.law, each.law.points)} ({phase})")
    return texts[0] if len(texts) == 1 else f"the largest of {', '.join(texts)}"


def say_residual(residual_bytes: float | None) -> str:
    """Return the residual as `residual 0 B`; empty without a law."""
    return "" if residual_bytes is None else f"residual {say_size(residual_bytes)}"


def say_size(value_bytes: float) -> str:
    """Format bytes to three digits in a binary unit: `1.25 GiB`, `829 KiB`, a third of a byte `0.333 B`."""
    size, unit = next(((size, unit) for size, unit in _UNITS if abs(value_bytes) >= size), _UNITS[-1])
    value = value_bytes / size
    if abs(value) < 0.0005:
        return "0 B"
    # Three digits, without turning 1,023 KiB into an exponent.
    places = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2 if abs(value) >= 0.9995 else 3
    number = f"{value:.{places}f}"
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def _join(terms: Sequence[tuple[bool, str]]) -> str:
    text = ""
    for is_negative, term in terms:
        sign = (" - " if is_negative else " + ") if text else ("-" if is_negative else "")
        text += sign + term
    return text
