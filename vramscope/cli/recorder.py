"""Records this node, from an agent or the driver, into files."""

import math
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope import __version__
from vramscope.engine.errors import VramscopeError
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.jobs.background import BEGUN
from vramscope.engine.model import Sample
from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.recording import RecordingIdentity
from vramscope.engine.recording.follower import (
    Heard,
    JobEnd,
    JobView,
    NodeFollower,
    announce,
    refuse_second,
    withdraw,
)
from vramscope.engine.recording.series import RecordingSeries
from vramscope.engine.sampling.live import node_name
from vramscope.engine.units import format_age, format_bytes
from vramscope.engine.viewer.this_node import DRIVER_SILENT, EXIT_DRIVER_SILENT
from vramscope.engine.wire.endpoints import is_hub_alive

from .frame.emit import complain, write_over
from .frame.errors import Interruption

if TYPE_CHECKING:
    from vramscope.engine.settings import Settings

PROGRAM = "vramscope record"
# Longest time until Ctrl-C is noticed, and until a sample is committed.
TURN_S = 0.25
# How long a recording waits for its first sample, even if `--duration` is over sooner.
FIRST_WITHIN_S = 6.0
PROGRESS_S = 1.0
# Fewer samples of devices do not show how many bytes each takes.
RATIO_FROM_SAMPLES = 10_000
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Recorder:
    """Writes the samples and findings of this node to a series of files.

    Args:
        rotate_bytes: Size at which the next file begins; None for never.
        keep_s: Age at which a file of the series is deleted; None for never.
        has_past: Begin with what the agent remembers from before.
        job_end: Detects the end of the recorded job; None to record the whole node.
        is_for_viewers: Announce the recording to the viewers of this node.

    Raises:
        OutputFileError: The file cannot be written, or the viewers have a recording already.
        InputFileError: The file exists and is not a recording.
    """

    def __init__(
        self,
        path: Path,
        settings: "Settings",
        *,
        rotate_bytes: int | None = None,
        keep_s: float | None = None,
        has_past: bool = False,
        job_end: JobEnd | None = None,
        is_for_viewers: bool = False,
    ) -> None:
        self._job_end = job_end
        self._job_view = None if job_end is None or job_end.job is None else JobView(job_end.job)
        self._announced_in = locate_runtime_folder() if is_for_viewers else None
        self._since_s = time.time()
        if self._announced_in is not None:
            refuse_second(self._announced_in)
        # The file first, so that its errors come before anything is sampled.
        identity = _identify(settings)
        self._series = RecordingSeries(path, identity, rotate_bytes=rotate_bytes, keep_s=keep_s)
        past_s = -math.inf if has_past else math.inf
        self._follower = NodeFollower(
            interval_s=settings.interval_s,
            memory_interval_s=settings.memory_interval_s,
            serving=settings.serving,
            # A continued recording lacks what came since its last sample.
            since_s=past_s if self._series.continued_s is None else self._series.continued_s,
        )
        self._node = identity.node
        self._printed: list[int] = [0, 0]
        self._announced_move: str | None = None
        self._is_terminal = sys.stderr.isatty()
        self._started_s = time.monotonic()
        self._progress_due_s = self._started_s + PROGRESS_S

    @property
    def has_held_calls(self) -> bool:
        """Whether a driver call has not returned; the process must then end with `os._exit`."""
        return self._follower.has_held_calls

    def run(self, duration_s: float | None) -> int:
        """Record until the time is up, the job ends or a signal comes; return the exit code.

        Args:
            duration_s: None to record until a signal.

        Raises:
            OutputFileError: The disk is full; the file is readable up to then.
        """
        end = "press Ctrl-C to end" if self._job_end is None else f"it ends with process {self._job_end.pid}"
        complain(f"{BEGUN}{show_path(self._series.path)}; {end}", program=PROGRAM)
        reason = "it failed"
        try:
            with Interruption(_ENDING) as interruption:
                if self._announced_in is not None:  # from here on a viewer may end this process
                    announce(self._announced_in, self._series.path, self._since_s)
                reason = self._follow(interruption, duration_s)
        finally:
            self._follower.close()
            self._end(reason)
        # Return 0 where a device or a training process was seen, else the code of what is missing.
        if self._follower.has_devices:
            return 0
        failures: list[VramscopeError] = list(self._follower.failures)
        for sentence in [str(it) for it in failures] or [DRIVER_SILENT]:
            complain(sentence, program=PROGRAM)
        return failures[0].exit_code if failures else EXIT_DRIVER_SILENT

    def _follow(self, interruption: Interruption, duration_s: float | None) -> str:
        while not interruption.is_asked:
            passed_s = time.monotonic() - self._started_s
            is_up = duration_s is not None and passed_s >= duration_s
            if is_up and (self._series.samples or passed_s >= FIRST_WITHIN_S):
                return "the time is up"
            if self._job_end is not None and self._job_end.is_over:
                return "the job ended"
            left_s = TURN_S if duration_s is None or is_up else duration_s - passed_s
            self._take(self._follower.hear(min(TURN_S, left_s)))
            self._print_changes()
            self._series.flush()
            self._show_progress(passed_s)
        return "a signal ended it"

    def _take(self, received: list[Heard]) -> None:
        for full in received:
            heard = full if self._job_view is None else self._job_view.narrow(full)
            if isinstance(heard, Sample):
                self._node = heard.node
                self._series.append(heard)
                if self._job_end is not None:
                    self._job_end.observe(heard)
            else:
                self._series.tell(self._node, heard.findings, heard.assessments)

    def _end(self, reason: str) -> None:
        """Close the file and print what is in it, whatever happened before."""
        try:
            self._series.close(reason)
        finally:
            if self._announced_in is not None:
                withdraw(self._announced_in)
            self._clear_progress()
            self._print_changes(has_file=False)
            complain(self._summarize(), program=PROGRAM)

    def _summarize(self) -> str:
        series = self._series
        files = "" if series.files == 1 else f" and {series.files - 1:,} before it"
        # In a young file the tables take more than the samples.
        is_meaningful = series.device_samples >= RATIO_FROM_SAMPLES and series.written_bytes > 0
        each = f", {series.written_bytes / series.device_samples:.1f} bytes each" if is_meaningful else ""
        counted = {
            "samples from the memory of the agent": self._follower.remembered,
            "samples never arrived": self._follower.missed,
            "samples left out, because a recording cannot store them": series.left_out,
        }
        rest = "".join(f"; {words}: {count:,}" for words, count in counted.items() if count)
        return (
            f"{series.samples:,} samples of the node, {series.device_samples:,} of its devices{each}; "
            f"{format_bytes(series.size_bytes)} in {show_path(series.path)}{files}{rest}"
        )

    def _print_changes(self, *, has_file: bool = True) -> None:
        """Print what changed about the source and the files; note changes of the source in the file too."""
        sources = self._follower.sentences
        files = self._series.notes
        new_sources = sources[self._printed[0] :]
        new_files = files[self._printed[1] :]
        self._printed = [len(sources), len(files)]
        for sentence in (*new_sources, *new_files):
            self._clear_progress()
            complain(sentence, program=PROGRAM)
        moved = self._series.moved
        if self._announced_in is not None and has_file and moved != self._announced_move:
            self._announced_move = moved
            announce(self._announced_in, self._series.path, self._since_s, moved)
        for sentence in new_sources if has_file else ():
            self._series.add_event("source_changed", sentence)

    def _show_progress(self, passed_s: float) -> None:
        if not self._is_terminal or time.monotonic() < self._progress_due_s:
            return
        self._progress_due_s = time.monotonic() + PROGRESS_S
        line = (
            f"{PROGRAM}: {format_age(passed_s)}, {self._series.samples:,} samples, "
            f"{format_bytes(self._series.size_bytes)}"
        )
        columns = shutil.get_terminal_size().columns
        write_over(line[: max(1, columns - 1)])

    def _clear_progress(self) -> None:
        if self._is_terminal:
            write_over("")


def _identify(settings: "Settings") -> RecordingIdentity:
    is_own = not is_hub_alive(locate_runtime_folder())
    return RecordingIdentity(
        node_name(),
        time.time(),
        __version__,
        interval_s=settings.interval_s if is_own else None,
        memory_interval_s=settings.memory_interval_s if is_own else None,
        series=os.urandom(8).hex(),
    )
