"""Runs scripts in forks of a process that has loaded torch: as with `python SCRIPT`, two seconds sooner.

One such process serves all tests of a pytest worker. What torch reads of its environment as it loads is that
of the first test, so a script that needs other variables or options of Python is started plainly.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from .server import Request

_started: list["Starter"] = []


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
    if not _started:
        _started.append(Starter())
        atexit.register(_end)
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        try:
            code = _started[0].run(words, folder, variables, (output, errors), timeout_s)
        except BaseException:
            _end()  # it may yet answer what nobody waits for
            raise
        for stream in (output, errors):
            stream.seek(0)
        return subprocess.CompletedProcess(list(words), code, output.read(), errors.read())


def _end() -> None:
    while _started:
        _started.pop().close()


class Starter:
    """The process that has loaded torch, and the way to ask it."""

    def __init__(self) -> None:
        self._control, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with given:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("server.py"))],
                stdin=given.fileno(),
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def run(
        self,
        words: Sequence[str],
        folder: Path,
        variables: Mapping[str, str],
        streams: tuple[IO[str], IO[str]],
        timeout_s: float,
    ) -> int:
        """Run a script to its end; return its exit code, negative where a signal ended it.

        Raises:
            subprocess.TimeoutExpired: It took too long and was killed.
        """
        request = Request(list(words), str(folder), dict(variables))
        message = json.dumps(vars(request)).encode()
        self._control.settimeout(timeout_s)
        pid = 0
        try:
            socket.send_fds(self._control, [message], [stream.fileno() for stream in streams])
            pid = int(self._control.recv(32))
            return int(self._control.recv(32))
        except TimeoutError:
            raise subprocess.TimeoutExpired(list(words), timeout_s) from None
        finally:
            if pid and sys.exc_info()[0] is not None:
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process; what still runs in a fork of it was killed before."""
        self._control.close()
        self._process.kill()
        self._process.wait()
