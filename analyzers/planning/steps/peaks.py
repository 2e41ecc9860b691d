"""The moments of a traced step at which most is live, and what is live then."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from ...allocator_model.rules import LEAST_BLOCK_BYTES
from .module_labels import ModuleLabels
from .trace import Frame, Phase, StepTrace

Place = tuple[Phase, str]
"""A phase and the label of the module that runs, with the end of its list at which it stands."""


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """The moment with the most live bytes of a place, or of a step."""

    event: int
    """The event that brings it about."""
    live_bytes: int
    """Of live blocks, each rounded up to 512."""
    phase: Phase
    module: str
    """Empty where none was running."""


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """What is live at a moment, in three ways; each adds up to the live bytes."""

    kinds: Counter[str]
    modules: Counter[str]
    stacks: Counter[tuple[Frame, ...]]


class StepPeaks:
    """One trace, looked at."""

    def __init__(self, trace: StepTrace) -> None:
        self.trace = trace
        self._rounded = [-(-size // LEAST_BLOCK_BYTES) * LEAST_BLOCK_BYTES for size in trace.sizes]
        self._labels = ModuleLabels(trace.module_names, trace.module_types)
        self.by_place = self._find_peaks()

    @property
    def peak(self) -> Peak:
        """The peak of the step."""
        return max(self.by_place.values(), key=lambda peak: peak.live_bytes)

    def describe(self, event: int) -> Live:
        """Return what is live after an event."""
        trace = self.trace
        kinds = settle_kinds(trace)
        modules = settle_modules(trace)
        live = Live(kinds=Counter(), modules=Counter(), stacks=Counter())
        for block in _list_live(trace.events[: event + 1]):
            size = self._rounded[block]
            live.kinds[kinds[block]] += size
            live.modules[self._labels.labels[modules[block]]] += size
            live.stacks[trace.stack_frames[trace.stacks[block]]] += size
        return live

    def count_requested(self, event: int) -> int:
        """Return the bytes that live blocks were asked for after an event, not rounded."""
        return sum(self.trace.sizes[block] for block in _list_live(self.trace.events[: event + 1]))

    def _find_peaks(self) -> dict[Place, Peak]:
        """Return the peak of each place of the last step."""
        trace = self.trace
        rounded = self._rounded
        most: defaultdict[tuple[int, int], tuple[int, int]] = defaultdict(lambda: (-1, -1))
        live = 0
        for place, event in enumerate(trace.events):
            if event <= 0:
                live -= rounded[-event - 1] if event else 0
                continue
            live += rounded[event - 1]
            if place >= trace.measured_from:
                key = trace.phases[event - 1], trace.modules[event - 1]
                if live > most[key][0]:
                    most[key] = live, place
        found: dict[Place, Peak] = {}
        for (phase, module), (live, event) in most.items():
            key_of_place = Phase(phase), self._labels.places[module]
            if key_of_place not in found or live > found[key_of_place].live_bytes:
                name = trace.module_names[module]
                found[key_of_place] = Peak(event=event, live_bytes=live, phase=Phase(phase), module=name)
        return found


def _list_live(events: Sequence[int]) -> set[int]:
    live: set[int] = set()
    for event in events:
        if event > 0:
            live.add(event - 1)
        elif event < 0:
            live.discard(-event - 1)
    return live


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
