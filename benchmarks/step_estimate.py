"""What an estimate of a training step costs and says, and PyTorch's own MemTracker in the same run."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from vramscope.analyzers.planning.steps import StepPeaks
from vramscope.estimates import FAKE_DEPTHS, StepRequest, judge_traces, trace_steps

from .budgets import Budget
from .measure.tables import format_number, format_table

LAYERS = 48
MOST_SHARE = 0.1
"""Of the time of the peer: ten times as fast."""
_GPT = Path(__file__).parent / "step_estimate_gpt.py"


@dataclass(frozen=True)
class EstimateRun:
    """One way to know the memory of a step."""

    name: str
    seconds: float
    """From the making of the model to the report, without the imports."""
    requested_peak_bytes: int | None
    """In live tensors, not rounded."""
    live_peak_bytes: int | None = None
    """The same, each rounded up to 512."""
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None


def measure_step_estimate() -> list[EstimateRun]:
    """Return MemTracker, the traced step and the extrapolated one, of a GPT of 1.6 B parameters."""
    done = subprocess.run(
        [sys.executable, str(_GPT), str(LAYERS)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    tracker = EstimateRun("MemTracker of PyTorch", found["seconds"], int(found["requested_peak_bytes"]))
    return [tracker, _estimate("traced", is_full=True), _estimate("extrapolated", is_full=False)]


def judge_step_estimate(runs: list[EstimateRun]) -> list[Budget]:
    """Return the budgets of the traced estimate: speed, and live bytes that are those of the peer."""
    tracker, traced, _ = runs
    off = (traced.requested_peak_bytes or 0) - (tracker.requested_peak_bytes or 0)
    return [
        Budget(
            "estimate of a step, × the time of MemTracker", traced.seconds / tracker.seconds, MOST_SHARE, "×"
        ),
        Budget("its live bytes, off those of MemTracker", abs(off), 0, "B"),
    ]


def format_step_estimate(runs: list[EstimateRun]) -> str:
    """Return the table."""
    head = ["", "s", "× as fast", "live bytes", "rounded GiB", "allocated GiB", "reserved GiB"]
    rows = [
        [
            run.name,
            format_number(run.seconds, 2),
            format_number(runs[0].seconds / run.seconds, 1),
            "—" if run.requested_peak_bytes is None else f"{run.requested_peak_bytes:,}",
            _show(run.live_peak_bytes),
            _show(run.allocated_peak_bytes),
            _show(run.reserved_peak_bytes),
        ]
        for run in runs
    ]
    return format_table(f"Estimate of a step: GPT of {LAYERS} layers, 1.6 B, bf16, Adam", head, rows)


def as_estimate_figures(runs: list[EstimateRun]) -> list[dict[str, object]]:
    """Return the figures as they stand in the results."""
    return [asdict(run) for run in runs]


def _estimate(name: str, *, is_full: bool) -> EstimateRun:
    request = StepRequest(factory=f"{_GPT.stem}:make_step", layers=LAYERS, is_full=is_full)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_GPT.parent), os.environ.get("PYTHONPATH", "")])
    traced = trace_steps(request)
    begun_s = time.perf_counter()
    estimate = judge_traces(traced, request, None)
    seconds = estimate.traced_s + time.perf_counter() - begun_s
    peaks = StepPeaks(traced.result.traces[-1])
    return EstimateRun(
        name if is_full else f"{name} from {', '.join(map(str, FAKE_DEPTHS))} layers",
        seconds,
        peaks.count_requested(peaks.peak.event) if is_full else None,
        estimate.live_peak_bytes,
        estimate.allocated_peak_bytes,
        estimate.reserved_peak_bytes,
    )


def _show(size_bytes: int | None) -> str:
    return "—" if size_bytes is None else f"{size_bytes / 2**30:.3f}"
