"""Replaying the configurations of a sweep, one after the other."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vramscope.analyzers.planning.sweep import CellState, SweepCell
from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.input_file import show_name
from vramscope.engine.replay.feed import OpenedEntry, Playlist, PlaylistEntry
from vramscope.engine.replay.tapes import TraceTape
from vramscope.engine.settings import Settings

from .frame.progress import ProgressLine

if TYPE_CHECKING:
    from vramscope.engine.replay.feed import PlaylistFeed
    from vramscope.engine.viewer.feed import Feed

PROGRAM = "vramscope replay"
_STATE_WORDS: dict[CellState, str] = {
    "ok": "ok",
    "oom": "out of memory",
    "failed": "failed",
    "not_run": "not run",
    "invalid": "not possible",
    "running": "no result",
}
_ABSENCES: dict[CellState, str] = {
    "ok": "ran",
    "oom": "ran out of memory",
    "failed": "failed",
    "not_run": "did not run",
    "invalid": "cannot run",
    "running": "began and told no result",
}
"""What became of a configuration without a trace, of one or of several."""


class SweepReplayOptions(NamedTuple):
    """How the configurations of a sweep are played."""

    speed: float = 1.0
    interval_s: float = 0.1
    """Length of one tick in seconds of a trace."""
    capacity_bytes: int | None = None
    """Of every device, which traces do not record."""
    notes: tuple[str, ...] = ()
    """Sentences that are told with those of each trace."""


DEFAULT_OPTIONS = SweepReplayOptions()


def replay_cells(
    cells: Sequence[SweepCell],
    at: int,
    *,
    settings: Settings,
    config: Path | None,
    options: SweepReplayOptions = DEFAULT_OPTIONS,
) -> int:
    """Replay configurations, beginning with one of them, until the view is left.

    Those that have no trace are told of and passed. `j` and `k` go from one to another.

    Args:
        cells: The configurations, in the order in which they are played.
        at: Place of the one to begin with; where it has no trace, the next one that has.
        settings: Settings of this run.
        config: Settings file that was named on the command line, into which settings are then saved.
        options: How they are played.

    Returns:
        The place of the configuration that was shown when the view was left.

    Raises:
        InputFileError: None of them has a trace that can be read.
        UsageError: Nothing can be drawn here.
        SystemExit: A signal ended the view.
    """
    code, index = play_cells(cells, at, settings=settings, config=config, options=options)
    if code:
        raise SystemExit(code)
    return index


def play_cells(
    cells: Sequence[SweepCell],
    at: int,
    *,
    settings: Settings,
    config: Path | None,
    options: SweepReplayOptions,
) -> tuple[int, int]:
    """Do what `replay_cells` does, and return the exit code of the view before the place.

    Raises:
        InputFileError: None of them has a trace that can be read.
        UsageError: Nothing can be drawn here.
    """
    from vramscope.engine.sampling.live import node_name

    from .live import open_view

    playlist = Playlist(list_entries(cells), open_with(options, name_sweep(cells)))
    first = open_first(playlist, at)
    feed = _make_feed(playlist, first, at, options)

    def start_feed() -> "Feed":
        return feed

    code = open_view(start_feed, settings, config=config, local_node=node_name(), is_replay=True)
    return code, feed.index


def list_entries(cells: Sequence[SweepCell]) -> list[PlaylistEntry]:
    """Return what is played of configurations and told of them; DP is named where it tells them apart."""
    counted = Counter(cell.place for cell in cells)
    return [
        PlaylistEntry(
            name=_name(cell, has_dp=counted[cell.place] > 1),
            state=_STATE_WORDS[cell.state],
            path=cell.path,
            absence=_ABSENCES[cell.state],
            peak_bytes=cell.actual_bytes,
            theoretical_bytes=cell.theory_bytes,
            static_bytes=cell.static_bytes,
        )
        for cell in cells
    ]


def _name(cell: SweepCell, *, has_dp: bool) -> str:
    name = f"TP {cell.tp} PP {cell.pp}"
    name = f"{name} DP {cell.dp}" if has_dp and cell.dp is not None else name
    return name if cell.kind_word is None else f"{name} {cell.kind_word}"


def name_sweep(cells: Iterable[SweepCell]) -> str:
    """Return the name of the folder that all traces lie in."""
    folders = {cell.path.absolute().parent for cell in cells if cell.path is not None}
    if len(folders) > 1:
        folders = {folder.parent for folder in folders}
    return show_name(next(iter(folders))) if len(folders) == 1 else "sweep"


def open_with(
    options: SweepReplayOptions, node: str
) -> Callable[[PlaylistEntry, Callable[[float], None]], Sequence[TraceTape]]:
    """Return what opens the traces of a configuration: of all its ranks, or of one where others are broken.

    Args:
        options: How they are played.
        node: Name of the node that all of them play as.
    """
    from vramscope.engine.files.memory_trace.run import TraceFiles, find_run_beside

    def open_files(
        files: TraceFiles, name: str, notes: tuple[str, ...], on_read: Callable[[float], None]
    ) -> list[TraceTape]:
        tape = TraceTape(
            files,
            interval_s=options.interval_s,
            capacity_bytes=options.capacity_bytes,
            node=node,
            notes=(f"{name} of the sweep", *notes, *options.notes),
            on_read=on_read,
        )
        return [tape]

    def open_entry(entry: PlaylistEntry, on_read: Callable[[float], None]) -> list[TraceTape]:
        if entry.path is None:
            raise InputFileError(f"{entry.name} has no trace")
        files = find_run_beside(entry.path)
        try:
            return open_files(files, entry.name, (), on_read)
        except InputFileError as error:
            if len(files.paths) == 1:
                raise
            alone = TraceFiles(files.path, (entry.path,))
            return open_files(alone, entry.name, (f"other ranks are left out: {error}",), on_read)

    return open_entry


def open_first(playlist: Playlist, at: int) -> OpenedEntry:
    """Open the configuration to begin with: that at a place, else the next one, else the one before.

    Raises:
        InputFileError: None of them has a trace that can be read.
    """
    progress = ProgressLine(PROGRAM)
    try:
        found = playlist.open(at, 1, progress.show_share) or playlist.open(at, -1, progress.show_share)
    finally:
        progress.clear()
    if found is None:
        why = playlist.describe_passed(range(len(playlist)))
        raise InputFileError(f"no configuration of the sweep has a trace that can be played. {why}".rstrip())
    return found


def _make_feed(
    playlist: Playlist, first: OpenedEntry, at: int, options: SweepReplayOptions
) -> "PlaylistFeed":
    from vramscope.engine.plugins import make_analyzers
    from vramscope.engine.replay.feed import PlaylistFeed
    from vramscope.engine.replay.player import ReplayOptions
    from vramscope.engine.viewer.snapshot import ReplayWord

    passed = range(at, first.place) if first.place > at else range(first.place + 1, at + 1)
    told = playlist.describe_passed(passed)
    return PlaylistFeed(
        playlist,
        first,
        make_analyzers=lambda: make_analyzers().made,
        options=ReplayOptions(options.speed, word=ReplayWord(1, told) if told else None),
    )
