"""The memory traces of one run as a tape: every recorded rank is a device."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from ..files.memory_trace.run import TraceFiles
from ..model import Sample
from ..recording import Told
from ..sampling.trace_player import TracePlayer
from ..viewer.replay_state import ReplayMark
from .trace_comparison import compare_runs

MOST_WHOLE_TICKS = 9000
"""Of a run that is no longer all that is before a moment is fed to graphs and analyzers."""
WINDOW_TICKS = 3600
"""How many ticks are fed of a longer one, as of a recording."""


class TraceTape:
    """Plays a run tick by tick, from any tick on; what is found in it is not recorded.

    Args:
        path: Folder of the run, the file of one rank, or the files of one run.
        interval_s: Length of one tick in seconds of the trace.
        capacity_bytes: Capacity of every device, which a trace does not record.
        simulated: The run that simulates this one, to be shown beside it.
        node: Name of the node that the run plays as; None for that of its folder or file.
        notes: Sentences that are told with those of the files.
        on_read: Called while the files are read with the share that was; what it raises ends the reading.

    Raises:
        InputFileError: There is no trace, it is malformed, or it holds no samples.
        UsageError: Interval or capacity make no sense.
    """

    clock: Literal["wall", "trace"] = "trace"

    def __init__(
        self,
        path: Path | TraceFiles,
        *,
        interval_s: float = 0.1,
        capacity_bytes: int | None = None,
        simulated: Path | None = None,
        node: str | None = None,
        notes: Sequence[str] = (),
        on_read: Callable[[float], None] | None = None,
    ) -> None:
        self._player = TracePlayer(
            path, interval_s=interval_s, capacity_bytes=capacity_bytes, node=node, on_read=on_read
        )
        for note in notes:
            self._player.add_note(note)
        self.node = self._player.node
        self.interval_s = interval_s
        self.start_s, self.end_s = self._player.span_s
        # A run is short, and what it never fitted into is told for good; a long one cannot be fed whole.
        is_long = self.end_s - self.start_s > MOST_WHOLE_TICKS * interval_s
        self.window_s = WINDOW_TICKS * interval_s if is_long else math.inf
        self.comparison = None if simulated is None else compare_runs(self._player, simulated)
        """The simulated run beside this one."""
        if self.comparison is not None:
            self._player.add_note(f"simulated figures are of {self.comparison.simulated_name}")

    def samples(self, start_s: float, end_s: float = math.inf) -> Iterator[Sample]:
        """Yield the samples of a span, ends included, in order of time; the last of all has `is_last`."""
        player = copy.copy(self._player)  # a cursor of its own on the same run
        player.seek(start_s)
        for sample in player.play_at_once():
            if sample.time_s > end_s:
                return
            if sample.time_s >= start_s:
                yield sample

    def marks(self) -> list[ReplayMark]:
        """Return none: a trace tells no findings."""
        return []

    def told(self) -> list[Told]:
        """Return nothing: a trace tells no findings."""
        return []

    def overview(self) -> None:
        """Return None: a run is short enough for the graphs themselves."""

    def close(self) -> None:
        """Do nothing: no file is held open by its name."""
