"""An estimate as an object of `vramscope estimate --json`."""

from collections.abc import Sequence

import msgspec

from ...analyzers.planning.theory import MemoryPart, RankMemory
from ...analyzers.planning.theory.calibration import Calibration
from ...analyzers.planning.theory.configs import TrainingRun
from ...analyzers.planning.theory.configs.cases import FittingChange, find_fitting_changes

SCHEMA = "vramscope.estimate/1"


class MomentReport(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a step."""

    name: str
    """`between steps`, `backward`, `loss`, or with sharded gradients `reduction`."""
    total_bytes: int
    parts: tuple[MemoryPart, ...]


class StageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank of one pipeline stage holds."""

    stage: int
    layers: tuple[int, ...]
    """Layers it holds, from 0."""
    parameters: int
    in_flight: int
    """Most pieces of forward work held at once."""
    allocated_bytes: int
    """Allocated between steps."""
    peak_bytes: int
    peak_moment: str
    moments: tuple[MomentReport, ...]


class EstimateReport(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a training run, stage by stage."""

    schema: str = SCHEMA
    theory: str = "vramscope"
    run: TrainingRun
    world_size: int
    fullest_stage: int
    """The stage with the greatest peak."""
    allocated_bytes: int
    """Of the fullest stage, between steps."""
    peak_bytes: int
    calibration: Calibration | None = None
    """What the two figures above are shifted by; stages and parts are as the theory says."""
    gpu: str | None = None
    """The card that was named; `run.setup.gpu` is the one whose workspaces the theory takes for it."""
    capacity_bytes: int | None = None
    """Capacity it is held against: what was given, else what the card has."""
    does_fit: bool | None = None
    """Whether the peak is within `FIT_SHARE` of the capacity; null without one."""
    changes: tuple[FittingChange, ...] | None = None
    """Where it does not fit: the smallest changes with which it would, each by itself; else null."""
    stages: tuple[StageReport, ...]


FIT_SHARE = 0.9
"""Share of the capacity up to which a job is called fitting: contexts, NCCL and gaps take their part too."""


def build_estimate(
    run: TrainingRun,
    stages: Sequence[RankMemory],
    capacity_bytes: int | None = None,
    calibration: Calibration | None = None,
) -> EstimateReport:
    """Return an estimate as an object, shifted where a calibration is given."""
    fullest = max(stages, key=lambda memory: memory.peak_bytes)
    allocated = fullest.allocated_bytes
    peak = fullest.peak_bytes
    if calibration is not None:
        allocated, peak = calibration.shift(allocated, peak)
    fits = None if capacity_bytes is None else peak <= FIT_SHARE * capacity_bytes
    changes = None
    if fits is False and capacity_bytes is not None:
        changes = find_fitting_changes(
            run, FIT_SHARE * capacity_bytes, lambda tried: _measure_peak(tried, calibration)
        )
    return EstimateReport(
        run=run,
        world_size=run.layout.world_size,
        fullest_stage=fullest.stage,
        allocated_bytes=allocated,
        peak_bytes=peak,
        calibration=calibration,
        capacity_bytes=capacity_bytes,
        does_fit=fits,
        changes=changes,
        stages=tuple(_report_stage(memory) for memory in stages),
    )


def _measure_peak(stages: Sequence[RankMemory], calibration: Calibration | None) -> int:
    fullest = max(stages, key=lambda memory: memory.peak_bytes)
    if calibration is None:
        return fullest.peak_bytes
    return calibration.shift(fullest.allocated_bytes, fullest.peak_bytes)[1]


def _report_stage(memory: RankMemory) -> StageReport:
    return StageReport(
        stage=memory.stage,
        layers=memory.layers,
        parameters=memory.parameters,
        in_flight=memory.in_flight,
        allocated_bytes=memory.allocated_bytes,
        peak_bytes=memory.peak_bytes,
        peak_moment=memory.peak.name,
        moments=tuple(
            MomentReport(name=moment.name, total_bytes=moment.total_bytes, parts=moment.parts)
            for moment in memory.moments
        ),
    )
