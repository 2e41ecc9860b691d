"""What fits a card as text: the largest sizes that ran, the next that did not, what was tried and assumed."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from ...engine.model.phase_memory import FitSearch, FitTrial
from ...engine.text import make_printable
from ...engine.units import format_bytes
from ..text_table import count, format_rows, wrap

_UNITS = {"batch size": "sequence", "sequence length": "token"}
_FIXED = {"batch size": "of {:,} tokens each", "sequence length": "in a batch of {:,}"}


def describe_fits(searches: Sequence[FitSearch], width: int) -> str:
    """Return the text.

    Args:
        searches: For one card; algorithms and sizes in any order.
        width: Cells of a line.
    """
    return "\n".join(_describe(searches, width)) + "\n"


def describe_trial(search: FitSearch, trial: FitTrial) -> str:
    """Return one size that was tried, in words."""
    return f"{search.privacy}, {search.varied} {trial.size:,}: {_describe_outcome(trial)}"


def _describe(searches: Sequence[FitSearch], width: int) -> Iterator[str]:
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
    reserved = "—" if largest is None else format_bytes(largest.peak_reserved_bytes)
    return [
        search.privacy,
        "none" if largest is None else count(largest.size, _UNITS[search.varied]),
        reserved,
        "—" if refused is None else f"{refused.size:,}",
    ]


def _describe_edge(search: FitSearch) -> str:
    """Return why the next size did not fit, and why the answer is not certain where it is not."""
    refused = search.refused
    told = [] if refused is None else [f"{refused.size:,}: {_describe_outcome(refused)}"]
    if search.refusal is not None:
        told.append(f"not settled: {make_printable(search.refusal)}")
    elif search.largest is not None and search.largest.size == search.limit:
        told.append(f"larger ones than {search.limit:,} were not considered")
    return f"{search.privacy}, {'; '.join(told)}" if told else ""


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
