"""Sweeps over TP and PP, read from their traces and logs, and the heat map of one."""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramscope.analyzers.planning.sweep import SweepFinding, SweepGrid, find_all, make_grid
from vramscope.analyzers.planning.sweep.index import IndexedSweep, SweepIndex
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.files.sweep import FolderPair, SkippedFile, Sweep, find_sweeps, read_pair, read_sweep
from vramscope.engine.files.sweep.index import explain_no_iteration, has_iteration
from vramscope.engine.text import make_printable
from vramscope.engine.units import GIB
from vramscope.exporters.figures.page import DPI, PAGE_STYLES, PageStyle
from vramscope.exporters.sweep.look import SweepLook
from vramscope.exporters.sweep.report import HeatMapReport, report_sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class LoadedSweep(msgspec.Struct, frozen=True):
    """A sweep, its findings, and the files left out of it."""

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
        log_dir: Folder of the sweep's logs; None for none.
        max_memory_gib: Memory of each device in GiB.
        iteration: The iteration whose peak is read; None for the highest peak of all iterations.
        on_progress: Called with the configurations read so far and their number.
    """
    sweep = read_sweep(memory_dir, log_dir, iteration=iteration, on_progress=on_progress)
    grid = make_grid(sweep, round(max_memory_gib * GIB))
    return LoadedSweep(grid, find_all(grid), sweep.skipped)


# Called with the configurations read so far, and the number found so far.
Progress = Callable[[int, int], object]


def index_sweeps(
    roots: Sequence[Path],
    max_memory_gib: float,
    *,
    iteration: int | None = None,
    on_progress: Progress = lambda done, total: None,
) -> SweepIndex:
    """Return all sweeps in some folders and below them.

    Args:
        max_memory_gib: Memory of each device in GiB.
        iteration: The iteration whose peak is read; None for the highest peak of all iterations.
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
    traced = None if pair.traces is None else pair.traces.model
    logged = None if pair.logs is None or pair.logs.name is None else pair.logs.name.model
    return IndexedSweep(
        name=name,
        grid=grid,
        findings=find_all(grid),
        skipped=sweep.skipped,
        model=traced or sweep.model or logged,
        memory_dir=None if sweep.memory_dir is None else show_path(sweep.memory_dir),
        log_dir=None if sweep.log_dir is None else show_path(sweep.log_dir),
        reason=pair.reason,
        modified_s=None if sweep.modified_ns is None else sweep.modified_ns / 1e9,
    )


def _explain_emptiness(sweep: Sweep, name: str) -> str:
    """Return why a sweep without a readable file is not listed."""
    first = sweep.skipped[0]
    return (
        f"{name}: cannot read any of {len(sweep.skipped):,} memory traces; the first is "
        f"{show_path(first.path)}: {first.reason}"
    )


class _SummedProgress:
    """Adds up the progress of sweeps; the configurations of one are known when its reading begins."""

    def __init__(self, pairs: Sequence[FolderPair], on_progress: Progress) -> None:
        self._on_progress = on_progress
        self._done = self._shown = 0
        self._expected = [_count_layouts(pair) for pair in pairs]

    def show(self, done: int, total: int) -> None:
        """Report the progress of the current sweep."""
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
    """Return the parts of the path that names a sweep: that of its traces, else of its logs."""
    if pair.traces is not None:
        path = pair.traces.path
    else:
        path = Path("sweep") if pair.logs is None else pair.logs.folder
    return path.resolve().parts[1:] or (str(path),)


def name_folders(paths: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a unique name for each path: its last part, with as many parts above it as are needed."""
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


MAX_MEMORY_GIB = 80.0


class MemoryHeatmapVisualizer:
    """Draws the peak memory of a sweep over TP and PP.

    Args:
        memory_dir: Folder of the memory traces.
        log_dir: Folder of the sweep's logs; None for traces alone.
        iteration: The iteration whose peak is drawn; None for the highest peak of all iterations.
    """

    def __init__(
        self, memory_dir: str | Path, log_dir: str | Path | None = None, *, iteration: int | None = None
    ) -> None:
        self._memory_dir = Path(memory_dir)
        self._log_dir = None if log_dir is None else Path(log_dir)
        self._iteration = iteration
        self._loaded: tuple[float, LoadedSweep] | None = None

    def create_heatmap(
        self,
        output_path: str | Path | None = None,
        *,
        figsize: tuple[float, float] | None = None,
        max_memory: float = MAX_MEMORY_GIB,
        dpi: int = DPI,
        style: PageStyle = "usenix",
    ) -> "Figure":
        """Return the heat map as a matplotlib figure, which a notebook displays.

        Args:
            output_path: Name of files to write too, without an ending: PNG, PDF, SVG, CSV and a text version
                of the figure; None to write none.
            figsize: Width and height in inches; None for a size that suits the grid.
            max_memory: Memory of a device in GiB; a layout whose theory needs as much or more does not fit.
            dpi: Dots per inch of the PNG.
            style: `usenix` for a page of two columns, `original` for the look of the original.

        Raises:
            UsageError: An argument cannot be used.
            InputFileError: A folder cannot be read, or has no sweep.
            OutputFileError: A file cannot be written.
        """
        if style not in PAGE_STYLES:
            raise UsageError(f"style {style!r}: expected one of {', '.join(PAGE_STYLES)}")
        if max_memory <= 0 or dpi <= 0 or (figsize is not None and min(figsize) <= 0):
            raise UsageError(
                f"max_memory {max_memory}, dpi {dpi}, figsize {figsize}: expected numbers above zero"
            )
        from vramscope.exporters.sweep.figure import draw_sweep
        from vramscope.exporters.sweep.page import prepare_output, write_heat_map

        look = SweepLook(style, figsize, dpi)
        base = None if output_path is None else prepare_output(Path(output_path))
        loaded = self._load(max_memory)
        if base is None:
            return draw_sweep(loaded.grid, look)
        return write_heat_map(loaded.grid, loaded.findings, base, look)[0]

    def report(self, max_memory: float = MAX_MEMORY_GIB) -> HeatMapReport:
        """Return cells, best layout and findings, as `vramscope heatmap --json` prints them.

        Args:
            max_memory: Memory of a device in GiB.

        Raises:
            InputFileError: A folder cannot be read, or has no sweep.
        """
        loaded = self._load(max_memory)
        return report_sweep(loaded.grid, loaded.findings, loaded.skipped)

    def _load(self, max_memory_gib: float) -> LoadedSweep:
        """Return the sweep; reads the files once for each device memory."""
        if self._loaded is None or self._loaded[0] != max_memory_gib:
            loaded = load_sweep(self._memory_dir, self._log_dir, max_memory_gib, iteration=self._iteration)
            self._loaded = max_memory_gib, loaded
        return self._loaded[1]
