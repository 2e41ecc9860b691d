"""Memory traces as the tests write them, and the measured ones where they are at hand."""

import json
from pathlib import Path

import pytest

from tests import REPOSITORY

MEASURED = REPOSITORY.parent / "shared/data/sweep_traces"

Row = tuple[float, float, float]
"""Seconds, device used in MiB, allocated in MiB."""


def require_measured(run: str) -> Path:
    """Return the folder of a measured run, or skip."""
    folder = MEASURED / run
    if not folder.is_dir():
        pytest.skip(f"measured traces are not at hand: {folder}")
    return folder


def samples(rows: list[Row]) -> list[dict[str, float]]:
    """Return the samples of one iteration as the file has them."""
    return [
        {"timestamp_s": time_s, "reserved_memory_MB": used, "allocated_memory_MB": allocated}
        for time_s, used, allocated in rows
    ]


def trace(*iterations: list[Row]) -> dict[str, dict[str, object]]:
    """Return the content of a file, one list of rows an iteration."""
    return {
        str(index): {"samples": samples(rows), "peak_allocated_MB": -1.0}
        for index, rows in enumerate(iterations)
    }


def write_trace(folder: Path, name: str, content: object) -> Path:
    """Write a file of a trace and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(content, indent=4))
    return path


def rank_name(rank: int, layout: str = "_wd8_tp2_pp4_l40_bs1") -> str:
    """Return the name of a rank's file."""
    return f"memory_trace_rank{rank}{layout}.json"
