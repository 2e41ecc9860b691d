"""Makes an estimate of the traces of a training step."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from ...allocator_model import AllocatorSettings
from ...allocator_model.settings import LARGE_SEGMENT_BYTES, LEAST_BLOCK_BYTES
from .convolutions import Growth, measure_growth
from .model import (
    CapacityCheck,
    DepthCheck,
    Frame,
    GpuKind,
    OutsidePart,
    Phase,
    PhasePeak,
    Rehearsal,
    Share,
    StackShare,
    StepEstimate,
    StepTrace,
    TraceResult,
    rehearse,
)
from .outside import list_outside

# The moments of a traced step with the most live bytes, and what is live then.

# A phase and the label of the module that runs, with its position (first, last, between) in its list.

Place = tuple[Phase, str]


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """The moment with the most live bytes of a place, or of a step."""

    # The event that brings it about.
    event: int
    # Sum of live blocks, each rounded up to 512.
    live_bytes: int
    phase: Phase
    # Empty where none was running.
    module: str


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """What is live at a moment, in three ways; each adds up to the live bytes."""

    kinds: Counter[str]
    modules: Counter[str]
    stacks: Counter[tuple[Frame, ...]]


class StepPeaks:
    def __init__(self, trace: StepTrace) -> None:
        self.trace = trace
        self._rounded = [-(-size // LEAST_BLOCK_BYTES) * LEAST_BLOCK_BYTES for size in trace.sizes]
        self._labels = ModuleLabels(trace.module_names, trace.module_types)
        self.by_place = self._find_peaks()

    @property
    def peak(self) -> Peak:
        return max(self.by_place.values(), key=lambda peak: peak.live_bytes)

    def describe(self, event: int) -> Live:
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


# Kinds that the tracer marks, by their numbers there.
MARKED = ("parameter", "buffer", "gradient", "per-sample gradient", "optimizer state", "input")
ACTIVATION = "activation"
TEMPORARY = "temporary"
# It lived before the step, and nothing marks its kind.
OTHER = "other"
KINDS = (*MARKED, ACTIVATION, TEMPORARY, OTHER)


def settle_kinds(trace: StepTrace) -> list[str]:
    """Return the kind of each block.

    An activation was made in a forward pass and is still live when the backward pass begins, or, where it is
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
    """Return the module of each block: its owner where it was marked, else where it was made."""
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
    """Return whether a block is still live at the first of the moments after it came."""
    following = bisect_right(moments, birth)
    return following < len(moments) and death >= moments[following]


# The most that is live at one place of a step (a phase, and a module by its name without numbers, first or
# last of its list) is linear in the depth where all layers are alike. The greatest of these lines at the
# depth that is asked for is the peak, wherever the peak of the shallow models is.
_Key = TypeVar("_Key", bound=Hashable)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A straight line through the values of two depths, evaluated at a third."""

    first: int
    second: int
    asked: int

    def at(self, first_bytes: int, second_bytes: int) -> int:
        """Return the value at the asked depth, from those of the two."""
        growth = (second_bytes - first_bytes) * (self.asked - self.first)
        return first_bytes + round(growth / (self.second - self.first))

    def add_up(self, first: Mapping[_Key, int], second: Mapping[_Key, int]) -> Counter[_Key]:
        found = Counter(
            {name: self.at(first.get(name, 0), second.get(name, 0)) for name in {**first, **second}}
        )
        return +found


class DeepPeaks:
    """The peaks of a model that was not traced."""

    def __init__(self, first: StepPeaks, second: StepPeaks, layers: int) -> None:
        self.line = Line(first=_depth(first), second=_depth(second), asked=layers)
        self._first = first
        self._second = second
        shared = first.by_place.keys() & second.by_place.keys()
        self.by_place: dict[Place, Peak] = {place: self._extend(place) for place in sorted(shared)}

    @property
    def place(self) -> Place:
        return max(self.by_place, key=lambda place: self.by_place[place].live_bytes)

    def describe(self) -> Live:
        first = self._first.describe(self._first.by_place[self.place].event)
        second = self._second.describe(self._second.by_place[self.place].event)
        return Live(
            kinds=self.line.add_up(first.kinds, second.kinds),
            modules=self.line.add_up(first.modules, second.modules),
            stacks=self.line.add_up(first.stacks, second.stacks),
        )

    def _extend(self, place: Place) -> Peak:
        first = self._first.by_place[place]
        second = self._second.by_place[place]
        module = deepen_name(first.module, second.module, self.line.asked - self.line.second)
        return Peak(
            event=-1,
            live_bytes=self.line.at(first.live_bytes, second.live_bytes),
            phase=place[0],
            module=module,
        )


def _depth(peaks: StepPeaks) -> int:
    return peaks.trace.layers or 0


def order_by_depth(peaks: Sequence[StepPeaks]) -> list[StepPeaks]:
    """Return traces from the shallowest model to the deepest."""
    return sorted(peaks, key=_depth)


PHASE_NAMES = {
    Phase.MAKING: "model creation",
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.OPTIMIZER: "optimizer",
    Phase.RECOMPUTE: "recomputation",
}
MOST_STACKS = 20


class EstimateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the estimate, and how the traces were made."""

    factory: str
    is_fake: bool
    fallback: str | None = None
    is_upper_bound: bool = False
    ranks: int | None = None
    rank: int | None = None
    layers: int | None = None
    """Depth asked for; None where the user's function chose it."""
    allocator_settings: str = ""
    capacity_bytes: int | None = None
    context_bytes: int | None = None
    """Measured size of the CUDA context; None for a range."""
    gpu: GpuKind | None = None


def estimate_traces(result: TraceResult, request: EstimateRequest) -> StepEstimate:
    """Estimate the memory of a training step.

    Args:
        result: One trace of what is asked for, or at least three of shallower models.

    Raises:
        AllocatorSettingsError: The allocator's settings cannot be read.
    """
    settings = AllocatorSettings.parse(request.allocator_settings)
    if len(result.traces) == 1:
        return _estimate_traced(result, request, settings)
    return _estimate_deep(result, request, settings)


def _estimate_traced(
    result: TraceResult, request: EstimateRequest, settings: AllocatorSettings
) -> StepEstimate:
    (trace,) = result.traces
    peaks = StepPeaks(trace)
    run = rehearse(trace, settings)
    expandable = None
    if not settings.expandable_segments:
        expandable = rehearse(trace, replace(settings, expandable_segments=True)).reserved_peak_bytes
    live = peaks.describe(peaks.peak.event)
    growth = measure_growth(trace, settings, run, request.gpu)
    found = _build(result, request, peaks.by_place.values(), live, run, growth)
    capacity = request.capacity_bytes
    return msgspec.structs.replace(
        found,
        expandable_reserved_bytes=expandable,
        capacity=None if capacity is None else _check_capacity(trace, settings, capacity, found.outside),
    )


def _estimate_deep(
    result: TraceResult, request: EstimateRequest, settings: AllocatorSettings
) -> StepEstimate:
    peaks = order_by_depth([StepPeaks(trace) for trace in result.traces])
    runs = [rehearse(each.trace, settings) for each in peaks]
    check = _check_depth(peaks, runs)
    deep = DeepPeaks(peaks[1], peaks[2], request.layers or 0)
    allocated = deep.line.at(runs[1].allocated_peak_bytes, runs[2].allocated_peak_bytes)
    reserved = deep.line.at(runs[1].reserved_peak_bytes, runs[2].reserved_peak_bytes)
    run = Rehearsal(allocated_peak_bytes=allocated, reserved_peak_bytes=max(allocated, reserved), retries=0)
    found = _build(result, request, deep.by_place.values(), deep.describe(), run)
    capacity = request.capacity_bytes
    return msgspec.structs.replace(
        found,
        traced_layers=tuple(each.trace.layers or 0 for each in peaks),
        check=check,
        capacity=None if capacity is None else _judge_capacity(run, check, capacity, found.outside),
    )


def _check_depth(peaks: list[StepPeaks], runs: list[Rehearsal]) -> DepthCheck:
    # The third trace checks what the two shallower ones predict for its depth.
    third = peaks[2]
    deep = DeepPeaks(peaks[0], peaks[1], third.trace.layers or 0)
    return DepthCheck(
        layers=deep.line.asked,
        predicted_live_bytes=deep.by_place[deep.place].live_bytes,
        traced_live_bytes=third.peak.live_bytes,
        predicted_reserved_bytes=deep.line.at(runs[0].reserved_peak_bytes, runs[1].reserved_peak_bytes),
        traced_reserved_bytes=runs[2].reserved_peak_bytes,
    )


def _build(
    result: TraceResult,
    request: EstimateRequest,
    peaks: Iterable[Peak],
    live: Live,
    run: Rehearsal,
    growth: Growth | None = None,
) -> StepEstimate:
    by_phase: dict[Phase, Peak] = {}
    for each in peaks:
        if each.phase not in by_phase or each.live_bytes > by_phase[each.phase].live_bytes:
            by_phase[each.phase] = each
    peak = max(by_phase.values(), key=lambda each: each.live_bytes)
    reserved = run.reserved_peak_bytes
    outside = list_outside(
        result.uses,
        reserved,
        context_bytes=request.context_bytes,
        gpu=request.gpu,
        made_bytes=live.kinds[ACTIVATION] + live.kinds[TEMPORARY],
        growth=growth,
    )
    return StepEstimate(
        factory=request.factory,
        torch=result.torch,
        storage="fake" if request.is_fake else "host",
        fallback=request.fallback,
        readings=result.readings,
        made_with=result.made_with,
        is_upper_bound=request.is_upper_bound,
        compiled_graphs=result.compiled_graphs,
        run_eagerly=result.run_eagerly,
        ranks=request.ranks,
        rank=request.rank,
        gpu=None if request.gpu is None else request.gpu.name,
        layers=request.layers,
        live_peak_bytes=peak.live_bytes,
        allocated_peak_bytes=run.allocated_peak_bytes,
        reserved_peak_bytes=run.reserved_peak_bytes,
        allocator_settings=request.allocator_settings,
        outside=outside,
        card_least_bytes=reserved + sum(part.least_bytes for part in outside),
        card_likely_bytes=reserved + sum(part.likely_bytes for part in outside),
        card_most_bytes=reserved + sum(part.most_bytes for part in outside),
        peak_phase=PHASE_NAMES[peak.phase],
        peak_module=peak.module,
        phases=tuple(
            PhasePeak(phase=PHASE_NAMES[phase], live_bytes=each.live_bytes, module=each.module)
            for phase, each in sorted(by_phase.items())
        ),
        kinds=_share(live.kinds),
        modules=_share(live.modules),
        stacks=tuple(
            StackShare(frames=frames, size_bytes=size)
            for frames, size in live.stacks.most_common(MOST_STACKS)
        ),
        traced_s=result.seconds,
    )


def _share(parts: Counter[str]) -> tuple[Share, ...]:
    return tuple(Share(name=name, size_bytes=size) for name, size in parts.most_common())


def _check_capacity(
    trace: StepTrace, settings: AllocatorSettings, capacity: int, outside: Sequence[OutsidePart]
) -> CapacityCheck:
    """Run the step on the card with the most set aside, and where that is too small with the least."""
    least, most = _measure_outside(outside)
    run = rehearse(trace, settings, max(capacity - most, 1))
    check = CapacityCheck(
        capacity_bytes=capacity,
        outside_least_bytes=least,
        outside_most_bytes=most,
        does_fit=True,
        reserved_peak_bytes=run.reserved_peak_bytes,
        retries=run.retries,
    )
    if run.failed_block is None:
        return check
    best = run if least == most else rehearse(trace, settings, max(capacity - least, 1))
    block = best.failed_block
    if block is None:
        return msgspec.structs.replace(
            check, does_fit=None, reserved_peak_bytes=best.reserved_peak_bytes, retries=best.retries
        )
    return msgspec.structs.replace(
        check,
        does_fit=False,
        reserved_peak_bytes=best.reserved_peak_bytes,
        retries=best.retries,
        failed_bytes=trace.sizes[block],
        failed_phase=PHASE_NAMES[Phase(trace.phases[block])],
        failed_module=trace.module_names[trace.modules[block]],
        failed_frames=trace.stack_frames[trace.stacks[block]],
    )


def _measure_outside(outside: Sequence[OutsidePart]) -> tuple[int, int]:
    return sum(part.least_bytes for part in outside), sum(part.most_bytes for part in outside)


def _judge_capacity(
    run: Rehearsal, check: DepthCheck, capacity: int, outside: Sequence[OutsidePart]
) -> CapacityCheck:
    """Judge extrapolated values; None where their uncertainty leaves it open.

    It fits where there is room for what is reserved, enlarged by the error of the check, and one more
    segment, with the most set aside. It does not fit where even what is allocated alone has no room with the
    least set aside: no flush of the cache goes below that.
    """
    least, most = _measure_outside(outside)
    off = abs(check.predicted_reserved_bytes - check.traced_reserved_bytes) / check.traced_reserved_bytes
    enough = round(run.reserved_peak_bytes * (1 + off)) + LARGE_SEGMENT_BYTES
    does_fit = None
    if enough <= capacity - most:
        does_fit = True
    elif run.allocated_peak_bytes > capacity - least:
        does_fit = False
    return CapacityCheck(
        capacity_bytes=capacity,
        outside_least_bytes=least,
        outside_most_bytes=most,
        does_fit=does_fit,
        enough_bytes=enough,
    )


# Names of modules with their places in lists taken out, so that the layers of a model have one name.

OUTSIDE = "(outside modules)"


class ModuleLabels:
    """Labels of the modules of one trace.

    Modules of one list that are all of one type are `blocks.*`; in a mixed list the type follows the star, or
    replaces it where there is only one of it: `*(Block)`, `(LayerNorm)`.
    """

    def __init__(self, names: Sequence[str], types: Sequence[str]) -> None:
        self._types = dict(zip(names, types, strict=True))
        self._lists: defaultdict[str, dict[int, str]] = defaultdict(dict)
        for name, kind in self._types.items():
            before, _, last = name.rpartition(".")
            if last.isdigit():
                self._lists[before][int(last)] = kind
        self.labels = [self._label(name) if name else OUTSIDE for name in names]
        # Labels that tell the first and the last of a list from those between.
        self.places = [self._label(name, with_end=True) for name in names]

    def _label(self, name: str, *, with_end: bool = False) -> str:
        words: list[str] = []
        before = ""
        for word in name.split("."):
            words.append(self._star(before, int(word), with_end=with_end) if word.isdigit() else word)
            before = f"{before}.{word}" if before else word
        return ".".join(words)

    def _star(self, before: str, index: int, *, with_end: bool) -> str:
        members = self._lists[before]
        counts = Counter(members.values())
        kind = members.get(index, "")
        if with_end:
            alike = [place for place, other in members.items() if other == kind] or [index]
            end = "first" if index == min(alike) else "last" if index == max(alike) else "between"
            return f"{end}({kind})"
        if len(counts) == 1:
            return "*"
        return f"*({kind})" if counts[kind] > 1 else f"({kind})"


def deepen_name(shallow: str, deep: str, added: int) -> str:
    """Return the name of a module in a model with `added` layers more than the deeper of two.

    A number that grew from the shallow model's name (`blocks.3.mlp`) to the deep one's (`blocks.7.mlp`) moves
    with the end of its list.
    """
    first = shallow.split(".")
    second = deep.split(".")
    if len(first) != len(second):
        return deep
    pairs = zip(first, second, strict=True)
    moves = [after.isdigit() and before != after for before, after in pairs]
    return ".".join(
        str(int(word) + added) if moved else word for word, moved in zip(second, moves, strict=True)
    )
