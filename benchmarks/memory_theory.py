"""How far the memory theory is from what was measured: python -m benchmarks.memory_theory CSV.

The file has the columns that `vramscope estimate --batch` reads, and beside them what a run measured on its
last rank: `mem_allocated_last_bytes` between steps and `mem_max_allocated_peak_bytes` at most. Beside our
errors stand those of the formula that Megatron-LM publishes, on the same rows: its states against what stays
allocated, its total against the peak. It knows no last stage, and so answers another question in part.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median

from vramscope.analyzers.memory_theory import estimate_as_published, estimate_stage
from vramscope.analyzers.memory_theory.configs.cases import read_case
from vramscope.engine.errors import UsageError
from vramscope.engine.readers.case_table import read_case_table

from .measure.tables import format_number, format_table

ALLOCATED, PEAK = "mem_allocated_last_bytes", "mem_max_allocated_peak_bytes"
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


def judge_row(row: dict[str, str]) -> CaseErrors:
    """Return the errors of one row.

    Raises:
        UsageError: The row describes no run that could be.
    """
    run = read_case(row)
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
    )


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
    return [
        f"{name}: {value:.2f} %, target {target:g} %: {'met' if value <= target else 'missed'}"
        for name, value, target in found
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
