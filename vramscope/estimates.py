"""`estimate_step`: the memory of one training step of the user's own code, traced without a GPU."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from vramscope.analyzers.allocator_model import AllocatorSettingsError
from vramscope.analyzers.planning.cluster import find_device
from vramscope.analyzers.planning.steps import (
    EstimateRequest,
    GpuKind,
    StepEstimate,
    TraceResult,
    estimate_traces,
)
from vramscope.analyzers.planning.steps.compiled import CompiledAnalysis, CompiledEstimate, judge_compiled
from vramscope.engine.child_processes import module_command, user_code_environment
from vramscope.engine.errors import ErrorPart, PackageMissingError, SettingError, UsageError
from vramscope.engine.jobs.launch import ALLOCATOR_VARIABLES
from vramscope.engine.workloads.settings import (
    BATCH_SIZE,
    FACTORY,
    FULL,
    LAYERS,
    RANK,
    RANKS,
    SEQ_LENGTH,
)
from vramscope.exporters.estimates import describe_step_estimate
from vramscope.exporters.text import NOTEBOOK_WIDTH, format_html

_PROGRAM = "vramscope.engine.workloads.step_trace"
_JAX_PROGRAM = "vramscope.engine.workloads.jax_memory"
# Layers of the shallow models from which a deeper one is extrapolated.
FAKE_DEPTHS = (4, 8, 16)
HOST_DEPTHS = (2, 3, 4)
# Most layers of a model that is traced whole.
DEEP = 2 * FAKE_DEPTHS[-1]

OptimizerName = Literal["adamw", "adam", "sgd", "none"]


class StepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The step to trace."""

    # `module:function`.
    factory: str
    batch_size: int | None = None
    seq_length: int | None = None
    layers: int | None = None
    # Shapes and types of the arguments of a module, for example `4x1024:int64`.
    inputs: tuple[str, ...] = ()
    optimizer: OptimizerName = "adamw"
    # Ranks of the training, and the one to trace; None for a training of one process.
    ranks: int | None = None
    rank: int = 0
    # Whether a deep model is traced whole.
    is_full: bool = False
    # Settings of the allocator.
    settings: str = ""
    # Measured size of the CUDA context; None for a range.
    context_bytes: int | None = None
    # Kind of GPU that the script finds; None for one of compute capability 8.0.
    gpu: GpuKind | None = None


class JaxStepError(SettingError):
    """The factory returns a step of JAX: `compile_step` says what it needs."""


class Tracing(msgspec.Struct, frozen=True, kw_only=True):
    """Traces, and whether they were made without storage."""

    result: TraceResult
    is_fake: bool
    fallback: str | None = None
    # Whether sizes that depend on values are the largest ones.
    is_upper_bound: bool = False


class Tracer(Protocol):
    """Traces a step in one way."""

    def __call__(
        self, request: StepRequest, *, is_fake: bool, has_largest_sizes: bool = False
    ) -> TraceResult: ...


def trace_steps(request: StepRequest, trace: Tracer | None = None) -> Tracing:
    """Return the traces of a step, without storage where that is possible.

    Sizes that depend on values need real tensors. Where the host has no memory for these, sizes are the
    largest possible. `trace` replaces the child process that a trace is made in.
    """
    run = trace or _run
    _check_request(request)
    if find_spec("torch") is None:
        if find_spec("jax") is not None:
            raise JaxStepError("estimate_step needs PyTorch; for JAX use vramscope estimate --factory")
        raise PackageMissingError("estimating a step needs PyTorch: pip install 'vramscope[train]'")
    found = run(request, is_fake=True)
    if found.error is None:
        return Tracing(result=found, is_fake=True)
    if found.is_of_jax:
        raise JaxStepError(*found.error, ", which only vramscope estimate --factory reads")
    if found.doubt is None:
        raise SettingError(*found.error)
    again = run(request, is_fake=False)
    if again.is_refused:
        bound = run(request, is_fake=True, has_largest_sizes=True)
        if bound.error is None:
            return Tracing(result=bound, is_fake=True, is_upper_bound=True)
    if again.error is not None:
        raise SettingError(*_explain(found, again.error, request, is_refused=again.is_refused))
    return Tracing(result=again, is_fake=False, fallback=found.doubt)


def _explain(
    found: TraceResult, again: tuple[ErrorPart, ...], request: StepRequest, *, is_refused: bool
) -> tuple[ErrorPart, ...]:
    """Return why both ways failed; an error of the user's own code comes alone."""
    if not is_refused:
        return again
    parts: tuple[ErrorPart, ...] = (f"{found.doubt}, which needs real tensors, and ", *again)
    if request.layers:
        return parts
    return (*parts, "; with ", LAYERS, ", and a factory that takes it, shallow models suffice")


def choose_depths(request: StepRequest, *, is_fake: bool) -> tuple[int | None, ...]:
    """Return the depths to trace: the wanted one, or shallow ones to extrapolate from."""
    shallow = FAKE_DEPTHS if is_fake else HOST_DEPTHS
    longest = DEEP if is_fake else HOST_DEPTHS[-1]
    if request.layers is None or request.is_full or request.layers <= longest:
        return (request.layers,)
    return shallow


def _check_request(request: StepRequest) -> None:
    module, colon, function = request.factory.partition(":")
    if not (module and colon and function):
        raise SettingError(
            FACTORY, f" {request.factory}: expected MODULE:FUNCTION, for example train:make_step"
        )
    counts = ((BATCH_SIZE, request.batch_size), (SEQ_LENGTH, request.seq_length), (LAYERS, request.layers))
    for setting, number in counts:
        if number is not None and number < 1:
            raise SettingError(setting, f" {number}: expected 1 or more")
    if request.ranks is None and request.rank:
        raise SettingError(RANK, " needs ", RANKS, ": how many there are")
    if request.ranks is not None and not 0 <= request.rank < request.ranks:
        raise SettingError(RANK, f" {request.rank}: expected 0 to {request.ranks - 1}")
    if request.is_full and request.layers is None:
        raise SettingError(FULL, " needs ", LAYERS, ": without it the whole model is traced anyway")


def _run(request: StepRequest, *, is_fake: bool, has_largest_sizes: bool = False) -> TraceResult:
    """Run the tracer; if it dies without a result, fake tensors may be the cause."""
    message = {
        "factory": request.factory,
        "arguments": {"batch_size": request.batch_size, "seq_length": request.seq_length},
        "inputs": request.inputs,
        "optimizer": request.optimizer,
        "ranks": request.ranks,
        "rank": request.rank,
        "is_fake": is_fake,
        "has_largest_sizes": has_largest_sizes,
        "settings": request.settings,
        "gpu": None if request.gpu is None else request.gpu._asdict(),
        "depths": choose_depths(request, is_fake=is_fake),
    }
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "request.json"
        answered = Path(folder) / "result.json"
        asked.write_bytes(msgspec.json.encode(message))
        code = _call(module_command(_PROGRAM, str(asked), str(answered)))
        if answered.is_file():
            return msgspec.json.decode(answered.read_bytes(), type=TraceResult)
    if code == -signal.SIGINT:
        raise KeyboardInterrupt
    error = f"{request.factory} was not traced: {sys.executable} ended with {code}"
    if code < 0:
        return TraceResult(error=(error,), doubt=error if is_fake else None)
    return TraceResult(error=(error,))


def compile_step(request: StepRequest, capacity_bytes: int | None) -> CompiledEstimate:
    """Return what XLA says that a step of JAX needs, compiled for the devices that JAX finds here.

    Raises:
        UsageError: It cannot be compiled. Errors of the user's own code are on stderr.
    """
    asked = {
        "factory": request.factory,
        "arguments": {"batch_size": request.batch_size, "seq_length": request.seq_length},
        "layers": request.layers,
    }
    with tempfile.TemporaryDirectory() as folder:
        asking = Path(folder) / "request.json"
        answered = Path(folder) / "result.json"
        asking.write_bytes(msgspec.json.encode(asked))
        code = _call(module_command(_JAX_PROGRAM, str(asking), str(answered)), is_simulated=False)
        if not answered.is_file():
            if code == -signal.SIGINT:
                raise KeyboardInterrupt
            raise UsageError(f"{request.factory} was not compiled: {sys.executable} ended with {code}")
        analysis = msgspec.json.decode(answered.read_bytes(), type=CompiledAnalysis)
    if analysis.error is not None:
        raise SettingError(*analysis.error)
    return judge_compiled(analysis, request.factory, capacity_bytes)


def _call(command: Sequence[str], *, is_simulated: bool = True) -> int:
    """Run a program, with its output on stderr, since stdout is for data."""
    environment = user_code_environment()
    if is_simulated:
        environment |= {"VRAMSCOPE_SIMULATE": "estimate"}
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, env=environment, check=False)
    return ended.returncode


class ShownEstimate(StepEstimate, frozen=True, kw_only=True):
    """An estimate that a notebook shows as the text that `vramscope estimate --factory` prints."""

    def _repr_html_(self) -> str:
        return format_html(describe_step_estimate(self, NOTEBOOK_WIDTH))


def estimate_step(
    factory: str,
    *inputs: str,
    batch_size: int | None = None,
    seq_length: int | None = None,
    layers: int | None = None,
    ranks: int | None = None,
    rank: int = 0,
    optimizer: OptimizerName = "adamw",
    capacity_bytes: int | None = None,
    context_bytes: int | None = None,
    gpu: str | None = None,
    is_full: bool = False,
) -> StepEstimate:
    """Return the GPU memory that a training step needs, as `vramscope estimate --factory` prints it.

        estimate = vramscope.estimate_step("train:make_step", batch_size=4, layers=48)
        estimate.reserved_peak_bytes, estimate.peak_module

    The step runs twice in another process, which imports torch.

    Args:
        factory: `module:function`; the module is also searched in the current folder.
        inputs: Inputs of the module, for a factory that returns one, for example `4x1024:int64`.
        batch_size: Passed to a factory that has this argument, as are `seq_length` and `layers`.
        seq_length: Tokens in a sequence.
        layers: Depth of the model; a deep one is extrapolated from shallow ones, unless `is_full`.
        ranks: Ranks of a distributed training; the step is that of `rank`, and no other process is started.
        rank: Number of the rank, from 0.
        optimizer: Optimizer, for a factory that returns a module.
        capacity_bytes: Memory of the GPU in bytes; the estimate then says whether the step fits.
        context_bytes: What the CUDA context takes on that GPU, if you have measured it; None for a range.
        gpu: Kind of GPU, for example `h100`: its memory is the capacity unless that is given, it narrows the
            range of the context, and the script finds its compute capability.
        is_full: Trace every layer.

    Raises:
        PackageMissingError: PyTorch is not installed.
        UsageError: The step cannot be traced. Errors of the user's own code are on stderr, unchanged.
    """
    kind, size_bytes = (None, None) if gpu is None else find_gpu(gpu)
    request = StepRequest(
        factory=factory,
        batch_size=batch_size,
        seq_length=seq_length,
        layers=layers,
        inputs=inputs,
        optimizer=optimizer,
        ranks=ranks,
        rank=rank,
        is_full=is_full,
        settings=read_allocator_settings(),
        context_bytes=context_bytes,
        gpu=kind,
    )
    estimate = estimate_request(request, size_bytes if capacity_bytes is None else capacity_bytes)[1]
    return ShownEstimate(**{name: getattr(estimate, name) for name in estimate.__struct_fields__})


def find_gpu(name: str) -> tuple[GpuKind, int | None]:
    """Return a kind of GPU and its memory in bytes, which is None for a100: that has two sizes.

    Raises:
        UsageError: No GPU of CUDA has this name.
    """
    has_sizes = name.strip().lower() == "a100"
    model = find_device("a100-80gb" if has_sizes else name, is_for_cuda=True)
    kind = GpuKind("A100" if has_sizes else model.kind, model.capability, model.multiprocessors)
    return kind, None if has_sizes else model.memory_bytes


def estimate_request(request: StepRequest, capacity_bytes: int | None) -> tuple[Tracing, StepEstimate]:
    """Return the traces of a step and its estimate.

    If shallow models do not decide whether it fits, the whole model is traced, unless that needs storage.
    """
    tracing = trace_steps(request)
    estimate = judge_traces(tracing, request, capacity_bytes)
    is_open = estimate.capacity is not None and estimate.capacity.does_fit is None
    if is_open and tracing.is_fake and estimate.check is not None:
        return estimate_request(msgspec.structs.replace(request, is_full=True), capacity_bytes)
    return tracing, estimate


def judge_traces(tracing: Tracing, request: StepRequest, capacity_bytes: int | None) -> StepEstimate:
    """Return the estimate of traces."""
    asked = EstimateRequest(
        factory=request.factory,
        is_fake=tracing.is_fake,
        fallback=tracing.fallback,
        is_upper_bound=tracing.is_upper_bound,
        layers=request.layers,
        ranks=request.ranks,
        rank=None if request.ranks is None else request.rank,
        allocator_settings=request.settings,
        capacity_bytes=capacity_bytes,
        context_bytes=request.context_bytes,
        gpu=request.gpu,
    )
    try:
        return estimate_traces(tracing.result, asked)
    except AllocatorSettingsError as error:
        raise UsageError(str(error)) from None


def read_allocator_settings() -> str:
    """Return the settings of PyTorch's allocator in the environment."""
    return next((os.environ[name] for name in ALLOCATOR_VARIABLES if os.environ.get(name)), "")
