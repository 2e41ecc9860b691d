"""Runs that were measured on real devices, where their traces are at hand; all of them healthy."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vramscope.engine.model import Sample
from vramscope.engine.sampling.trace_player import TracePlayer

from .job import GIB
from .shape import Shape
from .truth import Truth

TRACES = Path(__file__).resolve().parents[3] / "shared" / "data" / "sweep_traces"
"""Measured traces next to the checkout; they are not part of it."""
CAPACITY_BYTES = 80 * GIB
HEALTHY = Truth()
INTERVALS_S = (0.01, 0.1, 1.0)


@dataclass(frozen=True)
class MeasuredRun:
    """One recorded run of several ranks."""

    path: Path
    interval_s: float
    family: str = "measured"
    truth: Truth = HEALTHY
    epoch_s: float = 0.0

    @property
    def name(self) -> str:
        """Folder of the run, and the tick it is read at."""
        return f"measured/{self.path.name}@{self.interval_s:g}s"

    @property
    def shape(self) -> Shape:
        """As a series with steps."""
        return Shape("series", self.interval_s)

    @property
    def duration_s(self) -> float:
        """Seconds of the recording."""
        run = self._play().run
        return run.end_s - run.start_s

    def samples(self) -> Iterator[Sample]:
        """Yield the samples of its replay."""
        return self._play().play_at_once()

    def _play(self) -> TracePlayer:
        return TracePlayer(self.path, interval_s=self.interval_s, capacity_bytes=CAPACITY_BYTES)


def find_measured_runs(folder: Path = TRACES) -> list[MeasuredRun]:
    """Return the measured runs; none where the folder is absent."""
    if not folder.is_dir():
        return []
    paths = sorted(path for path in folder.iterdir() if path.is_dir())
    return [MeasuredRun(path, interval_s) for path in paths for interval_s in INTERVALS_S]
