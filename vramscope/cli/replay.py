"""What `vramscope replay` plays: files, imported first where they have to be, or a sweep's layouts."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vramscope.analyzers.planning.sweep import STATE_WORDS, CellState, SweepCell
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.files.base.input_file import show_name, show_path
from vramscope.engine.files.memory_trace.run import FILE_PATTERN, find_trace_pair, is_simulated_run
from vramscope.engine.files.series.format import recognize_series
from vramscope.engine.files.sweep import FolderPair, find_sweeps
from vramscope.engine.files.sweep.traces import TraceFile, find_traces
from vramscope.engine.recording import SUFFIX
from vramscope.engine.replay.feed import OpenedEntry, Playlist, PlaylistEntry
from vramscope.engine.replay.tapes import TraceTape
from vramscope.engine.settings import Settings
from vramscope.engine.units import GIB

from .frame.emit import complain
from .frame.progress import ProgressLine

if TYPE_CHECKING:
    from vramscope.engine.replay.feed import PlaylistFeed
    from vramscope.engine.replay.simulated_run import TraceComparison
    from vramscope.engine.replay.tapes import Tape
    from vramscope.engine.viewer.feed import Feed


PROGRAM = "vramscope replay"
_LONGEST_NAME = 100


class ReplayFiles:
    """Files of any known format, opened so that any time in them can be played.

    Files other than recordings and one run of memory traces are imported into a recording in a temporary
    folder, which is gone once it is open.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        capacity_bytes: int | None = None,
        interval_s: float | None = None,
        is_as_recorded: bool = False,
    ) -> None:
        self._capacity_bytes = capacity_bytes
        self._interval_s = interval_s
        self._recordings: list[Path] = []
        self._others: list[Path] = []
        is_all_traces = True
        for path in paths:
            recordings = list_recordings(path)
            is_all_traces = is_all_traces and not recordings and recognize_series(path) == "memory trace"
            self._recordings += recordings
            self._others += [] if recordings else [path]
        pair = find_trace_pair(paths) if is_all_traces else None
        self._trace = paths[0] if is_all_traces and len(paths) == 1 else None
        self._simulated: Path | None = None
        if pair is not None:
            self._trace = pair.real
            self._simulated = pair.simulated
        if is_as_recorded and self._others:
            what = "memory traces have" if is_all_traces else f"{show_path(self._others[0])} has"
            raise UsageError(f"--recorded-findings: {what} no findings; expected a recording")
        # Errors in the files are raised here, not in a thread behind the screen.
        self._opened = self._open([]) if not self._others or self._trace is not None else None

    def read_comparison(self) -> "TraceComparison":
        tapes = (self._opened or ()) if self._simulated is not None else ()
        found = tapes[0].comparison if tapes else None
        if found is None:
            raise UsageError("--compare: expected the memory traces of a real run and of its simulation")
        return found

    def open_tapes(self) -> "Sequence[Tape]":
        """Import what must be imported; return the tapes, which its caller closes."""
        if self._opened is not None:
            return self._opened
        with tempfile.TemporaryDirectory(prefix="vramscope-replay-", ignore_cleanup_errors=True) as folder:
            # The files stay open and lose their names, so nothing is left however this process ends.
            return self._open([self._import(Path(folder))])

    def _import(self, folder: Path) -> Path:
        from .verbs.import_ import Importer

        output = folder / f"{_name_together(self._others)}{SUFFIX}"
        Importer(
            self._others,
            output,
            capacity_bytes=self._capacity_bytes,
            interval_s=self._interval_s,
            program=PROGRAM,
        ).run(is_quiet=True)
        return output

    def _open(self, imported: Sequence[Path]) -> "Sequence[Tape]":
        if self._trace is not None:
            return [self._open_trace(self._trace)]
        from vramscope.engine.replay.tapes import open_tapes

        return open_tapes([*self._recordings, *imported], capacity_bytes=self._capacity_bytes)

    def _open_trace(self, path: Path) -> "TraceTape":
        from vramscope.engine.replay.tapes import TraceTape

        from .frame.progress import ProgressLine

        progress = ProgressLine(PROGRAM)
        try:
            return TraceTape(
                path,
                interval_s=0.1 if self._interval_s is None else self._interval_s,
                capacity_bytes=self._capacity_bytes,
                simulated=self._simulated,
                on_read=progress.show_share,
            )
        finally:
            progress.clear()


def list_recordings(path: Path) -> list[Path]:
    """Return the recording at a path, or those in a folder; nothing for other files."""
    if not path.is_dir():
        return [path] if recognize_series(path) == "recording" else []
    found = sorted(path.glob(f"*{SUFFIX}"))
    if found and next(path.glob(FILE_PATTERN), None) is not None:
        raise InputFileError(
            f"{show_path(path)}: has both recordings and memory traces; name the files to play"
        )
    return found


def _name_together(paths: Sequence[Path]) -> str:
    """Return one name for several files: that of their folder, if they share one."""
    folders = {path.absolute().parent for path in paths}
    name = next(iter(folders)).name if len(folders) == 1 else ""
    return name[:_LONGEST_NAME] or f"{len(paths)} files"


# States in fewer words than elsewhere, for the narrow list of configurations.
_SHORTER: dict[CellState, str] = {"ok": "ok", "running": "no result"}


class SweepReplayOptions(NamedTuple):
    speed: float = 1.0
    # Length of one tick in seconds of a trace.
    interval_s: float = 0.1
    # Capacity of every device, which traces do not record.
    capacity_bytes: int | None = None
    # Sentences that are shown with those of each trace.
    notes: tuple[str, ...] = ()


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

    Those without a trace are mentioned and skipped. `j` and `k` go to the next and the previous one.

    Args:
        at: Place of the first one; if it has no trace, the next one that has.

    Returns:
        The place of the configuration that was shown when the view was left.
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
    """Do what `replay_cells` does, and return the exit code of the view and the place."""
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
    """Return the entries of configurations; names have DP where TP and PP are not unique."""
    counted = Counter(cell.place for cell in cells)
    return [
        PlaylistEntry(
            name=_name(cell, has_dp=counted[cell.place] > 1),
            state=_SHORTER.get(cell.state, STATE_WORDS[cell.state].told),
            path=cell.path,
            absence=STATE_WORDS[cell.state].absence,
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
    """Return the name of the folder that contains all traces."""
    folders = {cell.path.absolute().parent for cell in cells if cell.path is not None}
    if len(folders) > 1:
        folders = {folder.parent for folder in folders}
    return show_name(next(iter(folders))) if len(folders) == 1 else "sweep"


def open_with(
    options: SweepReplayOptions, node: str
) -> Callable[[PlaylistEntry, Callable[[float], None]], Sequence[TraceTape]]:
    """Return a function that opens the traces of a configuration: all ranks, or one if others are broken."""
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
    """Open the configuration at a place, else the next one, else the one before."""
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
    sentence = playlist.describe_passed(passed)
    return PlaylistFeed(
        playlist,
        first,
        make_analyzers=lambda: make_analyzers().made,
        options=ReplayOptions(options.speed, word=ReplayWord(1, sentence) if sentence else None),
    )


# Capacity for judging a sweep where none was given; it does not affect the replay.
_ANY_GIB = 80.0
_MOST_NAMED = 3


class SweepFolders(NamedTuple):
    memory_dir: Path
    log_dir: Path | None


def find_sweep(paths: Sequence[Path], log_dir: Path | None) -> SweepFolders | None:
    """Return the folders of a sweep; None where the paths are something else.

    A real run next to its simulation is not a sweep, even with several configurations. Where the traces are
    deeper than one level below the named folder, the logs next to them are read too.
    """
    folder = paths[0] if len(paths) == 1 and paths[0].is_dir() else None
    if log_dir is not None and (folder is None or list_recordings(folder)):
        raise UsageError(f"--log-dir {show_path(log_dir)} needs one folder of memory traces to play")
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
    """Return the one sweep in the tree below a folder; None without one."""
    try:
        pairs = find_sweeps([folder])[0]
    except InputFileError:
        return None  # the reader of the folder raises a better error
    found = [place for pair in pairs if (place := _locate(pair)) is not None]
    if len(found) > 1:
        named = ", ".join(show_path(place.memory_dir) for place in found[:_MOST_NAMED])
        more = f" and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
        raise UsageError(
            f"{show_path(folder)}: contains {len(found):,} sweeps: {named}{more}; name one of them, or see "
            f"all with `vramscope sweep {show_path(folder)}`"
        )
    return found[0] if found else None


def _locate(pair: FolderPair) -> SweepFolders | None:
    if pair.traces is None or not _is_sweep(pair.traces.files):
        return None
    return SweepFolders(pair.traces.path, None if pair.logs is None else pair.logs.folder)


def replay_sweep(
    sweep: SweepFolders, options: SweepReplayOptions, *, settings: Settings, config: Path | None
) -> int:
    from vramscope.exporters.sweep.text import describe_skipped
    from vramscope.sweeps import load_sweep

    from .frame.progress import ProgressLine

    capacity_gib = _ANY_GIB if options.capacity_bytes is None else options.capacity_bytes / GIB
    with ProgressLine(PROGRAM, "layouts read") as progress:
        loaded = load_sweep(sweep.memory_dir, sweep.log_dir, capacity_gib, on_progress=progress.show_count)
    for line in (*loaded.grid.notes, *describe_skipped(loaded.skipped)):
        complain(line, program=PROGRAM)
    # The sentences about files that were left out of a sweep, for the notes of each trace.
    left_out = (f"left out of the sweep: {file.path.name}: {file.reason}" for file in loaded.skipped)
    options = options._replace(notes=(*options.notes, *loaded.grid.notes, *left_out))
    return play_cells(loaded.grid.cells, 0, settings=settings, config=config, options=options)[0]
