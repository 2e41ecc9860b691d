"""Reads a sweep and judges it: what the verb and the class both begin with."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from vramscope.analyzers.planning.sweep import SweepFinding, SweepGrid, find_all, make_grid
from vramscope.engine.files.sweep import SkippedFile, read_sweep
from vramscope.engine.units import GIB


class LoadedSweep(msgspec.Struct, frozen=True):
    """A sweep, what it says, and what was left out of it."""

    grid: SweepGrid
    findings: tuple[SweepFinding, ...]
    skipped: tuple[SkippedFile, ...]


def load_sweep(
    memory_dir: Path,
    log_dir: Path | None,
    max_memory_gib: float,
    *,
    iteration: int | None = None,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
) -> LoadedSweep:
    """Return a sweep from its folders.

    Args:
        memory_dir: Folder of the memory traces.
        log_dir: Folder of the sweep's logs; None for none.
        max_memory_gib: Of a device.
        iteration: Whose peak is read; None for the highest peak of all iterations.
        on_progress: Called with the number of configurations read, and of all.

    Raises:
        InputFileError: A folder cannot be read, or holds no sweep.
    """
    sweep = read_sweep(memory_dir, log_dir, iteration=iteration, on_progress=on_progress)
    grid = make_grid(sweep, round(max_memory_gib * GIB))
    return LoadedSweep(grid, find_all(grid), sweep.skipped)
