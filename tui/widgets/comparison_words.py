"""What is said of a simulation beside a real run: in the verdict, and on the panel of each rank."""

from typing import TYPE_CHECKING

from ...analyzers.sentence import Sentence
from ...analyzers.verdict import Verdict
from ..draw.spans import Line, Span, line_width

if TYPE_CHECKING:
    from ...engine.replay.trace_comparison import RankComparison, TraceComparison

NO_PARTNER = "no simulated trace of this rank"
ERROR_CELLS = 12
"""Of the error in a column: `sim +0.023 %`."""


def judge_comparison(verdict: Verdict, comparison: "TraceComparison | None") -> Verdict:
    """Return a verdict that also says how far off the simulation is; after what is dangerous.

    Args:
        verdict: What is known about running out of memory.
        comparison: The simulation beside the run that is shown.
    """
    if comparison is None:
        return verdict
    clause = _describe_worst(comparison)
    clauses = verdict.sentence.clauses
    is_calm = verdict.level in ("unknown", "low")
    sentence = Sentence((clause, *clauses) if is_calm else (*clauses, (*clause, "")))
    return Verdict(verdict.level, sentence)


def _describe_worst(comparison: "TraceComparison") -> tuple[str, ...]:
    from ...engine.replay.trace_comparison import describe_error  # loads readers of traces

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
    """Return what a panel says of the simulation of its rank.

    Args:
        compared: The rank beside its simulation.
        room: Cells that there are; None for the complete form.
    """
    from ...engine.replay.trace_comparison import (
        describe_error,
        describe_mebibytes,
    )  # loads readers of traces

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
    from ...engine.replay.trace_comparison import describe_error  # loads readers of traces

    if compared.simulated is None:
        return [Span("no sim".ljust(ERROR_CELLS), "muted")]
    error = "?" if compared.error is None else describe_error(compared.error)
    return [Span("sim ", "muted"), Span(error.rjust(ERROR_CELLS - 4), "strong")]
