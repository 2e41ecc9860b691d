"""What `vramscope estimate --factory` does: trace the user's step, judge the trace, print or write it."""

import pickle
import sys
from argparse import Namespace
from pathlib import Path

from vramscope.analyzers.allocator_model import AllocatorSettings
from vramscope.analyzers.planning.steps import StepEstimate, StepPeaks, StepTrace, take_snapshot
from vramscope.engine.errors import UsageError
from vramscope.engine.files.base.output_file import write_whole
from vramscope.engine.units import parse_bytes
from vramscope.estimates.step import estimate_request, read_allocator_settings
from vramscope.estimates.tracing import StepRequest, Tracing

from .frame.configuration import read_settings
from .frame.parser_flags import choose_fit_code

THEORY_FLAGS = (
    *(
        "tp",
        "pp",
        "dp",
        "cp",
        "ep",
        "etp",
        "pieces",
        "world_size",
        "micro_batch",
        "global_batch",
        "micro_batches",
    ),
    *("recompute_layers", "sp", "zero", "precision", "recompute", "attention", "output", "figure"),
    "calibration",
)
"""Flags that describe a run by its sizes, for which a step of the user's own code has no use."""
DEFAULTS = {"schedule": "1f1b", "gpu": None, "theory": "vramscope"}
_MARK = "vramscope_simulated"


def estimate_factory(arguments: Namespace) -> int:
    """Estimate a step of the user's own code, print it and return the exit code.

    Raises:
        UsageError: A flag makes no sense here, or the step cannot be traced.
        OutputFileError: The snapshot cannot be written.
    """
    _check_flags(arguments)
    capacity_bytes = parse_bytes(arguments.capacity) if arguments.capacity else None
    request = StepRequest(
        factory=arguments.factory,
        batch_size=arguments.batch_size,
        seq_length=arguments.seq,
        layers=arguments.layers,
        inputs=tuple(arguments.input),
        optimizer=arguments.optimizer or "adamw",
        is_full=arguments.full,
        settings=read_allocator_settings(),
    )
    tracing, estimate = estimate_request(request, capacity_bytes)
    if arguments.snapshot is not None:
        _write_snapshot(arguments.snapshot, tracing, request.settings)
    _print(estimate, arguments)
    check = estimate.capacity
    return choose_fit_code(arguments, does_fit=None if check is None else check.does_fit)


def _check_flags(arguments: Namespace) -> None:
    given = [name for name in THEORY_FLAGS if getattr(arguments, name) not in (None, False)]
    given += [name for name, default in DEFAULTS.items() if getattr(arguments, name) != default]
    if given:
        raise UsageError(
            f"--{given[0].replace('_', '-')} does not go with --factory: the step is that of your own code, "
            "which says so by itself"
        )
    if arguments.snapshot is not None and arguments.layers and not arguments.full:
        raise UsageError(
            "--snapshot goes with --full where --layers is given: a snapshot is of what was traced"
        )


def _write_snapshot(path: Path, tracing: Tracing, settings: str) -> None:
    (trace,) = tracing.result.traces
    write_whole(pickle.dumps(describe_peak(trace, settings)), path)


def describe_peak(trace: StepTrace, settings: str) -> dict[str, object]:
    """Return the memory at the peak as a snapshot of PyTorch's that says it is of no real card."""
    snapshot = take_snapshot(trace, AllocatorSettings.parse(settings), StepPeaks(trace).peak.event)
    snapshot["allocator_settings"][_MARK] = {"name": "estimated, no GPU was used"}
    return snapshot


def _print(estimate: StepEstimate, arguments: Namespace) -> None:
    if arguments.json:
        from vramscope.exporters.json_lines import write_line

        write_line(estimate, sys.stdout.buffer)
        return
    from vramscope.exporters.estimates import describe_step_estimate

    from .frame.printing import choose_style, emit

    style = choose_style(read_settings(arguments))
    text = describe_step_estimate(estimate, style.width)
    emit(text, is_ascii=style.is_ascii)
