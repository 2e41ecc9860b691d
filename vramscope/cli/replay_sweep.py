"""What `vramscope replay` does with a folder of a sweep: finds out that it is one, and plays it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.files.memory_trace.run import is_simulated_run
from vramscope.engine.files.sweep import FolderPair, find_sweeps
from vramscope.engine.files.sweep.traces import TraceFile, find_traces
from vramscope.engine.settings import Settings
from vramscope.engine.units import GIB

from .frame.diagnostics import complain
from .replay_files import PROGRAM, list_recordings
from .sweep_replay import SweepReplayOptions, play_cells

if TYPE_CHECKING:
    from vramscope.sweeps.loading import LoadedSweep

_ANY_GIB = 80.0
"""Capacity that a sweep is judged by where none was given; of the replay it decides nothing."""
_MOST_NAMED = 3


class SweepFolders(NamedTuple):
    """Where a sweep is."""

    memory_dir: Path
    log_dir: Path | None


def find_sweep(paths: Sequence[Path], log_dir: Path | None) -> SweepFolders | None:
    """Return the folders of traces of several configurations; None where something else was named.

    A real run beside the simulation of it is none, be it of one configuration or of several. Where traces lie
    deeper than in the folders right below the one that was named, the logs beside them are taken as well.

    Args:
        paths: What was named.
        log_dir: Folder of the logs of a sweep, with which any folder of traces is one.

    Raises:
        UsageError: There are logs of a sweep, and not one folder of traces; or several sweeps.
        InputFileError: The folder cannot be read.
    """
    folder = paths[0] if len(paths) == 1 and paths[0].is_dir() else None
    if log_dir is not None and (folder is None or list_recordings(folder)):
        raise UsageError(f"--log-dir {show_path(log_dir)}: expected one folder of memory traces beside it")
    if folder is None or list_recordings(folder):
        return None
    if log_dir is not None:
        return SweepFolders(folder, log_dir)
    files = find_traces(folder)[0]
    if not files:
        return _find_below(folder)
    return SweepFolders(folder, None) if _is_sweep(files) else None


def _is_sweep(files: Sequence[TraceFile]) -> bool:
    sides = {is_simulated_run(file.path.parent, file.name) for file in files}
    return len({file.layout for file in files}) > 1 and len(sides) == 1


def _find_below(folder: Path) -> SweepFolders | None:
    """Return the one sweep in the tree below a folder, None where there is none."""
    try:
        pairs = find_sweeps([folder])[0]
    except InputFileError:
        return None  # what else the folder may be, or that it is nothing, is said by who reads it
    found = [place for pair in pairs if (place := _locate(pair)) is not None]
    if len(found) > 1:
        named = ", ".join(show_path(place.memory_dir) for place in found[:_MOST_NAMED])
        more = f" and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
        raise UsageError(
            f"{show_path(folder)}: {len(found):,} sweeps in it: {named}{more}; name one of them, or see all "
            f"with vramscope sweep {show_path(folder)}"
        )
    return found[0] if found else None


def _locate(pair: FolderPair) -> SweepFolders | None:
    if pair.traces is None or not _is_sweep(pair.traces.files):
        return None
    return SweepFolders(pair.traces.path, None if pair.logs is None else pair.logs.folder)


def replay_sweep(
    sweep: SweepFolders, options: SweepReplayOptions, *, settings: Settings, config: Path | None
) -> int:
    """Play the configurations of a sweep until the view is quit; return the exit code.

    Raises:
        InputFileError: A folder cannot be read, or no configuration has a trace that can be.
        UsageError: Nothing can be drawn here.
    """
    from vramscope.exporters.sweep.text import describe_skipped
    from vramscope.sweeps.loading import load_sweep

    from .frame.progress import ProgressLine

    capacity_gib = _ANY_GIB if options.capacity_bytes is None else options.capacity_bytes / GIB
    with ProgressLine(PROGRAM, "layouts read") as progress:
        loaded = load_sweep(sweep.memory_dir, sweep.log_dir, capacity_gib, on_progress=progress.show_count)
    for line in (*loaded.grid.notes, *describe_skipped(loaded.skipped)):
        complain(line, program=PROGRAM)
    options = options._replace(notes=(*options.notes, *_note(loaded)))
    return play_cells(loaded.grid.cells, 0, settings=settings, config=config, options=options)[0]


def _note(loaded: "LoadedSweep") -> tuple[str, ...]:
    """Return the sentences about files that were left out of a sweep, as the notes of a trace have them."""
    left_out = (f"left out of the sweep: {file.path.name}: {file.reason}" for file in loaded.skipped)
    return (*loaded.grid.notes, *left_out)
