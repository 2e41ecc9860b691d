"""All configurations that a joint plan considers: degrees, and for each of them how it is trained."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ....engine.errors import UsageError
from ..theory import ModelShape, ParallelLayout, RankMemory, TrainingSetup
from ..theory.configs.flags import NotCounted
from ..theory.shape import GPUS, Gpu, Recompute
from ..time import StepTime

# A joint plan: configurations in order of their step time, with the memory of every rank.

JOINT_PLAN_SCHEMA = "vramscope.joint-plan/1"


class JointStage(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline stage of a configuration."""

    stage: int
    # Transformer layers, from 0; embedding and head belong to the first and last stage in addition.
    layers: tuple[int, ...]
    # Positions in the cluster of all ranks of the stage: all its tensor and data ranks.
    devices: tuple[int, ...]
    # Memory of the smallest of these devices, as far as a plan may fill it.
    capacity_bytes: int
    memory: RankMemory
    # Seconds of one micro-batch, forward and backward, its tensor ranks' collectives included, on the slowest
    # of these devices.
    compute_s: float


class JointConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """One way to train the model on the cluster."""

    layout: ParallelLayout
    setup: TrainingSetup
    stages: tuple[JointStage, ...]
    time: StepTime
    # Why it has its place in the list: a comparison with the configuration next to it.
    reasons: tuple[str, ...] = ()

    @property
    def peak_bytes(self) -> int:
        return max(stage.memory.peak_bytes for stage in self.stages)

    @property
    def least_headroom_bytes(self) -> int:
        """What is left, at its peak, on the rank that comes nearest to its capacity."""
        return min(stage.capacity_bytes - stage.memory.peak_bytes for stage in self.stages)


class PrunedCount(msgspec.Struct, frozen=True, gc=False):
    """How many configurations were left out for one reason."""

    reason: str
    count: int


class JointAssumptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the times are based on; `calibration` names the measurements, None for none."""

    global_batch: int
    seq_length: int
    efficiency: float
    """Share of a device's peak FLOP/s that matrix products reach."""
    memory_share: float
    """Share of a device's memory that a plan may fill."""
    calibration: str | None = None


class JointPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The fastest configurations of a model on a cluster, and why the others were left out."""

    schema: str
    model: str
    cluster: str
    devices: int
    assumptions: JointAssumptions
    model_flops: float
    """FLOPs of the model in one step, nothing recomputed."""
    configurations: tuple[JointConfiguration, ...]
    """The fastest that fit, the fastest first."""
    considered: int
    """How many configurations the space has."""
    pruned: tuple[PrunedCount, ...]
    """How many of them were left out, and why; what remains was estimated one by one."""
    optimality: str
    """Whether the order of devices was searched exactly, or how far from the best it is at most."""
    not_counted: tuple[NotCounted, ...] = ()
    """Flags of the model's file that change memory and are not in the estimates."""
    assumed: tuple[str, ...] = ()
    """What was assumed, since neither flags nor files say it."""


# What a joint plan may choose from.

RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
ZERO_STAGES = (0, 1, 2, 3)
# Share of a device's memory that a plan fills: the rest is for the CUDA context, NCCL and fragmentation,
# which the memory theory does not count.
MEMORY_SHARE = 0.9

MOST_MICRO_BATCH = 1024


class JointOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The batch, and what is searched."""

    global_batch: int
    """Sequences of a step, over all ranks."""
    seq_length: int
    max_tensor: int | None = None
    """Most tensor ranks; None: as many as the smallest node has devices."""
    zero_stages: tuple[int, ...] = ZERO_STAGES
    recomputes: tuple[Recompute, ...] = RECOMPUTES
    max_micro_batch: int = 32
    """Most sequences of a micro-batch."""
    context: int = 1
    """Context-parallel ranks; given, not searched."""
    memory_share: float = MEMORY_SHARE
    top: int = 10
    """Number of configurations wanted."""
    training: TrainingSetup | None = None
    """What a plan does not choose: number formats, attention, dropout, kernels. None: a setup's defaults."""

    def make_setup(self) -> TrainingSetup:
        """Return what all configurations share, with micro-batches of one sequence."""
        if self.training is None:
            return TrainingSetup(seq_length=self.seq_length, micro_batch_size=1)
        return msgspec.structs.replace(self.training, seq_length=self.seq_length, micro_batch_size=1)


def check_options(options: JointOptions) -> None:
    """Refuse options that cannot be planned with, by `UsageError`."""
    for name in ("global_batch", "seq_length", "max_micro_batch", "context", "top"):
        if getattr(options, name) < 1:
            raise UsageError(f"{name.replace('_', ' ')} is {getattr(options, name)}; expected at least 1")
    if options.max_micro_batch > MOST_MICRO_BATCH:
        raise UsageError(
            f"most sequences of a micro-batch are {options.max_micro_batch:,}; expected at most "
            f"{MOST_MICRO_BATCH:,}"
        )
    if options.max_tensor is not None and options.max_tensor < 1:
        raise UsageError(f"most tensor ranks are {options.max_tensor}; expected at least 1")
    if not 0 < options.memory_share <= 1:
        raise UsageError(f"a memory share of {options.memory_share:g}; expected above 0 and at most 1")
    if not options.zero_stages or not set(options.zero_stages) <= set(ZERO_STAGES):
        raise UsageError(f"ZeRO stages {options.zero_stages}; expected some of 0, 1, 2 and 3")
    if not options.recomputes or not set(options.recomputes) <= set(RECOMPUTES):
        raise UsageError(f"recomputation {options.recomputes}; expected some of none, selective and full")


BEYOND_NODE = "more tensor ranks than a node has devices, or than allowed"
HEADS = "TP divides heads, groups of keys and values, or inner columns unevenly"
SEQUENCE = "CP or TP with sequence parallelism divides the sequence unevenly"
STAGES = "more stages than layers"
EXPERTS = "EP divides experts or data ranks unevenly"
BATCH = "DP does not divide the global batch"
INTERLEAVING = "interleaving needs even pieces, and micro-batches in multiples of PP"
TOO_LARGE = "too much memory on some rank"
SLOWER_THAN_LISTED = "cannot be faster than what is listed (bound on the step time)"
SAME_DEGREES = "not faster than another configuration with the same degrees"


class Degrees(NamedTuple):
    tensor: int
    pipeline: int
    data: int
    expert: int


class Variant(NamedTuple):
    micro_batch: int
    virtual_stages: int
    is_sequence_parallel: bool
    recompute: Recompute
    zero_stage: int


class Candidate(NamedTuple):
    """One configuration; the layers of its stages are still to be chosen."""

    degrees: Degrees
    layout: ParallelLayout
    setup: TrainingSetup


class SearchSpace:
    """The configurations of a model on so many devices; all of them are used.

    `node_devices` are those of the smallest node; `gpu` decides the workspaces of libraries, None for those
    of the setup.
    """

    def __init__(
        self,
        shape: ModelShape,
        devices: int,
        node_devices: int,
        options: JointOptions,
        gpu: Gpu | None = None,
    ) -> None:
        self._shape = shape
        self._devices = devices
        self._options = options
        setup = options.make_setup()
        self._setup = msgspec.structs.replace(setup, gpu=gpu or setup.gpu)
        self._most_tensor = options.max_tensor or node_devices
        # Configurations that were looked at, valid or not.
        self.considered = 0
        # Invalid ones among them, by reason.
        self.pruned: Counter[str] = Counter()

    def list_candidates(self) -> list[Candidate]:
        return [found for degrees in self._list_degrees() for found in self._list_variants(degrees)]

    def _list_degrees(self) -> Iterator[Degrees]:
        rest, left = divmod(self._devices, self._options.context)
        if left:
            return
        experts = self._shape.experts
        expert_degrees = [1] if experts is None else list_divisors(experts.experts)
        for tensor in list_divisors(rest):
            for pipeline in list_divisors(rest // tensor):
                data = rest // tensor // pipeline
                for expert in expert_degrees:
                    yield Degrees(tensor, pipeline, data, expert)

    def _list_variants(self, degrees: Degrees) -> Iterator[Candidate]:
        """Yield the valid variants of one choice of degrees; count the rest by reason."""
        for variant in self._list_choices(degrees):
            self.considered += 1
            if (reason := self._refuse_degrees(degrees) or self._refuse(degrees, variant)) is not None:
                self.pruned[reason] += 1
            else:
                yield self._make_candidate(degrees, variant)

    def _list_choices(self, degrees: Degrees) -> list[Variant]:
        options = self._options
        layers = self._shape.layers
        own = options.global_batch // degrees.data
        sizes = [size for size in list_divisors(own) if size <= options.max_micro_batch] if own else [1]
        pieces = [1]
        if degrees.pipeline > 1:
            pieces += [count for count in list_divisors(layers // degrees.pipeline or 1) if count > 1]
        return [
            Variant(size, count, is_split, recompute, zero)
            for size in sizes
            for count in pieces
            for is_split in ((False, True) if degrees.tensor > 1 else (False,))
            for recompute in options.recomputes
            for zero in options.zero_stages
        ]

    def _refuse_degrees(self, degrees: Degrees) -> str | None:
        """Return why degrees are impossible, whatever is trained with them; None where they are possible."""
        shape = self._shape
        tensor = degrees.tensor
        if tensor > self._most_tensor:
            return BEYOND_NODE
        groups = shape.kv_groups if shape.latent is None and shape.kv_groups >= tensor else tensor
        if shape.heads % tensor or groups % tensor or shape.ffn % tensor:
            return HEADS
        if degrees.pipeline > shape.layers:
            return STAGES
        experts = shape.experts
        if experts is not None:
            ranks = degrees.data * self._options.context
            if ranks % degrees.expert or experts.ffn % tensor:
                return EXPERTS
        return BATCH if self._options.global_batch % degrees.data else None

    def _refuse(self, degrees: Degrees, variant: Variant) -> str | None:
        context = self._options.context
        tokens = self._options.seq_length
        if context > 1 and tokens % (2 * context):
            return SEQUENCE
        if variant.is_sequence_parallel and tokens % (degrees.tensor * context):
            return SEQUENCE
        often = self._options.global_batch // (degrees.data * variant.micro_batch)
        is_even = self._shape.layers % (degrees.pipeline * variant.virtual_stages) == 0
        if variant.virtual_stages > 1 and (often % degrees.pipeline or not is_even):
            return INTERLEAVING
        return None

    def _make_candidate(self, degrees: Degrees, variant: Variant) -> Candidate:
        layout = ParallelLayout(
            tensor=degrees.tensor,
            pipeline=degrees.pipeline,
            data=degrees.data,
            context=self._options.context,
            expert=degrees.expert,
            is_sequence_parallel=variant.is_sequence_parallel,
            virtual_stages=variant.virtual_stages,
        )
        usual = self._setup
        micro_batches = self._options.global_batch // (degrees.data * variant.micro_batch)
        setup = msgspec.structs.replace(
            usual,
            micro_batch_size=variant.micro_batch,
            micro_batches=micro_batches,
            zero_stage=variant.zero_stage,
            keeps_stage_whole=usual.keeps_stage_whole and degrees.pipeline > 1,
            recompute=variant.recompute,
            deferred_gradients=min(usual.deferred_gradients, micro_batches),
        )
        return Candidate(degrees, layout, setup)


def find_gpu(kind: str | None) -> Gpu | None:
    """Return the memory theory's name of a device; None where it knows none like it."""
    name = (kind or "").lower()
    return max((gpu for gpu in GPUS if gpu in name), key=len, default=None)


def list_divisors(number: int) -> list[int]:
    low = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return low + [number // each for each in reversed(low) if each * each != number]
