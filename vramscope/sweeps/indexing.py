"""Reads every sweep in some folders into one index."""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from vramscope.analyzers.planning.sweep import find_all, make_grid
from vramscope.analyzers.planning.sweep.index import IndexedSweep, SweepIndex
from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.files.sweep import FolderPair, Sweep, find_sweeps, read_pair
from vramscope.engine.files.sweep.index import explain_no_iteration, has_iteration
from vramscope.engine.text import make_printable
from vramscope.engine.units import GIB

Progress = Callable[[int, int], object]
"""Takes how many configurations are read, and of how many that were found so far."""


def index_sweeps(
    roots: Sequence[Path],
    max_memory_gib: float,
    *,
    iteration: int | None = None,
    on_progress: Progress = lambda done, total: None,
) -> SweepIndex:
    """Return all sweeps in some folders and below them.

    Args:
        roots: Folders of traces, of logs, or trees of both.
        max_memory_gib: Of a device.
        iteration: Whose peak is read; None for the highest peak of all iterations.
        on_progress: Called with how far the reading is.

    Raises:
        InputFileError: A folder cannot be read, there is no sweep in any, or no trace has the iteration.
    """
    pairs, notes = find_sweeps(roots)
    names = name_folders([_list_parts(pair) for pair in pairs])
    progress = _SummedProgress(pairs, on_progress)
    sweeps = []
    is_absent = iteration is not None
    for pair, name in zip(pairs, names, strict=True):
        sweep = read_pair(pair, iteration=iteration, on_progress=progress.show)
        is_absent = is_absent and not has_iteration(sweep)
        progress.finish_one()
        if sweep.configurations:
            sweeps.append(_judge(sweep, pair, name, round(max_memory_gib * GIB)))
        else:
            notes.append(_explain_emptiness(sweep, name))
    if not sweeps:
        raise InputFileError("; ".join(notes))
    if iteration is not None and is_absent:
        raise InputFileError(explain_no_iteration(", ".join(map(show_path, roots)), iteration))
    return SweepIndex(tuple(sweeps), tuple(notes))


def _judge(sweep: Sweep, pair: FolderPair, name: str, capacity_bytes: int) -> IndexedSweep:
    grid = make_grid(sweep, capacity_bytes)
    told = None if pair.traces is None else pair.traces.model
    logged = None if pair.logs is None or pair.logs.name is None else pair.logs.name.model
    return IndexedSweep(
        name=name,
        grid=grid,
        findings=find_all(grid),
        skipped=sweep.skipped,
        model=told or sweep.model or logged,
        memory_dir=None if sweep.memory_dir is None else show_path(sweep.memory_dir),
        log_dir=None if sweep.log_dir is None else show_path(sweep.log_dir),
        reason=pair.reason,
        modified_s=None if sweep.modified_ns is None else sweep.modified_ns / 1e9,
    )


def _explain_emptiness(sweep: Sweep, name: str) -> str:
    """Return why a sweep of which no file can be read is not listed."""
    first = sweep.skipped[0]
    return (
        f"{name}: none of {len(sweep.skipped):,} memory traces can be read; the first is "
        f"{show_path(first.path)}: {first.reason}"
    )


class _SummedProgress:
    """Adds up how far each sweep is; the configurations of one are known when its reading begins."""

    def __init__(self, pairs: Sequence[FolderPair], on_progress: Progress) -> None:
        self._on_progress = on_progress
        self._done = self._shown = 0
        self._expected = [_count_layouts(pair) for pair in pairs]

    def show(self, done: int, total: int) -> None:
        """Tell how far the present sweep is."""
        self._expected[0] = total
        self._shown = done
        self._on_progress(self._done + done, self._done + sum(self._expected))

    def finish_one(self) -> None:
        """Go on to the next sweep."""
        self._done += self._expected.pop(0)


def _count_layouts(pair: FolderPair) -> int:
    traced = set() if pair.traces is None else {file.layout for file in pair.traces.files}
    return len(traced | (set() if pair.logs is None else set(pair.logs.entries)))


def _list_parts(pair: FolderPair) -> tuple[str, ...]:
    """Return the parts of the path that a sweep is named by: of its traces, else of its logs."""
    if pair.traces is not None:
        path = pair.traces.path
    else:
        path = Path("sweep") if pair.logs is None else pair.logs.folder
    return path.resolve().parts[1:] or (str(path),)


def name_folders(paths: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a name for each path: its last part, with as many of those above as tell it from the others."""
    names = [path[-1] for path in paths]
    for depth in range(2, max(map(len, paths), default=1) + 1):
        doubles = {name for name in names if names.count(name) > 1}
        if not doubles:
            break
        names = [
            "/".join(path[-depth:]) if name in doubles else name
            for name, path in zip(names, paths, strict=True)
        ]
    seen = count(1)
    shown = map(make_printable, names)
    return [name if names.count(name) == 1 else f"{name} #{next(seen)}" for name in shown]
