"""Makes an estimate of the traces of a training step."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from ...allocator_model import AllocatorSettings
from ...allocator_model.rules import LARGE_SEGMENT_BYTES
from .model import CapacityCheck, DepthCheck, PhasePeak, Share, StackShare, StepEstimate
from .module_labels import deepen_name
from .peaks import Live, Peak, Place, StepPeaks
from .replaying import Rehearsal, rehearse
from .trace import Frame, Phase, StepTrace, TraceResult

# The most that is live at one place of a step (a phase, and a module by its name without numbers, first or
# last of its list) is linear in the depth where all layers are alike. The greatest of these lines at the
# depth that is asked for is the peak, wherever the peak of the shallow models is.
_Key = TypeVar("_Key", bound=Hashable)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A straight line through the figures of two depths, of which a third is asked."""

    first: int
    second: int
    asked: int

    def at(self, first_bytes: int, second_bytes: int) -> int:
        """Return the figure at the depth that is asked for, from those of the two."""
        growth = (second_bytes - first_bytes) * (self.asked - self.first)
        return first_bytes + round(growth / (self.second - self.first))

    def add_up(self, first: Mapping[_Key, int], second: Mapping[_Key, int]) -> Counter[_Key]:
        """Return the same for figures by name; one that is in neither is in none."""
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
        """Where the peak is."""
        return max(self.by_place, key=lambda place: self.by_place[place].live_bytes)

    def describe(self) -> Live:
        """Return what is live at the peak."""
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
    """What an estimate is asked of traces, and how they were made."""

    factory: str
    is_fake: bool
    fallback: str | None = None
    layers: int | None = None
    """Depth that is asked for; None where the user's function chose it."""
    allocator_settings: str = ""
    capacity_bytes: int | None = None
    context_bytes: int = 0


def estimate_traces(result: TraceResult, request: EstimateRequest) -> StepEstimate:
    """Return the estimate.

    Args:
        result: One trace of what is asked for, or at least three of shallower models.
        request: What is asked.

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
    return msgspec.structs.replace(
        _build(result, request, peaks.by_place.values(), live, run),
        expandable_reserved_bytes=expandable,
        capacity=None if request.capacity_bytes is None else _check_capacity(trace, settings, request),
    )


def _estimate_deep(
    result: TraceResult, request: EstimateRequest, settings: AllocatorSettings
) -> StepEstimate:
    peaks = order_by_depth([StepPeaks(trace) for trace in result.traces])
    runs = [rehearse(each.trace, settings) for each in peaks]
    check = _check_depth(peaks, runs)
    deep = DeepPeaks(peaks[1], peaks[2], request.layers or 0)
    run = _extend_run(deep.line, runs[1], runs[2])
    return msgspec.structs.replace(
        _build(result, request, deep.by_place.values(), deep.describe(), run),
        traced_layers=tuple(each.trace.layers or 0 for each in peaks),
        check=check,
        capacity=None if request.capacity_bytes is None else _judge_capacity(run, check, request),
    )


def _check_depth(peaks: list[StepPeaks], runs: list[Rehearsal]) -> DepthCheck:
    """Hold what two shallow models say of the third against the third."""
    third = peaks[2]
    deep = DeepPeaks(peaks[0], peaks[1], third.trace.layers or 0)
    return DepthCheck(
        layers=deep.line.asked,
        predicted_live_bytes=deep.by_place[deep.place].live_bytes,
        traced_live_bytes=third.peak.live_bytes,
        predicted_reserved_bytes=deep.line.at(runs[0].reserved_peak_bytes, runs[1].reserved_peak_bytes),
        traced_reserved_bytes=runs[2].reserved_peak_bytes,
    )


def _extend_run(line: Line, first: Rehearsal, second: Rehearsal) -> Rehearsal:
    allocated = line.at(first.allocated_peak_bytes, second.allocated_peak_bytes)
    reserved = line.at(first.reserved_peak_bytes, second.reserved_peak_bytes)
    return Rehearsal(
        allocated_peak_bytes=allocated,
        reserved_peak_bytes=max(allocated, reserved),
        retries=0,
    )


def _build(
    result: TraceResult,
    request: EstimateRequest,
    peaks: Iterable[Peak],
    live: Live,
    run: Rehearsal,
) -> StepEstimate:
    """Return what every estimate says."""
    by_phase: dict[Phase, Peak] = {}
    for each in peaks:
        if each.phase not in by_phase or each.live_bytes > by_phase[each.phase].live_bytes:
            by_phase[each.phase] = each
    peak = max(by_phase.values(), key=lambda each: each.live_bytes)
    return StepEstimate(
        factory=request.factory,
        torch=result.torch,
        storage="fake" if request.is_fake else "host",
        fallback=request.fallback,
        layers=request.layers,
        live_peak_bytes=peak.live_bytes,
        allocated_peak_bytes=run.allocated_peak_bytes,
        reserved_peak_bytes=run.reserved_peak_bytes,
        allocator_settings=request.allocator_settings,
        peak_phase=PHASE_NAMES[peak.phase],
        peak_module=peak.module,
        phases=tuple(_describe_phase(by_phase[phase]) for phase in sorted(by_phase)),
        kinds=_share(live.kinds),
        modules=_share(live.modules),
        stacks=_share_stacks(live.stacks),
        traced_s=result.seconds,
    )


def _describe_phase(peak: Peak) -> PhasePeak:
    return PhasePeak(phase=PHASE_NAMES[peak.phase], live_bytes=peak.live_bytes, module=peak.module)


def _share(parts: Counter[str]) -> tuple[Share, ...]:
    return tuple(Share(name=name, size_bytes=size) for name, size in parts.most_common())


def _share_stacks(stacks: Counter[tuple[Frame, ...]]) -> tuple[StackShare, ...]:
    most = stacks.most_common(MOST_STACKS)
    return tuple(StackShare(frames=frames, size_bytes=size) for frames, size in most)


def _check_capacity(trace: StepTrace, settings: AllocatorSettings, request: EstimateRequest) -> CapacityCheck:
    """Run the trace on a card of that size."""
    capacity = request.capacity_bytes or 0
    run = rehearse(trace, settings, max(capacity - request.context_bytes, 1))
    block = run.failed_block
    check = CapacityCheck(
        capacity_bytes=capacity,
        context_bytes=request.context_bytes,
        does_fit=block is None,
        reserved_peak_bytes=run.reserved_peak_bytes,
        retries=run.retries,
    )
    if block is None:
        return check
    return msgspec.structs.replace(
        check,
        failed_bytes=trace.sizes[block],
        failed_phase=PHASE_NAMES[Phase(trace.phases[block])],
        failed_module=trace.module_names[trace.modules[block]],
        failed_frames=trace.stack_frames[trace.stacks[block]],
    )


def _judge_capacity(run: Rehearsal, check: DepthCheck, request: EstimateRequest) -> CapacityCheck:
    """Tell by extrapolated figures whether it fits, leaving open what their uncertainty does not tell.

    It fits where there is room for what is reserved, with what the check was off by, and a segment more. It
    does not where there is none for what is allocated alone: less than that no flush of the cache leaves.
    """
    capacity = request.capacity_bytes or 0
    room = capacity - request.context_bytes
    off = abs(check.predicted_reserved_bytes - check.traced_reserved_bytes) / check.traced_reserved_bytes
    enough = round(run.reserved_peak_bytes * (1 + off)) + LARGE_SEGMENT_BYTES
    does_fit = None
    if enough <= room:
        does_fit = True
    elif run.allocated_peak_bytes > room:
        does_fit = False
    return CapacityCheck(
        capacity_bytes=capacity, context_bytes=request.context_bytes, does_fit=does_fit, enough_bytes=enough
    )
