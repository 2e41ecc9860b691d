"""A study by length, and searches for what fits, as one JSON object of `vramscope seqlen --json`."""

from collections.abc import Sequence

import msgspec

from ...analyzers.planning.lengths import (
    MORE_THAN_NONE,
    PHASES,
    LengthLaw,
    LengthSeries,
    PhaseLaw,
    make_cost_series,
    make_peak_series,
    make_series,
    say_series,
)
from ...engine.model.phase_memory import (
    FitSearch,
    FitTrial,
    LengthStudy,
    PhaseRun,
    PhaseTraining,
    PrivacyMode,
)
from .words import describe_failure

SCHEMA = "vramscope.seqlen/1"


class PredictedBytes(msgspec.Struct, frozen=True, kw_only=True):
    """What is predicted of a length at which nothing was measured."""

    seq_length: int
    predicted_bytes: float


class SeriesReport(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one algorithm over the lengths."""

    name: str
    """A phase, `peak allocated`, `peak reserved`, or `more than none`."""
    values_bytes: tuple[int | None, ...]
    """By length; null where nothing was measured."""
    law: LengthLaw | None
    """Null where points are too few, or the figure follows no single law."""
    largest_of: tuple[PhaseLaw, ...]
    """Of a peak: the laws of the phases that are the largest at one length or another."""
    law_text: str | None
    """The law, or those, in words."""
    residual_bytes: float | None
    """Root of the mean square of what was measured less what the laws say; null without any."""
    predicted: tuple[PredictedBytes, ...]


class PointReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    seq_length: int
    failure: str | None
    """Why it did not finish, or could not be started."""
    run: PhaseRun | None
    """As `vramscope phases` tells it; null where it could not be started."""


class AlgorithmReport(msgspec.Struct, frozen=True, kw_only=True):
    """One algorithm over all lengths."""

    dp_mode: PrivacyMode
    points: tuple[PointReport, ...]
    differences: tuple[SeriesReport, ...]
    """Change of allocated memory over each phase of the last step."""
    peaks: tuple[SeriesReport, ...]
    more_than_none: SeriesReport | None
    """Peak of allocated memory less that of plain training; null where that was not compared."""


class FitReport(msgspec.Struct, frozen=True, kw_only=True):
    """The largest size that ran within a card."""

    search: FitSearch
    largest: FitTrial | None
    """What ran; null where nothing did."""
    refused: FitTrial | None
    """The smallest that did not."""
    is_settled: bool
    """Whether no size lies between both, or the largest that was to be considered ran."""


class LengthReport(msgspec.Struct, frozen=True, kw_only=True):
    """Memory by length of sequences, and what fits."""

    schema: str = SCHEMA
    is_simulated: bool
    is_interrupted: bool
    training: PhaseTraining
    """Length and algorithm in it are those of the first run."""
    device: str
    """As it was asked for."""
    seq_lengths: tuple[int, ...]
    algorithms: tuple[AlgorithmReport, ...]
    fits: tuple[FitReport, ...]


def report_study(study: LengthStudy, searches: Sequence[FitSearch] = ()) -> LengthReport:
    """Return the object.

    Args:
        study: What ran; without points where only a search was asked for.
        searches: What fits.
    """
    costs = {each.privacy: each for each in make_cost_series(study)}
    modes = study.privacy_modes if study.points else ()
    return LengthReport(
        is_simulated=study.is_simulated or any(search.is_simulated for search in searches),
        is_interrupted=study.is_interrupted,
        training=study.training,
        device=study.device,
        seq_lengths=study.lengths,
        algorithms=tuple(_report_mode(study, mode, costs.get(mode)) for mode in modes),
        fits=tuple(
            FitReport(search=each, largest=each.largest, refused=each.refused, is_settled=each.is_settled)
            for each in searches
        ),
    )


def _report_mode(study: LengthStudy, mode: PrivacyMode, cost: LengthSeries | None) -> AlgorithmReport:
    return AlgorithmReport(
        dp_mode=mode,
        points=tuple(
            PointReport(seq_length=each.seq_length, failure=describe_failure(each), run=each.run)
            for each in study.points
            if each.privacy == mode
        ),
        differences=tuple(_report_series(each) for each in make_series(study, mode, PHASES)),
        peaks=tuple(_report_series(each) for each in make_peak_series(study, mode)),
        more_than_none=None if cost is None else _report_series(cost),
    )


def _report_series(series: LengthSeries) -> SeriesReport:
    return SeriesReport(
        name=series.name,
        values_bytes=series.values_bytes,
        law=series.law,
        largest_of=series.largest_of,
        law_text=None if series.name == MORE_THAN_NONE else say_series(series),
        residual_bytes=series.residual_bytes,
        predicted=tuple(
            PredictedBytes(seq_length=length, predicted_bytes=value)
            for length, value in series.predicted_bytes.items()
        ),
    )
