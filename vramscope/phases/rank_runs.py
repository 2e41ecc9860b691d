"""The runs of the ranks that torchrun started on this node, brought together by its local rank 0."""

import hashlib
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen

import msgspec

from vramscope.engine.files.base.output_file import replacing
from vramscope.engine.model.phase_memory import PhaseRun
from vramscope.engine.paths import locate_runtime_folder, open_runtime_folder

_NAMES = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
"""What the ranks of one start of torchrun have in common."""
_POLL_S = 0.25
_GRACE_S = 10.0
"""How long a rank may go on when another has ended early: it may wait for that one for ever."""
_PATIENCE_S = 60.0
"""How long local rank 0 waits for the others once it has ended itself."""


class RankRuns:
    """Where the ranks of this node leave their runs: a folder below the runtime folder.

    Args:
        environ: As torchrun made it.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.local_rank = int(environ["LOCAL_RANK"])
        self._count = int(environ["LOCAL_WORLD_SIZE"])
        key = hashlib.sha256("\0".join(environ.get(name, "") for name in _NAMES).encode()).hexdigest()[:12]
        self._folder = locate_runtime_folder(environ) / "phases" / key

    def begin(self) -> None:
        """Make room; called before any rank can have ended, for none does without all others."""
        open_runtime_folder(self._folder.parents[1])
        if self.local_rank == 0:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)

    def hand_in(self, run: PhaseRun) -> None:
        """Leave the run of this rank."""
        path = self._folder / f"{self.local_rank}.json"
        # Where local rank 0 waited no longer, it has removed the folder.
        with suppress(OSError), replacing(path) as stream:
            stream.write(msgspec.json.encode(run))

    def gather(self) -> tuple[PhaseRun, ...]:
        """Return what was handed in, by rank, once all have or patience ends; then nothing is left of it."""
        until_s = time.monotonic() + _PATIENCE_S
        while len(self._list()) < self._count and time.monotonic() < until_s:
            time.sleep(_POLL_S)
        runs = [msgspec.json.decode(path.read_bytes(), type=PhaseRun) for path in self._list()]
        shutil.rmtree(self._folder, ignore_errors=True)
        return tuple(sorted(runs, key=lambda run: run.rank))

    @contextmanager
    def watched(self, process: "Popen[bytes]") -> Iterator[None]:
        """End a process that trains some time after another rank has ended early."""
        is_over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(process, is_over), daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def find_left(self) -> PhaseRun | None:
        """Return the run of a rank that has ended early; None where none has."""
        for path in self._list():
            with suppress(OSError, msgspec.DecodeError):
                run = msgspec.json.decode(path.read_bytes(), type=PhaseRun)
                if run.end != "finished":
                    return run
        return None

    def _watch(self, process: "Popen[bytes]", is_over: threading.Event) -> None:
        while not is_over.wait(_POLL_S):
            if self.find_left() is not None:
                if not is_over.wait(_GRACE_S):
                    process.terminate()
                return

    def _list(self) -> list[Path]:
        return list(self._folder.glob("*.json"))


def find_rank_runs() -> RankRuns | None:
    """Return where ranks meet, in a process that torchrun started beside others on this node; else None."""
    environ = os.environ
    if "LOCAL_RANK" not in environ or int(environ.get("LOCAL_WORLD_SIZE", "1")) < 2:
        return None
    return RankRuns(environ)
