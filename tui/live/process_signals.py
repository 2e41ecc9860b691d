"""Signals to a process that holds device memory: to the very process that was shown, or none."""

import os
import signal
from collections.abc import Callable

import msgspec
import psutil

from ...engine.model import ProcessReading, Sample
from ...exporters.status.table import is_host_pid

# The signals on offer, mild to severe, and the effect of each.
SIGNALS: tuple[tuple[signal.Signals, str], ...] = (
    (signal.SIGINT, "interrupt: like Ctrl-C, the job may save and exit"),
    (signal.SIGTERM, "terminate: asks the job to exit"),
    (signal.SIGKILL, "kill: exits at once, nothing is saved"),
)

# Two readings of a start time differ by this much at most: both are derived from a drifting boot time.
START_TIME_TOLERANCE_S = 2.0


class SignalRefused(Exception):  # noqa: N818 - it is an answer for the user, not a failure of ours
    """The signal will not be sent; the text says why in one sentence."""


class SignalPolicy(msgspec.Struct, frozen=True):
    """Whether this viewer may send signals at all."""

    # Started with `--read-only`.
    is_read_only: bool = False
    # Name of the node whose process ids are ours; empty where no shown node has them; None for any node.
    local_node: str | None = None
    # The screen shows a recording: its process ids may belong to others by now.
    is_replay: bool = False

    def is_here(self, sample: Sample) -> bool:
        """Return whether the process ids of a sample are those of this machine, now."""
        is_live = not self.is_replay and sample.clock == "wall"
        return is_live and self.local_node in (None, sample.node)


def refuse_by_policy(process: ProcessReading, node: str, is_trace: bool, policy: SignalPolicy) -> str | None:
    """Return why a process may not be signalled from here, or None; `is_trace` is for recordings."""
    if policy.is_read_only:
        return "started with --read-only: processes cannot be signalled here"
    if is_trace or policy.is_replay:
        return f"process {process.pid} is part of a recording"
    if policy.local_node is not None and node != policy.local_node:
        reach = (
            f"processes of {policy.local_node}" if policy.local_node else "processes of a view on that node"
        )
        return f"process {process.pid} runs on {node}; signals reach only {reach}"
    if process.location == "outside":
        return _explain_outside(process)
    if process.location == "gone":
        return f"process {process.pid} has exited; the driver or a child process still holds its memory"
    return None


def _explain_outside(process: ProcessReading) -> str:
    if is_host_pid(process):
        return f"process {process.pid} runs on the host, outside this container: signal it there"
    return f"process {process.pid} runs outside this container: signal it there, where its id is valid"


class ProcessHandle:
    """A process pinned by a pidfd: once open, a reused process id can not be hit by mistake."""

    def __init__(self, process: ProcessReading) -> None:
        """Pin the process that was shown.

        Raises:
            SignalRefused: It has exited, or its id belongs to another process by now.
        """
        self.pid = process.pid
        try:
            self._descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            raise SignalRefused(f"process {process.pid} has exited") from None
        except OSError as error:
            raise SignalRefused(f"process {process.pid} cannot be reached: {error.strerror}") from None
        try:
            self._require_same_start(process)
        except SignalRefused:
            self.close()
            raise

    def _require_same_start(self, process: ProcessReading) -> None:
        """Refuse when the process behind the id started at another time than the one shown."""
        if not has_same_start(process):
            raise SignalRefused(f"process id {process.pid} now belongs to another process; nothing was sent")

    def fileno(self) -> int:
        """Return the descriptor; it becomes readable when the process exits."""
        return self._descriptor

    def send(self, number: signal.Signals) -> None:
        """Send a signal.

        Raises:
            SignalRefused: The process exited meanwhile, or it belongs to somebody else.
        """
        try:
            signal.pidfd_send_signal(self._descriptor, number)
        except ProcessLookupError:
            raise SignalRefused(f"process {self.pid} has exited; nothing was sent") from None
        except PermissionError:
            raise SignalRefused(
                f"no permission to signal process {self.pid}: it belongs to another user"
            ) from None
        except OSError as error:
            raise SignalRefused(f"{number.name} to process {self.pid} failed: {error.strerror}") from None

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def has_same_start(process: ProcessReading) -> bool:
    """Return whether a process id still belongs to the process that was shown."""
    if process.started_s is None:
        return True
    try:
        started_s: float = psutil.Process(process.pid).create_time()
    except psutil.Error:
        return False
    return abs(started_s - process.started_s) <= START_TIME_TOLERANCE_S


# How a process is pinned; tests replace it.
OpenProcess = Callable[[ProcessReading], ProcessHandle]
