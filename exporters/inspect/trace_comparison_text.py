"""A real run beside its simulation as plain text: peaks of every rank, and the errors of all iterations."""

from collections.abc import Iterator

from ...engine.replay.trace_comparison import RankComparison, TraceComparison, describe_error
from ...engine.units import MIB
from ..text_table import format_rows, wrap

UNKNOWN = "—"
_HEAD = (
    "rank",
    "real MiB",
    "simulated MiB",
    "error",
    "least",
    "most",
    "iterations",
    "theory MiB",
    "static MiB",
)


def format_comparison(comparison: TraceComparison, width: int) -> str:
    """Return the peaks of a run beside those of its simulation.

    Args:
        comparison: Both.
        width: Cells of a line; the last columns are left out where they do not fit.
    """
    lines = wrap(f"Real run {comparison.real_name} beside simulated run {comparison.simulated_name}", width)
    rows = [_HEAD, *map(_describe_rank, comparison.ranks)]
    known = [column for column in zip(*rows, strict=True) if set(column[1:]) != {UNKNOWN}]
    lines += ["", *format_rows(list(zip(*known, strict=True)), "r" * len(known), width), ""]
    for sentence in _conclude(comparison):
        lines += wrap(sentence, width)
    return "\n".join(lines)


def _describe_rank(compared: RankComparison) -> tuple[str, ...]:
    simulated = compared.simulated
    errors = compared.errors
    return (
        str(compared.rank),
        _mebibytes(compared.real_peak_bytes),
        _mebibytes(None if simulated is None else simulated.peak_bytes),
        _error(compared.error),
        _error(None if errors is None else errors.least),
        _error(None if errors is None else errors.most),
        "0" if errors is None else f"{errors.iterations:,}",
        _mebibytes(None if simulated is None else simulated.theoretical_bytes),
        _mebibytes(None if simulated is None else simulated.static_bytes),
    )


def _conclude(comparison: TraceComparison) -> Iterator[str]:
    worst = comparison.worst
    missing = len(comparison.ranks) - comparison.compared
    if worst is None or worst.error is None:
        yield "No rank has a peak in both runs."
        return
    yield f"The worst error is {describe_error(worst.error)}, of rank {worst.rank}."
    if missing:
        yield f"Ranks that cannot be compared: {missing:,}."
    yield (
        "Peaks are the most allocated; an error is how much higher the simulated one is. least and most are "
        "those of single iterations."
    )


def _mebibytes(value_bytes: int | None) -> str:
    return UNKNOWN if value_bytes is None else f"{value_bytes / MIB:,.2f}"


def _error(error: float | None) -> str:
    return UNKNOWN if error is None else describe_error(error)
