"""Runs scripts in forks of a process that has loaded torch: as with `python SCRIPT`, two seconds sooner.

One such process serves all tests of a pytest worker. What torch reads of its environment as it loads is that
of the first test, so a script that needs other variables or options of Python is started plainly.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from .server import Request


class WarmProcess:
    """A script that runs in a fork; what it is asked is named as in `subprocess.Popen`.

    Args:
        words: The script and its arguments.
        folder: Where it runs; scripts beside it can be imported.
        variables: All its environment variables.
    """

    def __init__(self, words: Sequence[str], folder: Path, variables: Mapping[str, str]) -> None:
        self.args = list(words)
        self.returncode: int | None = None
        request = Request(self.args, str(folder), dict(variables))
        self._reply, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        ours_err, theirs_err = os.pipe()
        self.stdin: IO[str] = os.fdopen(ours_in, "w", encoding="utf-8")
        self.stdout: IO[str] = os.fdopen(ours_out, encoding="utf-8")
        self.stderr: IO[str] = os.fdopen(ours_err, encoding="utf-8")
        with given:
            _find_server().send(request, [given.fileno(), theirs_in, theirs_out, theirs_err])
        for descriptor in (theirs_in, theirs_out, theirs_err):
            os.close(descriptor)
        self.pid = int(self._reply.recv(32))

    def poll(self) -> int | None:
        """Return the exit code, negative where a signal ended it; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code.

        Raises:
            subprocess.TimeoutExpired: It still runs.
        """
        if self.returncode is None:
            self._reply.settimeout(timeout)
            try:
                self.returncode = int(self._reply.recv(32))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            self._reply.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Close its input, wait for its end and return what it printed and complained of.

        Raises:
            subprocess.TimeoutExpired: It still runs.
        """
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        found = ["", ""]

        def read(place: int, stream: IO[str]) -> None:
            with stream:
                found[place] = stream.read()

        readers = [
            threading.Thread(target=read, args=it, daemon=True)
            for it in enumerate((self.stdout, self.stderr))
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return found[0], found[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it where it still runs, and close what belongs to it."""
        self.send_signal(signal.SIGKILL)
        self.wait()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self.stderr.close()


def run_warm(
    words: Sequence[str], folder: Path, variables: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a script to its end and return how it ended and what it wrote.

    Args:
        words: The script and its arguments.
        folder: Where it runs; scripts beside it can be imported.
        variables: All its environment variables.
        timeout_s: After this long it is killed.

    Raises:
        subprocess.TimeoutExpired: It was.
    """
    process = WarmProcess(words, folder, variables)
    try:
        output, errors = process.communicate(timeout_s)
    except BaseException:
        process.kill()
        raise
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


_started: list["_Server"] = []


def _find_server() -> "_Server":
    """Return the server of this worker, which is started once."""
    if not _started:
        _started.append(_Server())
        atexit.register(_started[0].close)
    return _started[0]


class _Server:
    """The process that has loaded torch."""

    def __init__(self) -> None:
        self._control, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with given:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("server.py"))],
                stdin=given.fileno(),
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def send(self, request: Request, descriptors: Sequence[int]) -> None:
        socket.send_fds(self._control, [json.dumps(vars(request)).encode()], list(descriptors))

    def close(self) -> None:
        """End the process; who started a script ends that."""
        self._control.close()
        self._process.kill()
        self._process.wait()
