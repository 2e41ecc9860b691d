"""Runs of the suite, and inputs for them."""

import json
from pathlib import Path
from typing import Any

from ....exporters.reports.shapes import check_shape
from ..running import GIB, Outcome, call

TOTAL = 80 * GIB
HEADER = "time_s,device,allocated_bytes,reserved_bytes,used_bytes,total_bytes,step\n"


def report_of(outcome: Outcome, verb: str) -> dict[str, Any]:
    """Return the report on standard output, once its shape is the original's."""
    report: dict[str, Any] = json.loads(outcome.stdout)
    check_shape(verb, report)
    return report


def read_report(path: Path, verb: str) -> dict[str, Any]:
    """Return the report in a file, once its shape is the original's."""
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    check_shape(verb, report)
    return report


def write_series(path: Path, *, seconds: int = 600, growth: int = 0, base: int = 20 * GIB) -> Path:
    """Write a series of one device, in steps of ten seconds.

    Args:
        path: File to write.
        seconds: Samples, one a second.
        growth: Bytes by which what lives at step ends grows a second.
        base: Bytes that live at the first step end.
    """
    lines = []
    for t in range(seconds):
        allocated = base + growth * t + (t % 10) * 300_000_000
        reserved = allocated + GIB
        lines.append(f"{t},0,{allocated},{reserved},{reserved + GIB // 2},{TOTAL},{t // 10}\n")
    path.write_text(HEADER + "".join(lines), encoding="utf-8")
    return path


def run_input(verb: str, path: Path, *flags: str) -> dict[str, Any]:
    """Return the report of a verb about a file."""
    outcome = call(verb, "--input", str(path), *flags)
    assert outcome.code == 0, outcome.stderr
    return report_of(outcome, verb)
