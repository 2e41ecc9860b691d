"""The memory traces of one run as a tape: every recorded rank is a device."""

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from ..model import Sample
from ..recording import Told
from ..sampling.trace_player import TracePlayer
from .state import ReplayMark


class TraceTape:
    """Plays a run tick by tick, from any tick on; what is found in it is not recorded.

    Args:
        path: Folder of the run, or the file of one rank.
        interval_s: Length of one tick in seconds of the trace.
        capacity_bytes: Capacity of every device, which a trace does not record.

    Raises:
        InputFileError: There is no trace, it is malformed, or it holds no samples.
        UsageError: Interval or capacity make no sense.
    """

    clock: Literal["wall", "trace"] = "trace"

    def __init__(self, path: Path, *, interval_s: float = 0.1, capacity_bytes: int | None = None) -> None:
        self._player = TracePlayer(path, interval_s=interval_s, capacity_bytes=capacity_bytes)
        self.interval_s = interval_s
        self.window_s = math.inf  # a run is short, and what it never fitted into is told for good
        self.start_s, self.end_s = self._player.span_s

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

    def close(self) -> None:
        """Do nothing: the run was read at once."""
