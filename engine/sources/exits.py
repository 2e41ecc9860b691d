"""Which of many processes have ended: one system call for all of them, by process file descriptors."""

import os
import select
import threading
from contextlib import suppress

MOST_PROCESSES = 128
"""Each takes a file descriptor; of more processes than this it is not known."""


class ExitWatch:
    """Knows of processes of this pid namespace whether they still live; safe to use from several threads.

    It needs Linux 5.3 (pidfd_open(2)), and elsewhere knows of none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._descriptors: dict[int, int] = {}
        self._pids: dict[int, int] = {}

    def __contains__(self, pid: int) -> bool:
        return pid in self._descriptors

    def add(self, pid: int) -> None:
        """Watch a process from now on, where that is possible; look at it only afterwards.

        What is seen of the pid later is then this process, unless `take_ended` names it.
        """
        # No Linux, an older one, a sandbox, no process any more, a number that is none.
        with self._lock, suppress(AttributeError, OSError, OverflowError):
            if pid in self._descriptors or len(self._descriptors) >= MOST_PROCESSES:
                return
            descriptor = os.pidfd_open(pid)
            self._descriptors[pid], self._pids[descriptor] = descriptor, pid
            self._poll.register(descriptor, select.POLLIN)

    def take_ended(self) -> list[int]:
        """Return the processes that have ended since the last call; they are watched no longer."""
        with self._lock:
            ended = [self._pids[descriptor] for descriptor, _ in self._poll.poll(0)] if self._pids else []
        for pid in ended:
            self.remove(pid)
        return ended

    def remove(self, pid: int) -> None:
        """Watch a process no longer."""
        with self._lock:
            descriptor = self._descriptors.pop(pid, None)
            if descriptor is not None:
                del self._pids[descriptor]
                self._poll.unregister(descriptor)
                os.close(descriptor)

    def __del__(self) -> None:
        for descriptor in self._pids:
            os.close(descriptor)
