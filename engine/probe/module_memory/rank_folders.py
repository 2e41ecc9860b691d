"""Names of the folders of a profile: by where in the parallel layout this process stands."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ..base.coordinates import find_coordinates, find_meshes
from ..base.foreign import Tensor


class RankPlace:
    """Where this process stands in the parallel layout, read once.

    Args:
        parameters: Of the model; those laid out on a device mesh say where this rank is.
    """

    def __init__(self, parameters: Iterable[Tensor] = ()) -> None:
        known = find_coordinates(find_meshes(parameters)) or {}
        self.header: dict[str, Any] = dict(known)
        """What is known of this rank for the head of a file: `rank`, `world_size`, `dp`, `tp`, `pp`, …"""
        self._rank, self._tp, self._pp = (_number(known.get(name)) for name in ("rank", "tp", "pp"))
        # A program without groups has data parallelism only.
        has_groups = any(known.get(name) is not None for name in ("tp", "pp", "dp"))
        self._dp = _number(known.get("dp")) if has_groups else self._rank

    @property
    def is_traced(self) -> bool:
        """Whether the torch profiler runs on this rank: the first of its data and tensor parallel groups."""
        return self._dp == self._tp == 0

    def memory_folder(self, base: str = "") -> str:
        """Return `memory_trace/rank{}_dp{}_tp{}` below a folder."""
        return os.path.join(base, "memory_trace", f"rank{self._rank}_dp{self._dp}_tp{self._tp}")  # noqa: PTH118

    def trace_folder(self, base: str) -> str:
        """Return `traces/rank{}_dp{}_tp{}_pp{}` below a folder."""
        name = f"rank{self._rank}_dp{self._dp}_tp{self._tp}_pp{self._pp}"
        return os.path.join(base, "traces", name)  # noqa: PTH118


def _number(value: int | str | None) -> int:
    return value if isinstance(value, int) else 0
