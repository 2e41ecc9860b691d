"""Texts on a replay among those on devices: the run it is compared with, the part of a playlist."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...analyzers.sentence import Sentence
from ...analyzers.verdict import Verdict
from ...engine.units import GIB
from ...engine.viewer.snapshot import ReplayPart
from ...exporters.text import show_number
from ..draw.spans import Line, Span, line_width

if TYPE_CHECKING:
    from ...engine.replay.simulated_run import RankComparison, TraceComparison


NO_PARTNER = "no simulated trace of this rank"
# Cells of the error in a column: `sim +0.023 %`.
ERROR_CELLS = 12


def judge_comparison(verdict: Verdict, comparison: "TraceComparison | None") -> Verdict:
    """Add how far off the simulation is, if there is one, to a verdict; dangers come first."""
    if comparison is None:
        return verdict
    clause = _describe_worst(comparison)
    clauses = verdict.sentence.clauses
    is_calm = verdict.level in ("unknown", "low")
    sentence = Sentence((clause, *clauses) if is_calm else (*clauses, (*clause, "")))
    return Verdict(verdict.level, sentence)


def _describe_worst(comparison: "TraceComparison") -> tuple[str, ...]:
    from ...engine.replay.simulated_run import describe_error

    worst = comparison.worst
    if worst is None or worst.error is None:
        return ("no simulated peak to compare with", "not simulated")
    error = describe_error(worst.error)
    total = len(comparison.ranks)
    is_whole = comparison.compared == total
    missing = "" if is_whole else f"; {comparison.compared:,} of {total:,} compared"
    of = "" if is_whole else f" of {comparison.compared:,} of {total:,} ranks"
    return (
        f"simulated peaks{of} are off by {error} at worst (rank {worst.rank})",
        f"simulated peaks {error} at worst (rank {worst.rank}{missing})",
        f"simulated {error} at worst",
        f"simulated {error}",
    )


def comparison_fact(compared: "RankComparison", room: int | None = None) -> Line:
    """Describe the simulation of a rank in a panel; `room` None returns the complete form."""
    from ...engine.replay.simulated_run import describe_error, describe_mebibytes

    if compared.simulated is None:
        forms: list[Line] = [[Span(NO_PARTNER, "muted")], [Span("not simulated", "muted")]]
    else:
        error = "error unknown" if compared.error is None else describe_error(compared.error)
        peak = describe_mebibytes(compared.simulated.peak_bytes)
        forms = [
            [Span("simulated peak ", "muted"), Span(f"{peak}, "), Span(error, "strong")],
            [Span("simulated ", "muted"), Span(error, "strong")],
        ]
    return next((form for form in forms if room is None or line_width(form) <= room), [])


def comparison_column(compared: "RankComparison") -> Line:
    """Return the error of a rank's simulation in `ERROR_CELLS` cells."""
    from ...engine.replay.simulated_run import describe_error

    if compared.simulated is None:
        return [Span("no sim".ljust(ERROR_CELLS), "muted")]
    error = "?" if compared.error is None else describe_error(compared.error)
    return [Span("sim ", "muted"), Span(error.rjust(ERROR_CELLS - 4), "strong")]


def name_part(part: ReplayPart) -> Iterator[tuple[str, str]]:
    """Yield the title of a part, each with a shorter form: which run, and its outcome."""
    yield part.name, part.name
    yield f"configuration {part.number:,} of {part.total:,}", f"{part.number:,}/{part.total:,}"
    yield part.state, part.state


def judge_part(verdict: Verdict, part: ReplayPart | None) -> Verdict:
    """Add peak and theory of a run to a verdict, dangers first; `part` is None for a single run."""
    if part is None or part.peak_bytes is None:
        return verdict
    clause = _describe_peak(part, part.peak_bytes)
    clauses = verdict.sentence.clauses
    is_calm = verdict.level in ("unknown", "low")
    sentence = Sentence((clause, *clauses) if is_calm else (*clauses, (*clause, "")))
    return Verdict(verdict.level, sentence)


def _describe_peak(part: ReplayPart, peak_bytes: int) -> tuple[str, ...]:
    """Return peak and theory; the shortest form names the run, because so small a pane has no title."""
    peak = f"{peak_bytes / GIB:.1f}"
    if part.theoretical_bytes is None or part.error is None:
        return (f"peak {peak} GiB, theory unknown", f"peak {peak} GiB", f"{part.name} {peak} GiB")
    theory = f"{part.theoretical_bytes / GIB:.1f} GiB"
    error = _format_error(part.error)
    return (
        f"peak {peak} GiB, theory {theory} ({error})",
        f"peak {peak}, theory {theory} ({error})",
        f"peak {peak}, theory {theory}",
        f"{part.name} {peak} GiB",
    )


def draw_part(part: ReplayPart | None) -> list[Line]:
    """Return peak, theory, error and static memory of a run in a line; empty where no theory was logged."""
    if part is None or (part.theoretical_bytes is None and part.static_bytes is None):
        return []
    line: Line = [Span(" peak ", "muted"), Span(_format_gib(part.peak_bytes))]
    line += [Span("   theoretical ", "muted"), Span(_format_gib(part.theoretical_bytes))]
    if part.error is not None:
        line.append(Span(f"   error {_format_error(part.error)}", "strong"))
    if part.static_bytes is not None:
        line += [Span("   static ", "muted"), Span(_format_gib(part.static_bytes))]
    return [line]


def _format_gib(value_bytes: int | None) -> str:
    return show_number(value_bytes, ",.1f", " GiB", per=GIB)


def _format_error(error: float) -> str:
    """Format an error with its sign; small ones with a tenth of a percent."""
    percent = 100 * error
    return f"{percent:+.1f} %" if abs(percent) < 100 else f"{percent:+.0f} %"
