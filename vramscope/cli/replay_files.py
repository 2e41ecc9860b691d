"""What `vramscope replay` is given: recordings and memory traces are played, all else is imported first."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.files.memory_trace.run import FILE_PATTERN, find_trace_pair
from vramscope.engine.files.series.format import recognize_series
from vramscope.engine.recording import SUFFIX

if TYPE_CHECKING:
    from vramscope.engine.replay.tapes import Tape, TraceTape
    from vramscope.engine.replay.trace_comparison import TraceComparison

PROGRAM = "vramscope replay"
_LONGEST_NAME = 100


class ReplayFiles:
    """Files of any known format, opened as what can be played to any moment.

    What is neither a recording nor one run of memory traces becomes a recording in a folder of its own, which
    is gone when `prepared` is left.

    Args:
        paths: Files, folders of memory traces, folders of recordings.
        capacity_bytes: Memory of devices whose file does not tell it.
        interval_s: Length of one tick, where it shall not be told from the times.
        is_as_recorded: Whether findings are asked for as they were recorded.

    Raises:
        InputFileError: A file cannot be read, or is in no known format.
        UsageError: What was asked for is not in such files.
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
            what = "memory traces hold" if is_all_traces else f"{show_path(self._others[0])} holds"
            raise UsageError(f"--recorded-findings: {what} no findings; expected a recording")
        # What is wrong with the files is told here and now, not by a thread behind the screen.
        self._opened = self._open([]) if not self._others or self._trace is not None else None

    def read_comparison(self) -> "TraceComparison":
        """Return the real run beside its simulation.

        Raises:
            UsageError: There is not one of each.
        """
        tapes = (self._opened or ()) if self._simulated is not None else ()
        found = tapes[0].comparison if tapes else None
        if found is None:
            raise UsageError("--compare: expected a real run of memory traces and one that simulates it")
        return found

    @contextmanager
    def prepared(self) -> "Iterator[Callable[[], Sequence[Tape]]]":
        """Import what has to be, and give what returns all of it, open; whoever plays it closes it.

        Raises:
            InputFileError: A file cannot be read or understood.
            OutputFileError: There is no room for the recording that it becomes.
            KeyboardInterrupt: Ctrl-C or SIGTERM.
        """
        if self._opened is not None:
            opened = self._opened
            yield lambda: opened
            return
        with tempfile.TemporaryDirectory(prefix="vramscope-replay-", ignore_cleanup_errors=True) as folder:
            tapes = self._open([self._import(Path(folder))])
            yield lambda: tapes

    def _import(self, folder: Path) -> Path:
        from .importer import Importer

        output = folder / f"{_name_together(self._others)}{SUFFIX}"
        Importer(
            self._others,
            output,
            capacity_bytes=self._capacity_bytes,
            interval_s=self._interval_s,
            told_by=PROGRAM,
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
    """Return the recordings that a path stands for: itself, or those in a folder; none where it is another.

    Raises:
        InputFileError: It cannot be read, or is a folder of recordings and memory traces.
    """
    if not path.is_dir():
        return [path] if recognize_series(path) == "recording" else []
    found = sorted(path.glob(f"*{SUFFIX}"))
    if found and next(path.glob(FILE_PATTERN), None) is not None:
        raise InputFileError(
            f"{show_path(path)}: holds recordings and memory traces; expected one of them: name the files"
        )
    return found


def _name_together(paths: Sequence[Path]) -> str:
    """Return what several files are called together: as their folder, where they have one in common."""
    folders = {path.absolute().parent for path in paths}
    name = next(iter(folders)).name if len(folders) == 1 else ""
    return name[:_LONGEST_NAME] or f"{len(paths)} files"
