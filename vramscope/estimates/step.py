"""`estimate_step`: the memory of a training step of the user's, without a GPU."""

import os

import msgspec

from vramscope.analyzers.allocator_model import AllocatorSettingsError
from vramscope.analyzers.planning.steps import EstimateRequest, StepEstimate, estimate_traces
from vramscope.engine.errors import UsageError
from vramscope.engine.jobs.launch import ALLOCATOR_VARIABLES, DEFAULT_CONTEXT_BYTES

from .tracing import OptimizerName, StepRequest, Tracing, trace_steps


def estimate_step(
    factory: str,
    *inputs: str,
    batch_size: int | None = None,
    seq_length: int | None = None,
    layers: int | None = None,
    optimizer: OptimizerName = "adamw",
    capacity_bytes: int | None = None,
    is_full: bool = False,
) -> StepEstimate:
    """Return what a training step needs of a GPU, as `vramscope estimate --factory` does.

        estimate = vramscope.estimate_step("train:make_step", batch_size=4, layers=48)
        estimate.reserved_peak_bytes, estimate.peak_module

    The step is made twice in a process of its own, which imports torch.

    Args:
        factory: `module:function`, its module looked for in the working folder too.
        inputs: Of a factory that returns a module: what it is called with, as `4x1024:int64`.
        batch_size: Handed to a factory that names it, as are `seq_length` and `layers`.
        layers: Depth of the model; a deep one is extrapolated from shallow ones, unless `is_full`.
        optimizer: Of a factory that returns a module.
        capacity_bytes: A card to hold it against.

    Raises:
        UsageError: It cannot be traced. What the user's own code raised is on stderr, as it is.
    """
    request = StepRequest(
        factory=factory,
        batch_size=batch_size,
        seq_length=seq_length,
        layers=layers,
        inputs=inputs,
        optimizer=optimizer,
        is_full=is_full,
        settings=read_allocator_settings(),
    )
    return estimate_request(request, capacity_bytes)[1]


def estimate_request(request: StepRequest, capacity_bytes: int | None) -> tuple[Tracing, StepEstimate]:
    """Return the traces of a step and its estimate.

    Where shallow models leave open whether it fits, the whole depth is traced, unless that takes storage.

    Raises:
        UsageError: It cannot be traced. What the user's own code raised is on stderr, as it is.
    """
    tracing = trace_steps(request)
    estimate = judge_traces(tracing, request, capacity_bytes)
    is_open = estimate.capacity is not None and estimate.capacity.does_fit is None
    if is_open and tracing.is_fake and not request.is_full:
        return estimate_request(msgspec.structs.replace(request, is_full=True), capacity_bytes)
    return tracing, estimate


def judge_traces(tracing: Tracing, request: StepRequest, capacity_bytes: int | None) -> StepEstimate:
    """Return the estimate of traces.

    Raises:
        UsageError: The settings of the allocator cannot be read.
    """
    asked = EstimateRequest(
        factory=request.factory,
        is_fake=tracing.is_fake,
        fallback=tracing.fallback,
        layers=request.layers,
        allocator_settings=request.settings,
        capacity_bytes=capacity_bytes,
        context_bytes=DEFAULT_CONTEXT_BYTES,
    )
    try:
        return estimate_traces(tracing.result, asked)
    except AllocatorSettingsError as error:
        raise UsageError(str(error)) from None


def read_allocator_settings() -> str:
    """Return what the environment sets for PyTorch's allocator."""
    return next((os.environ[name] for name in ALLOCATOR_VARIABLES if os.environ.get(name)), "")
