"""The job of `vramscope demo`: a real training run on a simulated card, or a simulated server of a model.

It ends with its viewer.
"""

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ..child_processes import module_command, own_environment
from ..errors import UsageError
from ..paths import state_folder
from ..units import GIB, MIB, format_bytes
from ..viewer.hub_feed import HubFeed
from .launch import (
    SimulatedDevice,
    describe_for_job,
    describe_for_people,
    make_environment,
    read_original_environment,
)

JOB = "demo (simulated)"
SCRIPT = Path(__file__).resolve().parents[1] / "workloads" / "leaking_gpt.py"
SERVER_MODULE = "vramscope.engine.workloads.serving"
# As such a server is started, so that it is found by its command line like any other.
SERVER_COMMAND = ("vllm", "serve", "simulated-8b", "--max-num-seqs", "160", "--max-model-len", "4096")
DEFAULT_SIZE_BYTES = 3 * GIB // 2
LEAST_SIZE_BYTES = 896 * MIB
# Least seconds of a step: a quick machine must not be through with the story in ten seconds.
PACE_S = 0.5
# From the first step to the first error.
STORY_S = 90.0
# Between two evaluations of the script: every other step at that pace.
EVALUATE_EVERY_S = 1.0
# Context, and what the training itself makes the allocator reserve; measured on the simulated card.
BASE_BYTES = 826 * MIB
# What one sequence of an evaluation leaves behind; measured likewise.
KEPT_BYTES = 9 * MIB
# Demos of one user at one time.
MOST_DEMOS = 9
PATIENCE_S = 2.0
# Constant of prctl(2).
_PR_SET_PDEATHSIG = 1


class Demonstration:
    """A job in a folder of its own; hub and job run from `start` to `end`.

    Raises:
        UsageError: The card would be too small or too large, or the output cannot be written anywhere.
    """

    def __init__(self, size_bytes: int = DEFAULT_SIZE_BYTES) -> None:
        from ..sources.host import HostReader

        check_size(size_bytes, host_available_bytes=HostReader().read().available_bytes)
        self.device = SimulatedDevice(total_bytes=size_bytes)
        self._prepare()

    def _prepare(self) -> None:
        self._log, self.folder = _take_folder()
        # Not TMPDIR: a socket's path must be short.
        self.runtime_dir = Path(tempfile.mkdtemp(prefix="vramscope-demo-", dir="/tmp"))
        self._job: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> Path:
        return self.folder / "output.log"

    @property
    def flight_folder(self) -> Path:
        return self.folder / "flight"

    @property
    def announcement(self) -> str:
        """What runs and where its output is, in one sentence."""
        return f"{describe_for_people(self.device)}; the job's output goes to {self.output}"

    def start(self, *, interval_s: float, memory_interval_s: float) -> HubFeed:
        feed = HubFeed(
            self.runtime_dir,
            agent_arguments=(
                *("--interval", str(interval_s), "--memory-interval", str(memory_interval_s)),
                "--no-hooks",  # it leaks on purpose: nobody is to be woken by that
            ),
            is_private=True,
        )
        feed.start_hub()
        self._job = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=self._make_environment(),
            start_new_session=True,
            preexec_fn=make_companion(),  # noqa: PLW1509 - no thread of ours holds a lock that it takes
        )
        return feed

    @property
    def _command(self) -> list[str]:
        evaluated = str(self._count_sequences())
        return [sys.executable, str(SCRIPT), "--pace", str(PACE_S), "--evaluate", evaluated]

    def _count_sequences(self) -> int:
        """How many sequences an evaluation needs for the card to be full in time."""
        leak_bytes = (self.device.total_bytes - BASE_BYTES) / (STORY_S / EVALUATE_EVERY_S)
        return max(1, round(leak_bytes / KEPT_BYTES))

    def _make_environment(self) -> dict[str, str]:
        base = own_environment(read_original_environment()) | {
            "VRAMSCOPE_FLIGHT_DIR": str(self.flight_folder)
        }
        # The other cores draw; threads that wait for each other on busy ones are slower than one.
        base.setdefault("OMP_NUM_THREADS", "1")
        simulate = describe_for_job(self.device, job=JOB, runtime_dir=self.runtime_dir, environ=base)
        return make_environment(base, runtime_dir=self.runtime_dir, job=JOB, simulate=simulate)

    def end(self) -> int | None:
        """End the job, remove all folders but that of the output; return the job's status if it had ended."""
        status = None if self._job is None else self._job.poll()
        if self._job is not None and status is None:
            self._job.terminate()
            try:
                self._job.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._job.kill()
                self._job.wait()
        self._log.close()
        shutil.rmtree(self.runtime_dir, ignore_errors=True)
        return status


class ServingDemonstration(Demonstration):
    """A simulated server whose KV pool fills up within minutes; it needs no PyTorch.

    Raises:
        UsageError: The output cannot be written anywhere.
    """

    def __init__(self) -> None:
        self._prepare()

    @property
    def announcement(self) -> str:
        return f"a simulated server of a model: nothing of it is measured; its start-up log is {self.output}"

    @property
    def _command(self) -> list[str]:
        words = (*SERVER_COMMAND, "--port", "0", "--runtime-dir", str(self.runtime_dir))
        return module_command(SERVER_MODULE, *words)

    def _make_environment(self) -> dict[str, str]:
        return own_environment(read_original_environment())


def check_size(size_bytes: int, *, host_available_bytes: int | None) -> None:
    """Refuse a card on which the demonstration cannot run.

    Args:
        host_available_bytes: Free memory of this host; None if unknown.

    Raises:
        UsageError: It is too small, or its tensors would not fit into host memory.
    """
    size = f"--capacity {format_bytes(size_bytes)}"
    if size_bytes < LEAST_SIZE_BYTES:
        raise UsageError(
            f"{size}: expected at least {format_bytes(LEAST_SIZE_BYTES)}; the model and its context "
            "need most of it"
        )
    device = SimulatedDevice(total_bytes=size_bytes)
    needed_bytes = size_bytes - device.context_bytes
    free_bytes = max(0, (host_available_bytes or 0) - device.host_reserve_bytes)
    if host_available_bytes is not None and needed_bytes > free_bytes:
        raise UsageError(
            f"{size}: tensors may need {format_bytes(needed_bytes)} of host memory, but "
            f"{format_bytes(free_bytes)} are free: simulate a smaller card"
        )


def make_companion() -> Callable[[], None]:
    """Return a `preexec_fn` that makes a child process end with this one."""
    library = ctypes.CDLL(None)
    parent = os.getpid()

    def follow_parent() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended in this moment
            os._exit(0)

    return follow_parent


def _take_folder() -> tuple[BinaryIO, Path]:
    """Return the open output file and its folder, emptied, that no other demonstration uses.

    Raises:
        UsageError: Nothing can be written there.
    """
    for number in range(1, MOST_DEMOS + 1):
        folder = state_folder() / ("demo" if number == 1 else f"demo-{number}")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            log = (folder / "output.log").open("ab")
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.close()
                continue
            log.truncate(0)
            shutil.rmtree(folder / "flight", ignore_errors=True)
        except OSError as error:
            raise UsageError(
                f"{folder}: cannot write the output of the demo: {error.strerror or error}; set "
                "XDG_STATE_HOME to a writable folder"
            ) from error
        return log, folder
    raise UsageError(f"{MOST_DEMOS} demos are already running, in {state_folder()}: end one of them")
