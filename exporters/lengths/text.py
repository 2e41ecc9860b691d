"""A study by length as text: phases by length, peaks of algorithms side by side, laws, what failed."""

from collections.abc import Iterator, Sequence

import msgspec

from ...analyzers.planning.lengths import (
    PHASES,
    LengthSeries,
    make_cost_series,
    make_peak_series,
    make_series,
    say_residual,
    say_series,
)
from ...analyzers.sentence import count_cells
from ...engine.model.phase_memory import LengthStudy, PrivacyMode
from ...engine.text import make_printable
from ...engine.units import format_bytes
from ..text_table import INDENT, format_rows, wrap
from .words import (
    MODE_WORDS,
    describe_devices,
    describe_failure,
    describe_training,
    mark_end,
    name_memory,
    show_mib,
)

_GAP = 2
_ANY_WIDTH = 10_000


def describe_study(study: LengthStudy, width: int) -> str:
    """Return the text.

    Args:
        study: What ran.
        width: Cells of a line; lengths that do not fit go below.
    """
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
    notes = dict.fromkeys(note for run in study.runs for note in _list_notes(run.notes, run.device.note))
    if notes:
        yield ""
        yield from (line for note in notes for line in wrap(make_printable(note), width))
    if study.is_interrupted:
        yield ""
        yield from wrap("Interrupted: what was measured until then is told.", width)


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
        yield from wrap("~ by the laws of the phases; that run did not finish", width, INDENT)
    yield ""
    yield from wrap("law by tokens of the sequence, and what it leaves over", width)
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
        yield "more than none, MiB"
        rows = [[each.privacy, *map(show_mib, each.values_bytes)] for each in costs]
        yield from _format_columns(study.lengths, rows, width)


def _format_columns(lengths: Sequence[int], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield a table of a column a length, in several parts where they do not stand side by side."""
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
        would = f"; by its laws its peak would be {format_bytes(round(predicted))}" if predicted else ""
        yield f"{whose}{point.seq_length:,} tokens: {failure}{would}"


def _list_notes(notes: Sequence[str], note: str | None) -> tuple[str, ...]:
    return (*notes, *(() if note is None else (note,)))
