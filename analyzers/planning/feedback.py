"""Compares a plan with what was measured: differences, factors, and the exact split under the factors.

A stage's factor is measured over planned bytes: it covers everything that the plan does not know about the
stage, such as workspaces, a recipe that keeps less, or layers that differ from their description.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from statistics import median
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ...engine.errors import UsageError
from ...engine.model import RankSample, Sample
from ..stage_peaks import StagePeak, StagePeaks, list_ranks
from .graph import ModelGraph
from .partition.exact import split_over
from .partition.result import InFlight, list_activations, list_states
from .partition.stages import make_stage

# What the stages of a job needed, measured from samples: the job with the most ranks seen.


class MeasuredStage(msgspec.Struct, frozen=True, kw_only=True):
    peak: StagePeak
    # Most that was in use on a device of its ranks.
    used_bytes: int | None = None


class MeasuredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job whose ranks report their pipeline coordinate."""

    job: str | None
    # In order; stages with no rank seen are left out.
    stages: tuple[MeasuredStage, ...]
    pipeline: int
    # Whether all its ranks were seen.
    is_whole: bool
    # Whether a training step had ended on any of its ranks.
    has_steps: bool
    # Ranks that share a layer, as far as they were seen.
    tensor: int


class JobMeasurement:
    """Takes samples in any order, of one node or several."""

    def __init__(self) -> None:
        self._jobs: dict[str | None, _Job] = {}

    def observe(self, sample: Sample) -> None:
        by_job: dict[str | None, list[RankSample]] = {}
        for rank in list_ranks(sample):
            if rank.coordinates is not None and rank.coordinates.pp is not None:
                by_job.setdefault(rank.job, []).append(rank)
        for name, ranks in by_job.items():
            self._jobs.setdefault(name, _Job()).observe(sample, ranks)

    def tell(self) -> MeasuredJob | None:
        """Return what was measured; None where no rank reports its pipeline coordinate."""
        if not self._jobs:
            return None
        name = max(self._jobs, key=lambda each: self._jobs[each].count_ranks())
        return self._jobs[name].tell(name)


class _Job:
    def __init__(self) -> None:
        self._peaks = StagePeaks()
        self._used: dict[int, int] = {}
        self._has_steps = False

    def observe(self, sample: Sample, ranks: list[RankSample]) -> None:
        self._peaks.observe(replace(sample, ranks=tuple(ranks)))
        devices = {device.uuid: device for device in sample.devices}
        for rank in ranks:
            where = rank.coordinates
            if where is None or where.pp is None:
                continue
            device = devices.get(rank.device_uuid or "")
            if rank.step is not None or (device is not None and device.step):
                self._has_steps = True
            if device is None:
                continue
            memory = device.memory
            size = memory.used_bytes if memory.used_max_bytes is None else memory.used_max_bytes
            if size is not None:
                self._used[where.pp] = max(self._used.get(where.pp, 0), size)

    def count_ranks(self) -> int:
        return sum(peak.ranks for peak in self._peaks.tell().stages)

    def tell(self, name: str | None) -> MeasuredJob:
        told = self._peaks.tell()
        return MeasuredJob(
            job=name,
            stages=tuple(
                MeasuredStage(peak=peak, used_bytes=self._used.get(peak.stage)) for peak in told.stages
            ),
            pipeline=told.pipeline or told.stages[-1].stage + 1,
            is_whole=told.pipeline is not None,
            has_steps=self._has_steps,
            tensor=max(peak.tensor_ranks for peak in told.stages),
        )


# What `vramscope plan --measured --json` prints.

FEEDBACK_SCHEMA = "vramscope.plan-feedback/1"


class FeedbackStage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage: planned bytes, and those measured on its rank with the highest peak. None is unmeasured."""

    stage: int
    """Pipeline coordinate, from 0."""
    blocks: int
    """Transformer blocks that the plan assigns to it."""
    planned_bytes: int
    """Planned peak of one rank: computed, not measured."""
    ranks: int
    """Ranks of the stage that were seen."""
    allocated_bytes: int | None = None
    """Most bytes of live tensors."""
    reserved_bytes: int | None = None
    """Most bytes in segments of the allocator."""
    used_bytes: int | None = None
    """Most device memory in use on a device of the stage, by all processes."""
    difference_bytes: int | None = None
    """Measured less planned, by the measure that `PlanFeedback.basis` names."""
    factor: float
    """Measured divided by planned; where the stage was not measured, the median of the others."""
    is_factor_assumed: bool = False
    """Whether it is that median."""


class FeedbackSplit(msgspec.Struct, frozen=True, kw_only=True):
    """The model in stages, with the memory each should need: planned bytes times the stage's factor."""

    blocks: tuple[int, ...]
    """Transformer blocks of each stage."""
    layers: tuple[int, ...]
    """Layers of each stage, embedding and head included."""
    expected_bytes: tuple[int, ...]
    """An estimate."""

    @property
    def most_bytes(self) -> int:
        return max(self.expected_bytes)


class PlanFeedback(msgspec.Struct, frozen=True, kw_only=True):
    """A plan compared with a measured job."""

    schema: str = FEEDBACK_SCHEMA
    model: str
    measured: str
    """File, or `live`."""
    job: str | None
    stages: tuple[FeedbackStage, ...]
    basis: Literal["allocated", "reserved"]
    """Measure that factors are computed from; `reserved` where a measured stage has no allocated bytes."""
    tensor: int
    """Tensor ranks that share a layer, as the ranks report; planned sizes are divided by it."""
    present: FeedbackSplit
    """The split that was planned, or that was given for the job."""
    replanned: FeedbackSplit
    """The exact optimum with these factors."""
    saving_bytes: int
    """How much less the fullest stage is expected to need; 0 where the split stays."""
    capacity_bytes: int | None = None
    notes: tuple[str, ...] = ()
    """What limits the values."""
    assumed: tuple[str, ...] = ()
    """What the plan assumes, since neither flags nor files say it."""

    @property
    def would_change(self) -> bool:
        return self.saving_bytes > 0


Basis = Literal["allocated", "reserved"]
# A factor beyond this, or below one over this, means that the plan's premises are not those of the job.
FAR_OFF = 2


def make_feedback(
    graph: ModelGraph,
    bounds: Sequence[int],
    training: InFlight,
    measured: MeasuredJob,
    *,
    source: str,
    capacity_bytes: int | None = None,
    assumed: tuple[str, ...] = (),
) -> PlanFeedback:
    """Compare the plan of a model with a measured job, and plan again from what was measured.

    Args:
        bounds: First layer of each stage, and the number of layers.
        training: Bytes for each parameter, and micro-batches.
        source: Name of what was measured, to print.
        assumed: What the plan assumes, to print.

    Raises:
        UsageError: The numbers of stages differ, activations are not known, or nothing was measured.
    """
    costs = list_costs(graph, training, measured.pipeline)
    planned = _sum_stages(costs, bounds, measured)
    basis = _choose_basis(measured.stages)
    factors = _find_factors(planned, measured.stages, basis)
    present, replanned = replan(graph, bounds, costs, [each.value / measured.tensor for each in factors])
    return PlanFeedback(
        model=graph.name,
        measured=source,
        job=measured.job,
        stages=_describe_stages(present, planned, measured.stages, factors, basis),
        basis=basis,
        tensor=measured.tensor,
        present=present,
        replanned=replanned,
        saving_bytes=present.most_bytes - replanned.most_bytes,
        capacity_bytes=capacity_bytes,
        notes=tuple(_list_notes(measured, basis, factors)),
        assumed=assumed,
    )


def _sum_stages(costs: Sequence[Sequence[int]], bounds: Sequence[int], measured: MeasuredJob) -> list[int]:
    """Return the planned bytes of one rank of each stage; refuse a plan of another number of stages."""
    stages = len(bounds) - 1
    if stages != measured.pipeline:
        raise UsageError(
            f"the plan has {stages} stages, the measured job {measured.pipeline}; plan for "
            f"{measured.pipeline}"
        )
    spans = enumerate(pairwise(bounds))
    return [sum(costs[stage][start:end]) // measured.tensor for stage, (start, end) in spans]


class _Factor(NamedTuple):
    value: Fraction
    is_assumed: bool


def _choose_basis(stages: Sequence[MeasuredStage]) -> Basis:
    """Return what every measured stage reports; live tensors if they can, as a plan counts those."""
    known = [stage.peak for stage in stages if stage.peak.allocated_bytes or stage.peak.reserved_bytes]
    if not known:
        raise UsageError(
            "no rank with a pipeline coordinate reports its memory; record the job for longer than a step"
        )
    return "allocated" if all(peak.allocated_bytes for peak in known) else "reserved"


def _find_factors(planned: Sequence[int], stages: Sequence[MeasuredStage], basis: Basis) -> list[_Factor]:
    sizes = {stage.peak.stage: _measure(stage, basis) for stage in stages}
    known = {
        stage: Fraction(size, planned[stage])
        for stage, size in sizes.items()
        if size is not None and planned[stage]
    }
    usual = Fraction(median(known.values())) if known else Fraction(1)
    return [_Factor(known.get(stage, usual), stage not in known) for stage in range(len(planned))]


def _measure(stage: MeasuredStage, basis: Basis) -> int | None:
    return stage.peak.allocated_bytes if basis == "allocated" else stage.peak.reserved_bytes


def _describe_stages(
    present: FeedbackSplit,
    planned: Sequence[int],
    stages: Sequence[MeasuredStage],
    factors: Sequence[_Factor],
    basis: Basis,
) -> tuple[FeedbackStage, ...]:
    seen = {stage.peak.stage: stage for stage in stages}
    described = []
    for number, (blocks, size, factor) in enumerate(zip(present.blocks, planned, factors, strict=True)):
        stage = seen.get(number)
        found = None if stage is None else _measure(stage, basis)
        described.append(
            FeedbackStage(
                stage=number,
                blocks=blocks,
                planned_bytes=size,
                ranks=0 if stage is None else stage.peak.ranks,
                allocated_bytes=None if stage is None else stage.peak.allocated_bytes,
                reserved_bytes=None if stage is None else stage.peak.reserved_bytes,
                used_bytes=None if stage is None else stage.used_bytes,
                difference_bytes=None if found is None else found - size,
                factor=float(factor.value),
                is_factor_assumed=factor.is_assumed,
            )
        )
    return tuple(described)


def _list_notes(measured: MeasuredJob, basis: Basis, factors: Sequence[_Factor]) -> list[str]:
    notes = []
    if any(not 1 / FAR_OFF <= factor.value <= FAR_OFF for factor in factors):
        notes.append(
            "Plan and measurement are far apart: before moving layers, check that model, sequence "
            "length, micro-batch and states of the plan match the job."
        )
    if not measured.has_steps:
        notes.append("No rank has reported a finished training step: peaks may not have been reached yet.")
    unseen = sorted(set(range(measured.pipeline)) - {stage.peak.stage for stage in measured.stages})
    if unseen:
        numbers = ", ".join(map(str, unseen))
        notes.append(f"No rank of stage {numbers} was seen: its factor is the median of the others.")
    elif not measured.is_whole:
        notes.append(
            "Not all ranks of the job were seen: a stage may have needed more, and there may be more."
        )
    if any(stage.peak.is_simulated for stage in measured.stages):
        notes.append(
            "Ranks train on a modelled card: their values are from its allocator, not from a device."
        )
    if basis == "reserved":
        notes.append("Not every stage reports its live tensors: factors are for reserved memory.")
    if measured.tensor > 1:
        notes.append(
            f"{measured.tensor} tensor ranks share each layer: planned sizes are divided by "
            f"{measured.tensor}, and the factors include what they do not share."
        )
    return notes


# A layer that moves to another stage is expected to cost what the plan says for it there, times the factor of
# the stage that it moves to.
def list_costs(graph: ModelGraph, training: InFlight, stages: int) -> list[list[int]]:
    """Return what each layer needs in each stage, under 1F1B: states, and activations in flight there.

    Raises:
        UsageError: The activations of a layer are not known.
    """
    activations = list_activations(graph.layers)
    if activations is None:
        raise UsageError(
            f"{graph.name}: the activations of its layers are unknown, but a comparison needs them; "
            "make the graph from a name or a configuration"
        )
    states = list_states(graph.layers, training)
    return [
        [
            kept + min(stages - stage, training.micro_batches) * live
            for kept, live in zip(states, activations, strict=True)
        ]
        for stage in range(stages)
    ]


def replan(
    graph: ModelGraph, bounds: Sequence[int], costs: list[list[int]], factors: Sequence[Fraction]
) -> tuple[FeedbackSplit, FeedbackSplit]:
    """Return the present split and the exact optimum; the present one twice where it is the optimum.

    Args:
        factors: For each stage, expected over planned bytes.
    """
    expected = [[round(cost * factor) for cost in row] for row, factor in zip(costs, factors, strict=True)]
    present = _describe_split(graph, bounds, expected)
    best = split_over([make_stage(row) for row in expected])
    if best.maximum >= present.most_bytes:
        return present, present
    return present, _describe_split(graph, best.bounds, expected)


def _describe_split(graph: ModelGraph, bounds: Sequence[int], expected: list[list[int]]) -> FeedbackSplit:
    runs = [range(start, end) for start, end in pairwise(bounds)]
    is_block = [layer.layer_type == "transformer_block" for layer in graph.layers]
    return FeedbackSplit(
        blocks=tuple(sum(is_block[layer] for layer in run) for run in runs),
        layers=tuple(len(run) for run in runs),
        expected_bytes=tuple(sum(expected[stage][layer] for layer in run) for stage, run in enumerate(runs)),
    )
