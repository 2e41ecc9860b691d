"""`estimate_step`: the memory of one training step of the user's own code, traced without a GPU."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec

from vramscope.analyzers.allocator_model import AllocatorSettingsError
from vramscope.analyzers.planning.steps import EstimateRequest, StepEstimate, TraceResult, estimate_traces
from vramscope.engine.child_processes import module_command, user_code_environment
from vramscope.engine.errors import UsageError
from vramscope.engine.jobs.launch import ALLOCATOR_VARIABLES, DEFAULT_CONTEXT_BYTES

_PROGRAM = "vramscope.engine.workloads.step_trace"
FAKE_DEPTHS = (4, 8, 16)
HOST_DEPTHS = (2, 3, 4)
"""Layers of the models that a deeper one is extrapolated from."""
DEEP = 2 * FAKE_DEPTHS[-1]
"""Layers up to which a model is traced whole."""

OptimizerName = Literal["adamw", "adam", "sgd", "none"]


class StepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be traced."""

    factory: str
    """`module:function`."""
    batch_size: int | None = None
    seq_length: int | None = None
    layers: int | None = None
    inputs: tuple[str, ...] = ()
    """Shapes and types of the arguments of a module, as `4x1024:int64`."""
    optimizer: OptimizerName = "adamw"
    is_full: bool = False
    """Whether a deep model is traced whole."""
    settings: str = ""
    """Of the allocator."""


class Tracing(msgspec.Struct, frozen=True, kw_only=True):
    """Traces, and on what storage they were made."""

    result: TraceResult
    is_fake: bool
    fallback: str | None = None


def trace_steps(request: StepRequest) -> Tracing:
    """Return the traces of a step, without storage where that is possible."""
    _check_request(request)
    if find_spec("torch") is None:
        raise UsageError("estimating a step needs PyTorch: pip install 'vramscope[train]'")
    found = _run(request, is_fake=True)
    if found.error is None:
        return Tracing(result=found, is_fake=True)
    if found.doubt is None:
        raise UsageError(found.error)
    again = _run(request, is_fake=False)
    if again.error is not None:
        raise UsageError(_explain(found, again, request))
    return Tracing(result=again, is_fake=False, fallback=found.doubt)


def _explain(found: TraceResult, again: TraceResult, request: StepRequest) -> str:
    """Return why neither way could be gone; what real tensors raise is the user's, and told alone."""
    if not again.is_refused:
        return again.error or ""
    advice = "" if request.layers else "; with --layers, and a factory that takes it, shallow models would do"
    return f"{found.doubt}, which needs real tensors, and {again.error}{advice}"


def choose_depths(request: StepRequest, *, is_fake: bool) -> tuple[int | None, ...]:
    """Return the depths to trace: the one that is asked for, or shallow ones to extrapolate from."""
    shallow = FAKE_DEPTHS if is_fake else HOST_DEPTHS
    longest = DEEP if is_fake else HOST_DEPTHS[-1]
    if request.layers is None or request.is_full or request.layers <= longest:
        return (request.layers,)
    return shallow


def _check_request(request: StepRequest) -> None:
    module, colon, function = request.factory.partition(":")
    if not (module and colon and function):
        raise UsageError(f"--factory {request.factory}: expected module:function, as train:make_step")
    counts: Mapping[str, int | None] = {
        "--batch-size": request.batch_size,
        "--seq": request.seq_length,
        "--layers": request.layers,
    }
    for flag, number in counts.items():
        if number is not None and number < 1:
            raise UsageError(f"{flag} {number}: expected at least 1")
    if request.is_full and request.layers is None:
        raise UsageError("--full goes with --layers: without it the model is traced whole anyway")


def _run(request: StepRequest, *, is_fake: bool) -> TraceResult:
    """Run the tracer; where it ended without a result, that may be the fault of fake tensors."""
    told = {
        "factory": request.factory,
        "arguments": {"batch_size": request.batch_size, "seq_length": request.seq_length},
        "inputs": request.inputs,
        "optimizer": request.optimizer,
        "is_fake": is_fake,
        "settings": request.settings,
        "depths": choose_depths(request, is_fake=is_fake),
    }
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "request.json"
        answered = Path(folder) / "result.json"
        asked.write_bytes(msgspec.json.encode(told))
        code = _call(module_command(_PROGRAM, str(asked), str(answered)))
        if answered.is_file():
            return msgspec.json.decode(answered.read_bytes(), type=TraceResult)
    if code == -signal.SIGINT:
        raise KeyboardInterrupt
    error = f"{request.factory} was not traced: {sys.executable} ended with {code}"
    if code < 0:
        return TraceResult(error=error, doubt=error if is_fake else None)
    return TraceResult(error=error)


def _call(command: Sequence[str]) -> int:
    """Run a program whose output is not our data."""
    environment = user_code_environment() | {"VRAMSCOPE_SIMULATE": "estimate"}
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, env=environment, check=False)
    return ended.returncode


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
    """
    tracing = trace_steps(request)
    estimate = judge_traces(tracing, request, capacity_bytes)
    is_open = estimate.capacity is not None and estimate.capacity.does_fit is None
    if is_open and tracing.is_fake and not request.is_full:
        return estimate_request(msgspec.structs.replace(request, is_full=True), capacity_bytes)
    return tracing, estimate


def judge_traces(tracing: Tracing, request: StepRequest, capacity_bytes: int | None) -> StepEstimate:
    """Return the estimate of traces."""
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
