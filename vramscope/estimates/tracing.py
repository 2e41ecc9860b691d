"""Traces training steps in a process of its own: without storage, and on the host where that will not do."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec

from vramscope.analyzers.planning.steps import TraceResult
from vramscope.engine.child_processes import module_command, user_code_environment
from vramscope.engine.errors import UsageError

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
    """Return the traces of a step, without storage where that is possible.

    Raises:
        UsageError: It cannot be traced. What the user's own code raised is on stderr, as it is.
    """
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
