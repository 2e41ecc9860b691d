"""A real roster on a real socket, with clocks of the test's own."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vramscope.engine.model import DeviceSample, HostSample, MemoryReading, RankSample
from vramscope.engine.ranks.roster import Roll, Roster

from .probe_client import GIB


class HandClock:
    """A clock that goes when it is told to; its wall time begins at the machine's."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.wall_offset_s = time.time() - 1000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s + self.wall_offset_s


class RosterBench:
    """A roster, and the ticks that a test takes of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = HandClock()
        self.roster = Roster(folder, node="n", clock=self.clock)

    def tick(
        self,
        devices: Sequence[DeviceSample] = (),
        host: HostSample | None = None,
        *,
        after_s: float = 1.0,
    ) -> Roll:
        """Return what the tick publishes after so many seconds."""
        self.clock.now_s += after_s
        return self.roster.collect(devices, host)

    def rank(self) -> RankSample:
        """Return the only rank of the next tick."""
        (rank,) = self.tick().ranks
        return rank


@contextmanager
def open_roster(folder: Path) -> Iterator[RosterBench]:
    """Listen in a folder until the `with` block ends."""
    bench = RosterBench(folder)
    try:
        yield bench
    finally:
        bench.roster.close()


def make_device(index: int = 0, uuid: str = "", **more: object) -> DeviceSample:
    """Return a GPU of 80 GiB of which 10 GiB are used."""
    memory = MemoryReading(80 * GIB, 10 * GIB, 70 * GIB, 10 * GIB, 10 * GIB)
    fields: dict[str, object] = {"name": "Pretend GPU", "age_s": 0.0, "memory": memory} | more
    make: Callable[..., DeviceSample] = DeviceSample
    return make(uuid=uuid or f"GPU-{index}", index=index, **fields)
