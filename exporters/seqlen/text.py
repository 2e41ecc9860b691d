"""A study by length as text: phases by length, peaks of algorithms side by side, laws, what failed."""

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import groupby

import msgspec

from ...analyzers.planning.seqlen import (
    MORE_THAN_NONE,
    PHASES,
    LengthLaw,
    LengthSeries,
    PhaseLaw,
    make_cost_series,
    make_peak_series,
    make_series,
    say_residual,
    say_series,
)
from ...analyzers.sentence import count, count_cells
from ...engine.model.phase_memory import (
    FitSearch,
    FitTrial,
    LengthPoint,
    LengthStudy,
    PhaseDevice,
    PhaseMemory,
    PhaseRun,
    PhaseTraining,
    PrivacyMode,
)
from ...engine.text import make_printable
from ...engine.units import MIB, format_bytes
from ..phases.text import OPTIMIZER_WORDS
from ..text import INDENT, UNKNOWN, format_rows, wrap

_GAP = 2
_ANY_WIDTH = 10_000


def describe_study(study: LengthStudy, width: int) -> str:
    """Return the text; lengths that do not fit in `width` cells go below."""
    return "\n".join(_describe(study, width)) + "\n"


def _describe(study: LengthStudy, width: int) -> Iterator[str]:
    label = " (simulated)" if study.is_simulated else ""
    yield from wrap(f"Memory by sequence length{label}: {describe_training(study)}", width)
    yield from wrap(describe_devices(study), width)
    for mode in study.privacy_modes:
        yield ""
        yield from _describe_mode(study, mode, width)
    if len(study.privacy_modes) > 1:
        yield ""
        yield from _compare(study, width)
    failures = list(_list_failures(study))
    if failures:
        yield ""
        yield from (line for sentence in failures for line in wrap(sentence, width))
    said = [note for run in study.runs for note in (*run.notes, run.device.note)]
    notes = dict.fromkeys(note for note in said if note is not None)
    if notes:
        yield ""
        yield from (line for note in notes for line in wrap(make_printable(note), width))
    if study.is_interrupted:
        yield ""
        yield from wrap("Interrupted: this is what was measured until then.", width)


def _describe_mode(study: LengthStudy, mode: PrivacyMode, width: int) -> Iterator[str]:
    phases = [each for each in make_series(study, mode, PHASES) if each.is_measured]
    peaks = [each for each in make_peak_series(study, mode) if each.is_measured or each.predicted_bytes]
    named = [
        msgspec.structs.replace(each, name=each.name.replace("allocated", name_memory(study)))
        for each in peaks
    ]
    whose = f"{MODE_WORDS[mode]}: " if len(study.privacy_modes) > 1 else ""
    yield from wrap(
        f"{whose}change of {name_memory(study)} memory over each phase of the last step, MiB", width
    )
    ends = ["", *(mark_end(study.find_point(mode, length)) for length in study.lengths)]
    rows = [
        *([each.name, *map(show_mib, each.values_bytes)] for each in phases),
        *([each.name, *_show_peaks(each)] for each in named),
        *([["ended", *ends[1:]]] if any(end not in {"ok", ""} for end in ends) else []),
    ]
    yield from _format_columns(study.lengths, rows, width)
    if any(each.predicted_bytes for each in peaks):
        yield from wrap("~ predicted by the laws of the phases; that run did not finish", width, INDENT)
    yield ""
    yield from wrap("law by tokens of the sequence, and its residual", width)
    yield from _list_laws(phases, width)
    yield from _list_laws(named, width)


def _show_peaks(series: LengthSeries) -> Iterator[str]:
    for length, value in zip(series.lengths, series.values_bytes, strict=True):
        predicted = series.predicted_bytes.get(length)
        yield show_mib(value) if value is not None or predicted is None else f"~{show_mib(predicted)}"


def _list_laws(series: Sequence[LengthSeries], width: int) -> Iterator[str]:
    """Yield laws in columns, or as sentences where these are too wide."""
    rows = [[each.name, say_series(each), say_residual(each.residual_bytes)] for each in series]
    if max(map(count_cells, format_rows(rows, "lll", _ANY_WIDTH)), default=0) <= width:
        yield from format_rows(rows, "lll", width)
        return
    for name, law, residual in rows:
        yield from wrap(f"{name}: {law}{f', {residual}' if residual else ''}", width, INDENT)


def _compare(study: LengthStudy, width: int) -> Iterator[str]:
    """Yield the peaks of algorithms side by side, and what each costs more than plain training."""
    yield f"peak of {name_memory(study)} memory by algorithm, MiB"
    peaks = [make_peak_series(study, mode)[0] for mode in study.privacy_modes]
    rows = [[each.privacy, *_show_peaks(each)] for each in peaks]
    yield from _format_columns(study.lengths, rows, width)
    costs = make_cost_series(study)
    if costs:
        yield ""
        yield "more than without privacy, MiB"
        rows = [[each.privacy, *map(show_mib, each.values_bytes)] for each in costs]
        yield from _format_columns(study.lengths, rows, width)


def _format_columns(lengths: Sequence[int], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield a table of a column a length, in several parts if they do not fit side by side."""
    table = [["tokens", *(f"{length:,}" for length in lengths)], *rows]
    first = max(count_cells(row[0]) for row in table) + len(INDENT)
    start = 1
    while start <= len(lengths):
        used = first
        end = start
        while end <= len(lengths) and (end == start or used + _widen(table, end) <= width):
            used += _widen(table, end)
            end += 1
        part = [[row[0], *row[start:end]] for row in table]
        yield from format_rows(part, "l" + "r" * (end - start), max(width, used + len(INDENT)))
        if end <= len(lengths):
            yield ""
        start = end


def _widen(table: Sequence[Sequence[str]], column: int) -> int:
    return _GAP + max(count_cells(row[column]) for row in table)


def _list_failures(study: LengthStudy) -> Iterator[str]:
    for point in study.points:
        failure = describe_failure(point)
        if failure is None:
            continue
        whose = f"{point.privacy}, " if len(study.privacy_modes) > 1 else ""
        predicted = make_peak_series(study, point.privacy)[0].predicted_bytes.get(point.seq_length)
        would = f"; its laws predict a peak of {format_bytes(round(predicted))}" if predicted else ""
        yield f"{whose}{point.seq_length:,} tokens: {failure}{would}"


# What a study by length is of, in words that its table, figure and search share.

MODE_WORDS: dict[PrivacyMode, str] = {
    "hooks": "Opacus hooks",
    "functorch": "Opacus functorch",
    "ghost": "Opacus ghost clipping",
    "none": "no privacy",
}


def name_memory(study: LengthStudy) -> str:
    """Return the kind of memory measured: resident on the CPU, where no allocator runs."""
    kinds = {run.device.kind for run in study.runs}
    return "resident" if kinds == {"cpu"} else "allocated"


def name_model(training: PhaseTraining) -> str:
    given = training.factory or training.hugging_face
    return f"LLaMA {training.model_size}" if given is None else make_printable(given)


def describe_training(study: LengthStudy) -> str:
    training = study.training
    modes = " and ".join(MODE_WORDS[mode] for mode in study.privacy_modes)
    parts = [
        name_model(training),
        f"batch of {training.batch_size}",
        modes,
        OPTIMIZER_WORDS[training.optimizer],
        training.precision,
        *(["checkpointed"] if training.is_checkpointed else []),
        f"{count(training.num_steps, 'step')} each",
    ]
    return ", ".join(parts)


def describe_device(device: PhaseDevice) -> str:
    """Return a device in words; one that is simulated is called so."""
    name = make_printable(device.name)
    if device.kind == "simulated" and "simulated" not in name.lower():
        name += " (simulated)"
    return f"{name}, without storage" if device.is_fake else name


def describe_devices(study: LengthStudy) -> str:
    """Return all measured devices, each once."""
    # A run that ended before its first phase may not know the name of its device.
    runs = [run for run in study.runs if run.phases] or study.runs
    return "; ".join(dict.fromkeys(describe_device(run.device) for run in runs)) or study.device


def describe_end(run: PhaseRun) -> str:
    """Return how a run ended that did not finish, as the end of a sentence."""
    place = f" in {run.failed_phase}" if run.failed_phase else ""
    if run.failed_step is not None and run.training.num_steps > 1:
        place += f" of step {run.failed_step}"
    asked = f", {format_bytes(run.requested_bytes)} requested" if run.requested_bytes is not None else ""
    error = f": {make_printable(run.error)}" if run.error and run.end == "failed" else ""
    words = {"out_of_memory": "out of memory", "interrupted": "interrupted", "failed": "failed"}
    return f"{words.get(run.end, 'finished')}{place}{asked}{error}"


def describe_failure(point: LengthPoint) -> str | None:
    """Return why a point is not whole; None where it is."""
    if point.run is None:
        return make_printable(point.refusal or "could not be started")
    return None if point.run.end == "finished" else describe_end(point.run)


def mark_end(point: LengthPoint | None) -> str:
    """Return in a word how a point ended: `ok`, `OOM`, `—` where it was not reached."""
    if point is None:
        return UNKNOWN
    if point.run is None:
        return "not run"
    return {"finished": "ok", "out_of_memory": "OOM", "interrupted": "stopped", "failed": "failed"}[
        point.run.end
    ]


def show_mib(value_bytes: float | None) -> str:
    """Return bytes as MiB with one decimal, or `—` where unmeasured."""
    if value_bytes is None:
        return UNKNOWN
    text = f"{value_bytes / MIB:,.1f}"
    return "0.0" if text == "-0.0" else text


# What fits a card as text: the largest sizes that ran, the next that did not, what was tried and assumed.

_UNITS = {"batch size": "sequence", "sequence length": "token"}
_FIXED = {"batch size": "of {:,} tokens each", "sequence length": "in a batch of {:,}"}


def describe_fits(searches: Sequence[FitSearch], width: int) -> str:
    """Return the text; `searches` are for one card, in any order."""
    return "\n".join(_describe_fit(searches, width)) + "\n"


def describe_trial(search: FitSearch, trial: FitTrial) -> str:
    """Return one size that was tried, in words."""
    return f"{search.privacy}, {search.varied} {trial.size:,}: {_describe_outcome(trial)}"


def _describe_fit(searches: Sequence[FitSearch], width: int) -> Iterator[str]:
    first = searches[0]
    label = " (simulated)" if first.is_simulated else ""
    head = f"What fits {format_bytes(first.capacity_bytes)}{label}: the largest that ran, and the next one"
    yield from wrap(head, width)
    for _, group in groupby(sorted(searches, key=lambda it: it.varied), key=lambda it: it.varied):
        alike = list(group)
        yield ""
        yield from wrap(_describe_sizes(alike[0]), width)
        rows = [_list_cells(search) for search in alike]
        yield from format_rows([["dp-mode", "largest", "peak reserved", "next"], *rows], "lrrr", width)
        for search in alike:
            yield from wrap(_describe_edge(search), width, "  ")
    yield ""
    yield f"{count(sum(len(search.trials) for search in searches), 'run')}; ! did not fit"
    for search in searches:
        sizes = ", ".join(f"{it.size:,}{'' if it.has_fitted else '!'}" for it in search.trials)
        yield from wrap(f"{search.privacy}, {search.varied}: {sizes or 'none'}", width, "  ")
    yield from wrap(_describe_assumptions(first), width)


def _describe_sizes(search: FitSearch) -> str:
    multiples = f", multiples of {search.step:,}" if search.step > 1 else ""
    return f"{search.varied}, {_FIXED[search.varied].format(search.fixed)}{multiples}"


def _list_cells(search: FitSearch) -> list[str]:
    largest = search.largest
    refused = search.refused
    reserved = UNKNOWN if largest is None else format_bytes(largest.peak_reserved_bytes)
    return [
        search.privacy,
        "none" if largest is None else count(largest.size, _UNITS[search.varied]),
        reserved,
        UNKNOWN if refused is None else f"{refused.size:,}",
    ]


def _describe_edge(search: FitSearch) -> str:
    """Return why the next size did not fit, and why the answer is not certain where it is not."""
    refused = search.refused
    reasons = [] if refused is None else [f"{refused.size:,}: {_describe_outcome(refused)}"]
    if search.refusal is not None:
        reasons.append(f"undecided: {make_printable(search.refusal)}")
    elif search.largest is not None and search.largest.size == search.limit:
        reasons.append(f"sizes above {search.limit:,} were not tried")
    return f"{search.privacy}, {'; '.join(reasons)}" if reasons else ""


def _describe_outcome(trial: FitTrial) -> str:
    if not trial.has_fitted:
        return make_printable(trial.reason or "did not run")
    return f"fits, {format_bytes(trial.peak_reserved_bytes)} reserved"


def _describe_assumptions(search: FitSearch) -> str:
    context = format_bytes(search.context_bytes)
    if search.is_simulated:
        return (
            f"Modelled: {make_printable(search.device)}, the caching allocator, {context} for the CUDA "
            "context. Not modelled: workspaces of cuBLAS and temporaries inside kernels."
        )
    return (
        f"Measured on {make_printable(search.device)}: peak of reserved memory, and {context} assumed for "
        "the CUDA context."
    )


# A study by length, and searches for what fits, as one JSON object of `vramscope seqlen --json`.

SCHEMA = "vramscope.seqlen/1"


class PredictedBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Prediction for a length that was not measured."""

    seq_length: int
    predicted_bytes: float


class SeriesReport(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity of one algorithm over the lengths."""

    name: str
    """A phase, `peak allocated`, `peak reserved`, or `more than none`."""
    values_bytes: tuple[int | None, ...]
    """By length; null where nothing was measured."""
    law: LengthLaw | None
    """Null where there are too few points, or it follows no single law."""
    largest_of: tuple[PhaseLaw, ...]
    """For a peak: the laws of the phases that are largest at some length."""
    law_text: str | None
    """The law or laws in words."""
    residual_bytes: float | None
    """Root mean square of measured less the laws; null without a law."""
    predicted: tuple[PredictedBytes, ...]


class PointReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    seq_length: int
    failure: str | None
    """Why it did not finish, or could not start."""
    run: PhaseRun | None
    """The run as `vramscope phases` reports it; null where it could not start."""


class AlgorithmReport(msgspec.Struct, frozen=True, kw_only=True):
    """One algorithm at all lengths."""

    dp_mode: PrivacyMode
    points: tuple[PointReport, ...]
    differences: tuple[SeriesReport, ...]
    """Change of allocated memory over each phase of the last step."""
    peaks: tuple[SeriesReport, ...]
    more_than_none: SeriesReport | None
    """Peak of allocated memory less that of plain training; null where that was not compared."""


class FitReport(msgspec.Struct, frozen=True, kw_only=True):
    """The largest size that ran on a card."""

    search: FitSearch
    largest: FitTrial | None
    """The largest size that ran; null where none did."""
    refused: FitTrial | None
    """The smallest size that did not run."""
    is_settled: bool
    """Whether no size is between both, or the largest size to consider ran."""


class LengthReport(msgspec.Struct, frozen=True, kw_only=True):
    """Memory by length of sequences, and what fits."""

    schema: str = SCHEMA
    is_simulated: bool
    is_interrupted: bool
    training: PhaseTraining
    """Length and algorithm in it are those of the first run."""
    device: str
    """As requested."""
    seq_lengths: tuple[int, ...]
    algorithms: tuple[AlgorithmReport, ...]
    fits: tuple[FitReport, ...]


def report_study(study: LengthStudy, searches: Sequence[FitSearch] = ()) -> LengthReport:
    """Return the object; a study without points is of a search alone."""
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


# A study by length as CSV: one row for each algorithm, length and phase, in bytes.

COLUMNS = (
    "dp_mode",
    "batch_size",
    "seq_length",
    "phase",
    "step",
    "allocated_difference_bytes",
    "reserved_difference_bytes",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "end",
    "is_simulated",
)


def encode_study(study: LengthStudy) -> bytes:
    """Return the file: each phase as in the last step that had it; an empty cell is unmeasured.

    A point without any phase has one row, without a phase, that says how it ended.
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for point in study.points:
        writer.writerows(_list_rows(study, point))
    return text.getvalue().encode()


def _list_rows(study: LengthStudy, point: LengthPoint) -> Iterator[tuple[str | int | None, ...]]:
    run = point.run
    end = "not_started" if run is None else run.end
    head = (point.privacy, study.training.batch_size, point.seq_length)
    is_simulated = "" if run is None else str(run.device.kind == "simulated").lower()
    last: dict[str, PhaseMemory] = {} if run is None else {each.phase: each for each in run.phases}
    if run is None or not last:
        yield (*head, None, None, None, None, None, None, end, is_simulated)
        return
    for name in PHASES:
        if name in last:
            phase = last[name]
            yield (
                *head,
                name,
                phase.step,
                phase.allocated_difference_bytes,
                phase.reserved_difference_bytes,
                phase.peak.allocated_bytes,
                phase.peak.reserved_bytes,
                end,
                is_simulated,
            )
