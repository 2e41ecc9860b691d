"""Ranks of one training side by side: the peak of each phase on each of them."""

from collections.abc import Iterator, Sequence
from typing import Literal

from ..engine.model.phase_memory import PhaseRun
from ..engine.text import make_printable
from .phase_table import get_level, show_mib
from .text_table import format_rows

_CELLS = 12
"""Of a column: a figure in MiB, and what parts it from the next."""
_NAME_CELLS = 18


def describe_ranks(runs: Sequence[PhaseRun], width: int) -> Iterator[str]:
    """Yield tables of what is allocated and of what is reserved, one column a rank, as many as fit.

    Args:
        runs: Of all ranks, in order.
        width: Cells of a line.
    """
    fitting = max(1, (width - _NAME_CELLS) // _CELLS)
    names = list(dict.fromkeys(phase.phase for run in runs for phase in run.phases))
    is_first = True
    for kind in ("allocated", "reserved"):
        if all(get_level(run.peak, kind) is None for run in runs):
            continue
        for begin in range(0, len(runs), fitting):
            if not is_first:
                yield ""
            is_first = False
            yield from _format_ranks(runs[begin : begin + fitting], names, kind, width)


def _format_ranks(
    runs: Sequence[PhaseRun], names: Sequence[str], kind: Literal["allocated", "reserved"], width: int
) -> list[str]:
    rows = [[f"peak {kind}, MiB", *(f"rank {run.rank}" for run in runs)]]
    for name in names:
        peaks = [_find_peak(run, name, kind) for run in runs]
        rows.append([make_printable(name), *map(show_mib, peaks)])
    return format_rows(rows, "l" + "r" * len(runs), width)


def _find_peak(run: PhaseRun, name: str, kind: Literal["allocated", "reserved"]) -> int | None:
    """Return the highest peak of a phase over the steps of a rank."""
    peaks = [get_level(phase.peak, kind) for phase in run.phases if phase.phase == name]
    return max((peak for peak in peaks if peak is not None), default=None)
