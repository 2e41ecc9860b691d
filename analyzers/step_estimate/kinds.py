"""What each block of a traced step is for: as models and optimizers told, else by its lifetime."""

from bisect import bisect_right
from collections.abc import Sequence

from .trace import Phase, StepTrace

MARKED = ("parameter", "buffer", "gradient", "per-sample gradient", "optimizer state", "input")
"""Kinds that the tracer tells, by their numbers there."""
ACTIVATION = "activation"
TEMPORARY = "temporary"
OTHER = "other"
"""What lived before the step, and nobody told what for."""
KINDS = (*MARKED, ACTIVATION, TEMPORARY, OTHER)


def settle_kinds(trace: StepTrace) -> list[str]:
    """Return the kind of each block.

    An activation was made in a forward pass and is there when the backward pass begins, or, where it is
    recomputed, when the recomputation ends. What ends before is temporary.
    """
    births, deaths = find_lifetimes(trace)
    marked = {block: MARKED[kind] for block, kind, _ in trace.marks}
    ends = {Phase.FORWARD: trace.backward_begins, Phase.RECOMPUTE: trace.recompute_ends}
    kinds = []
    for block, (birth, death) in enumerate(zip(births, deaths, strict=True)):
        kind = marked.get(block)
        if kind is None and birth < trace.measured_from:
            kind = OTHER
        if kind is None:
            outlives = _outlives(birth, death, ends.get(Phase(trace.phases[block]), ()))
            kind = ACTIVATION if outlives else TEMPORARY
        kinds.append(kind)
    return kinds


def settle_modules(trace: StepTrace) -> list[int]:
    """Return the module of each block: the one that owns it where that was told, else where it was made."""
    modules = list(trace.modules)
    for block, _, module in trace.marks:
        modules[block] = module
    return modules


def find_lifetimes(trace: StepTrace) -> tuple[list[int], list[int]]:
    """Return the events at which each block comes and goes; one that stays goes after the last event."""
    births = [0] * len(trace.sizes)
    deaths = [len(trace.events)] * len(trace.sizes)
    for place, event in enumerate(trace.events):
        if event > 0:
            births[event - 1] = place
        elif event < 0:
            deaths[-event - 1] = place
    return births, deaths


def _outlives(birth: int, death: int, moments: Sequence[int]) -> bool:
    """Tell whether a block is there at the next moment after it came."""
    following = bisect_right(moments, birth)
    return following < len(moments) and death >= moments[following]
