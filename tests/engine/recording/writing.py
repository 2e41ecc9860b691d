"""A process that records, to be killed, starved of space or contended with."""

import resource
import signal
import sys
import time
from pathlib import Path

from vramscope.engine.errors import OutputFileError
from vramscope.engine.recording import RecordingWriter

from .samples import IDENTITY, make_sample


class StillClock:
    """A clock that stands, so that nothing is ever due."""

    def wall_s(self) -> float:
        return 0.0

    def monotonic_s(self) -> float:
        return 0.0


def main() -> None:
    """Record into a file as the first word says, and say on stdout what was appended, and when."""
    how, path, kind = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    if how == "starved":
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
    clock = StillClock() if how == "spilling" else None
    with RecordingWriter(path, IDENTITY, clock=clock, find_type=lambda _: kind) as writer:
        if how == "spilling":
            _spill(writer)
        try:
            _append(writer, pause_s=0.0 if how == "starved" else 0.02)
        except OutputFileError as error:
            print(f"! {error}", flush=True)


def _append(writer: RecordingWriter, *, pause_s: float) -> None:
    for tick in range(100_000):
        writer.append(make_sample(tick, 4))
        if not pause_s:
            writer.flush()
        print(tick, time.monotonic(), flush=True)
        time.sleep(pause_s)


def _spill(writer: RecordingWriter) -> None:
    """End in the middle of a transaction of which a part is in the file already."""
    for tick in range(10):
        writer.append(make_sample(tick))
    writer.flush()
    writer._sqlite.execute("PRAGMA cache_size = 5")
    for tick in range(10, 60):
        writer.append(make_sample(tick, 32))
    print("spilt", flush=True)
    signal.raise_signal(signal.SIGKILL)


if __name__ == "__main__":
    main()
