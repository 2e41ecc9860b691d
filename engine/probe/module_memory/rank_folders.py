"""Names of the folders of a profile: by where in the parallel layout this process stands."""

from __future__ import annotations

import os
from typing import Any

from ..coordinates import find_coordinates


def describe_rank() -> dict[str, Any]:
    """Return what is known of this rank for the head of a file: `rank`, `world_size`, `dp`, `tp`, `pp`, …"""
    return dict(find_coordinates() or {})


def name_memory_folder(base: str = "") -> str:
    """Return `memory_trace/rank{}_dp{}_tp{}` below a folder."""
    rank, dp, tp, _ = _find_places()
    return os.path.join(base, "memory_trace", f"rank{rank}_dp{dp}_tp{tp}")  # noqa: PTH118


def name_trace_folder(base: str) -> str:
    """Return `traces/rank{}_dp{}_tp{}_pp{}` below a folder."""
    rank, dp, tp, pp = _find_places()
    return os.path.join(base, "traces", f"rank{rank}_dp{dp}_tp{tp}_pp{pp}")  # noqa: PTH118


def is_traced() -> bool:
    """Tell whether this rank is one that the torch profiler is run on: the first of its groups."""
    _, dp, tp, _ = _find_places()
    return dp == tp == 0


def _find_places() -> tuple[int, int, int, int]:
    """Return rank, and its places in its data, tensor and pipeline parallel groups.

    A program that tells of no groups has one of data parallelism at most.
    """
    known = find_coordinates() or {}
    rank, tp, pp = (_number(known.get(name)) for name in ("rank", "tp", "pp"))
    has_groups = any(known.get(name) is not None for name in ("tp", "pp", "dp"))
    return rank, _number(known.get("dp")) if has_groups else rank, tp, pp


def _number(value: int | str | None) -> int:
    return value if isinstance(value, int) else 0
