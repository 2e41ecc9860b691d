"""How far the memory theory is from what was measured: python -m benchmarks.memory_theory CSV.

The file has the columns that `vramscope estimate --batch` reads, and what a run measured on its last
rank: `mem_allocated_last_bytes` between steps and `mem_max_allocated_peak_bytes` at most. Next to our
errors stand those of the formula that Megatron-LM publishes, on the same rows: its states against what stays
allocated, its total against the peak. It knows no last stage, and so answers another question in part.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median

from vramscope.analyzers.planning.theory import estimate_as_published, estimate_stage
from vramscope.analyzers.planning.theory.configs.cases import read_case
from vramscope.engine.errors import UsageError
from vramscope.engine.files.case_table import read_case_table
from vramscope.engine.units import MIB
from vramscope.exporters.estimates import FIT_SHARE

from .measure.tables import format_number, format_table

ALLOCATED, PEAK = "mem_allocated_last_bytes", "mem_max_allocated_peak_bytes"
CAPACITY_MIB = {"a100": 81_920, "h100": 81_559, "h200": 143_771, "b200": 183_359, "gb200": 189_471}
"""Memory of a GPU as its driver reports it, of the largest one of each kind."""
TARGET_PEAK_PERCENT, TARGET_ALLOCATED_PERCENT, TARGET_WORST_PERCENT = 6.0, 3.0, 25.0


@dataclass(frozen=True)
class CaseErrors:
    """Signed errors of one row, percent of what was measured; None where nothing was."""

    case: str
    group: dict[str, str]
    allocated: float | None
    peak: float | None
    published_allocated: float | None
    published_peak: float | None
    predicted_bytes: int
    measured_bytes: int | None
    """Of the peak."""
    capacity_bytes: int | None
    """Of the GPU it was measured on, where that is known."""

    def is_false_comfort(self, capacity_bytes: float) -> bool:
        """Return whether it was called fitting into a capacity, and took more than that."""
        if self.measured_bytes is None:
            return False
        return self.predicted_bytes <= FIT_SHARE * capacity_bytes and self.measured_bytes > capacity_bytes


_RESHARD = re.compile(r"reshard_(\d+)x(\d+)x(\d+|None)")


def add_second_run(row: dict[str, str]) -> dict[str, str]:
    """Return a row with the layout in which it was measured, where that is only in its name.

    Some functional tests of Megatron-LM train, save, and go on in another layout: TP x PP x layers of a
    piece, `reshard_8x1xNone`. A person would have to say it; an estimate reads no layout from a name.
    """
    match = _RESHARD.search(row.get("case", ""))
    if match is None:
        return row
    tensor, pipeline, size = match.groups()
    degrees = {
        "tensor-model-parallel-size": tensor,
        "pipeline-model-parallel-size": pipeline,
        "num-layers-per-virtual-pipeline-stage": size,
    }
    if not (row.get("arguments") or "").strip():
        return {**row, "tp": tensor, "pp": pipeline, "layers_per_vstage": size}
    return {**row, "arguments": json.dumps({**json.loads(row["arguments"]), **degrees})}


# Words in the names of Megatron-LM's functional tests that run without deterministic kernels.
_FREE_RUNS = (
    "nondeterministic",
    "memory_speed",
    "perf",
    "release",
    "_cp2",
    "_cp4",
    "cross_entropy_loss_fusion",
)


def add_determinism(row: dict[str, str]) -> dict[str, str]:
    """Return a row of Megatron-LM's functional tests with the flag that its arguments lack.

    They set CUBLAS_WORKSPACE_CONFIG=:4096:8 and --deterministic-mode except where the name says otherwise,
    with context parallelism, and in measurements of speed (tests/functional_tests/test_cases). A person
    would have to say it; an estimate reads nothing from a name.
    """
    text = (row.get("arguments") or "").strip()
    if not (row.get("golden_file") and text) or any(word in row.get("case", "") for word in _FREE_RUNS):
        return row
    return {**row, "arguments": json.dumps({**json.loads(text), "deterministic-mode": True})}


def judge_row(row: dict[str, str]) -> CaseErrors:
    """Return the errors of one row.

    Raises:
        UsageError: The row describes no run that could be.
    """
    run = read_case(add_determinism(add_second_run(row)))
    ours = estimate_stage(run.shape, run.layout, run.setup, -1)
    states, total = estimate_as_published(run.shape, run.layout, run.setup)
    return CaseErrors(
        case=f"{run.name} {row.get('golden_file', '').removeprefix('golden_values_').removesuffix('.json')}",
        group={
            "platform": row.get("platform", ""),
            "hidden": str(run.shape.hidden),
            "TP": str(run.layout.tensor),
            "PP": str(run.layout.pipeline),
            "CP": str(run.layout.context),
            "EP": str(run.layout.expert),
        },
        allocated=_compare(ours.allocated_bytes, row.get(ALLOCATED)),
        peak=_compare(ours.peak_bytes, row.get(PEAK)),
        published_allocated=_compare(states, row.get(ALLOCATED)),
        published_peak=_compare(total, row.get(PEAK)),
        predicted_bytes=ours.peak_bytes,
        measured_bytes=int(measured) if (measured := row.get(PEAK)) else None,
        capacity_bytes=_find_capacity(row.get("platform", "").lower()),
    )


def _find_capacity(platform: str) -> int | None:
    name = max((name for name in CAPACITY_MIB if name in platform), key=len, default=None)
    return None if name is None else CAPACITY_MIB[name] * MIB


def _compare(predicted_bytes: float, measured: str | None) -> float | None:
    return 100 * (predicted_bytes / float(measured) - 1) if measured else None


def summarize(errors: Sequence[float]) -> list[str]:
    """Return rows, mean absolute, median signed and worst error as cells."""
    if not errors:
        return ["0", "", "", ""]
    worst = max(errors, key=abs)
    mean = fmean(abs(error) for error in errors)
    return [str(len(errors)), f"{mean:.2f}", f"{median(errors):+.2f}", f"{worst:+.1f}"]


FIGURES: dict[str, Callable[[CaseErrors], float | None]] = {
    "allocated, ours": lambda case: case.allocated,
    "allocated, Megatron-LM's formula": lambda case: case.published_allocated,
    "peak, ours": lambda case: case.peak,
    "peak, Megatron-LM's formula": lambda case: case.published_peak,
}


def collect(cases: Sequence[CaseErrors], figure: str) -> list[float]:
    """Return the errors of one figure that were measured."""
    return [error for case in cases if (error := FIGURES[figure](case)) is not None]


def format_report(cases: Sequence[CaseErrors], refused: Sequence[str]) -> str:
    """Return all of it as text."""
    header = ["figure", "rows", "MAPE %", "median %", "worst %"]
    whole = [[figure, *summarize(collect(cases, figure))] for figure in FIGURES]
    parts = [format_table("errors in percent of what was measured", header, whole), ""]
    parts += [_format_groups(cases), "", _format_cases(cases)]
    if refused:
        parts += ["", f"{len(refused)} rows were refused:", *(f"  {line}" for line in refused)]
    return "\n".join([*parts, "", *_judge(cases)])


def _format_groups(cases: Sequence[CaseErrors]) -> str:
    rows = []
    for key in ("platform", "hidden", "TP", "PP", "CP", "EP"):
        groups: dict[str, list[CaseErrors]] = defaultdict(list)
        for case in cases:
            groups[case.group[key]].append(case)
        if len(groups) > 1:
            for value, members in sorted(groups.items()):
                allocated = summarize(collect(members, "allocated, ours"))
                rows.append(
                    [f"{key} {value}", *allocated[:2], *summarize(collect(members, "peak, ours"))[1:]]
                )
    return format_table(
        "by group, ours", ["rows with", "rows", "allocated MAPE", "peak MAPE", "median", "worst"], rows
    )


def _format_cases(cases: Sequence[CaseErrors]) -> str:
    rows = [
        [case.case, *(format_number(find(case)) for find in FIGURES.values())]
        for case in sorted(cases, key=lambda case: abs(case.peak or 0.0), reverse=True)
    ]
    return format_table(
        "every row, worst peak first", ["case", "allocated", "formula", "peak", "formula"], rows
    )


def _judge(cases: Sequence[CaseErrors]) -> list[str]:
    peaks, allocated = collect(cases, "peak, ours"), collect(cases, "allocated, ours")
    if not peaks or not allocated:
        return []
    found = (
        ("peak MAPE", fmean(map(abs, peaks)), TARGET_PEAK_PERCENT),
        ("allocated MAPE", fmean(map(abs, allocated)), TARGET_ALLOCATED_PERCENT),
        ("worst row", max(map(abs, peaks)), TARGET_WORST_PERCENT),
    )
    lines = [
        f"{name}: {value:.2f} %, target {target:g} %: {'met' if value <= target else 'missed'}"
        for name, value, target in found
    ]
    return [*lines, *_judge_comfort(cases)]


def _judge_comfort(cases: Sequence[CaseErrors]) -> list[str]:
    """Return how often a run that was called fitting would not have fit.

    First on the GPUs of the rows; then each row on the smallest card that it would be called fitting on.
    """
    placed = [case for case in cases if case.capacity_bytes is not None]
    fitting = [case for case in placed if case.predicted_bytes <= FIT_SHARE * (case.capacity_bytes or 0)]
    false = sum(case.is_false_comfort(case.capacity_bytes or 0) for case in fitting)
    tight = sum(case.is_false_comfort(case.predicted_bytes / FIT_SHARE) for case in cases)
    return [
        f"estimated below {FIT_SHARE:.0%} of their own GPU: {len(fitting)} of {len(placed)} rows; "
        f"of these measured above it: {false}, target 0: {'met' if not false else 'missed'}",
        f"on the smallest card that {FIT_SHARE:.0%} allows a row: {tight} of {len(cases)} measured above it",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Judge a file of cases; return 0, or 2 where it cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_theory", description=__doc__)
    parser.add_argument("cases", type=Path, metavar="CSV", help="cases with what was measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all errors there as well")
    arguments = parser.parse_args(argv)
    cases: list[CaseErrors] = []
    refused: list[str] = []
    for line, row in enumerate(read_case_table(arguments.cases).rows, start=2):
        try:
            cases.append(judge_row(row))
        except UsageError as error:
            refused.append(f"row {line}: {error}")
    sys.stdout.write(format_report(cases, refused) + "\n")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(case) for case in cases], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
