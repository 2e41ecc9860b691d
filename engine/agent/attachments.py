"""The hub's end of attaching for a viewer: a process for each, nothing that waits."""

import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..child_processes import command_of, own_environment
from ..clock import Clock
from ..ranks.demands import Asker
from ..text import make_printable

# At a time: each stops a process for a moment, and loads the probe there.
MOST_AT_ONCE = 2
MOST_WAITING = 64
# Longer than the verb takes until it gives up by itself.
ENDS_WITHIN_S = 60.0
MAX_OUTCOME_CHARACTERS = 300
# Two readings of a start time differ by this much at most: both are derived from a drifting boot time.
START_TIME_TOLERANCE_S = 2.0
_OWN_NAME = "vramscope: "

Start = Callable[[int, Path], "subprocess.Popen[bytes]"]


def start_attaching(pid: int, runtime_dir: Path) -> "subprocess.Popen[bytes]":
    """Start `vramscope attach`, which refuses what it must not do, also by the settings of this user."""
    return subprocess.Popen(
        command_of("attach", str(pid), "--runtime-dir", str(runtime_dir)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=own_environment(),
        start_new_session=True,
    )


class _Wish(NamedTuple):
    pid: int
    asker: Asker


class _Running(NamedTuple):
    wish: _Wish
    process: "subprocess.Popen[bytes]"
    ends_s: float


class Answered(NamedTuple):
    asker: Asker
    outcome: str
    # Why it was not done; None if it was.
    refusal: str | None = None


class AttachmentDesk:
    """Attaches to processes of this node, a few at a time, in the order of the wishes."""

    def __init__(self, runtime_dir: Path, clock: Clock, start: Start = start_attaching) -> None:
        self._runtime_dir = runtime_dir
        self._clock = clock
        self._start = start
        self._waiting: deque[_Wish] = deque()
        self._running: list[_Running] = []

    def begin(self, pid: int | None, started_s: float | None, asker: Asker) -> str | None:
        """Accept a wish, whose answer comes with `take_answers`; return why not, in one sentence.

        Args:
            started_s: When the process started that is meant; None for whichever has the id.
        """
        if pid is None or pid <= 0:
            return "attaching needs the id of a process"
        if len(self._waiting) >= MOST_WAITING:
            return "the agent has too many processes to attach to already; try again"
        if started_s is not None and not _is_same(pid, started_s):
            return f"process {pid} has exited, or its id belongs to another process by now"
        self._waiting.append(_Wish(pid, asker))
        self._start_next()
        return None

    def take_answers(self) -> Iterator[Answered]:
        """Yield what came of wishes since the last call, and start those that wait."""
        if not self._running:
            return
        running, self._running = self._running, []
        for it in running:
            if it.process.poll() is not None:
                yield _read_answer(it)
            elif self._clock.monotonic_s() > it.ends_s:
                it.process.kill()
                it.process.communicate()
                yield Answered(it.wish.asker, "", f"attaching took more than {ENDS_WITHIN_S:g} s")
            else:
                self._running.append(it)
        self._start_next()

    def stop(self) -> None:
        """End what runs: the kernel releases a process that is stopped at this moment."""
        for it in self._running:
            it.process.kill()
            it.process.communicate()
        self._running.clear()
        self._waiting.clear()

    def _start_next(self) -> None:
        while self._waiting and len(self._running) < MOST_AT_ONCE:
            wish = self._waiting.popleft()
            process = self._start(wish.pid, self._runtime_dir)
            self._running.append(_Running(wish, process, self._clock.monotonic_s() + ENDS_WITHIN_S))


def _read_answer(it: _Running) -> Answered:
    said, complaints = it.process.communicate()
    if it.process.returncode == 0:
        return Answered(it.wish.asker, _read_last_line(said))
    reason = _read_last_line(complaints).removeprefix(_OWN_NAME)
    return Answered(it.wish.asker, "", reason or f"attaching ended with exit code {it.process.returncode}")


def _read_last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    return make_printable(lines[-1])[:MAX_OUTCOME_CHARACTERS] if lines else ""


def _is_same(pid: int, started_s: float) -> bool:
    import psutil

    try:
        found_s: float = psutil.Process(pid).create_time()
    except psutil.Error:
        return False
    return abs(found_s - started_s) <= START_TIME_TOLERANCE_S
