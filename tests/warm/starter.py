"""Runs programs in forks of a process that has loaded what they need: as with `python …`, but sooner.

There is one such process for scripts that use torch and one for `-m vramscope`; all workers of pytest share
them. What a program reads of its environment as it is loaded is that of the first test, so a program that
needs other variables or options of Python is started plainly.
"""

import atexit
import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests import REPOSITORY
from tests.pretend_nvml.driver import default_folder

from .server import Request, write_client

PATIENCE_S = 60.0
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "GLIBC_", "MALLOC_")
"""Beginnings of variables that Python or the loader of libraries read once."""
AT_START = dict(os.environ)
OURS_AT_START = {
    name: text
    for name, text in AT_START.items()
    if name.startswith(READ_AT_START) and name not in {"LD_LIBRARY_PATH", "PYTHONPATH"}
}


class WarmProcess:
    """A program that runs in a fork; what it is asked is named as in `subprocess.Popen`.

    Args:
        words: The script and its arguments, or `-m vramscope` and its arguments.
        folder: Where it runs; modules there can be imported.
        variables: All its environment variables.
        stdin: `subprocess.PIPE` or `subprocess.DEVNULL`.
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        variables: Mapping[str, str],
        *,
        stdin: int = subprocess.PIPE,
    ) -> None:
        self.args = list(words)
        self.returncode: int | None = None
        request = Request(self.args, str(folder), dict(variables))
        self._reply, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs_in, ours_in = os.pipe()
        if stdin == subprocess.DEVNULL:  # not the pipe: some verbs end when that closes
            os.close(theirs_in)
            theirs_in = os.open(os.devnull, os.O_RDONLY)
        ours_out, theirs_out = os.pipe()
        ours_err, theirs_err = os.pipe()
        self.stdin: IO[str] = os.fdopen(ours_in, "w", encoding="utf-8")
        self.stdout: IO[str] = os.fdopen(ours_out, encoding="utf-8")
        self.stderr: IO[str] = os.fdopen(ours_err, encoding="utf-8")
        with given:
            server = _find_server(*_choose_server(words, variables))
            message = json.dumps(vars(request)).encode()
            socket.send_fds(server, [message], [given.fileno(), theirs_in, theirs_out, theirs_err])
        for descriptor in (theirs_in, theirs_out, theirs_err):
            os.close(descriptor)
        self.pid = int(self._reply.recv(32))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_streams()
        self.wait()

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
            if not it[1].closed
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return found[0], found[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """End it where it still runs, and close what belongs to it."""
        self.kill()
        self.wait()
        self._close_streams()

    def _close_streams(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self.stderr.close()


def run_warm(
    words: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    timeout_s: float,
    *,
    stdin: int = subprocess.PIPE,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return how it ended and what it wrote.

    Args:
        words: The script and its arguments, or `-m vramscope` and its arguments.
        folder: Where it runs; modules there can be imported.
        variables: All its environment variables.
        timeout_s: After this long it is killed.
        stdin: `subprocess.PIPE`, which is closed at once, or `subprocess.DEVNULL`.

    Raises:
        subprocess.TimeoutExpired: It was.
    """
    process = WarmProcess(words, folder, variables, stdin=stdin)
    try:
        output, errors = process.communicate(timeout_s)
    except BaseException:
        process.close()
        raise
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def can_run_warm(variables: Mapping[str, str]) -> bool:
    """Say whether `-m vramscope` finds in these variables what it would in a process of its own."""
    read = {name: text for name, text in variables.items() if name.startswith(READ_AT_START)}
    library_path = read.pop("LD_LIBRARY_PATH", None)
    has_usual_driver = library_path is None or Path(library_path).parent == default_folder()
    return has_usual_driver and read == OURS_AT_START | {"PYTHONPATH": str(REPOSITORY)}


def write_warm_python(folder: Path, program: str = "torch") -> str:
    """Write a program that runs Python's command lines in forks of a warm process, and return its path.

    For what starts `python` by itself. It must end before this process does.

    Args:
        program: What is loaded: `torch`, or all of `vramscope`.
    """
    library_path = os.environ.get("LD_LIBRARY_PATH", "") if program == "vramscope" else ""
    _find_server(program, library_path)
    return write_client(folder, _name_server(program, library_path))


def start_loaded_workers() -> str:
    """Start what loads all tests, and return a command that stands for `python` and runs in forks of it.

    For the workers of pytest. It ends with this process.
    """
    _find_server("pytest", "")
    client = Path(__file__).with_name("client.py")
    return f"{sys.executable} -I -S {client} {_name_server('pytest', '')} {sys.executable}"


def _choose_server(words: Sequence[str], variables: Mapping[str, str]) -> tuple[str, str]:
    """Return what the program needs loaded, and where libraries are looked for that it loads later."""
    if words[0] == "-m":
        return "vramscope", variables.get("LD_LIBRARY_PATH", "")
    return "torch", ""


_connected: dict[tuple[str, str], socket.socket] = {}


def _find_server(program: str, library_path: str) -> socket.socket:
    """Return a connection to the server of this session, which the first to ask starts.

    Its name is in the abstract namespace, so that nothing is left of it whatever ends the session.
    """
    key = program, library_path
    if key not in _connected:
        name = f"\0{_name_server(program, library_path)}"
        deadline = time.monotonic() + PATIENCE_S
        while (connection := _connect(name) or _start(name, program, library_path)) is None:
            assert time.monotonic() < deadline, f"nobody serves {name}"
            time.sleep(0.01)
        atexit.register(connection.close)  # else Python warns at its end
        _connected[key] = connection
    return _connected[key]


def _name_server(program: str, library_path: str) -> str:
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    return f"vramscope-tests-{session}-{program}-{zlib.crc32(library_path.encode())}"


def _connect(name: str) -> socket.socket | None:
    """Return a connection, or None where nobody listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(name)
    except ConnectionRefusedError:
        connection.close()
        return None
    return connection


def _start(name: str, program: str, library_path: str) -> socket.socket | None:
    """Start the server and return a connection; None where somebody else is about to."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        try:
            listening.bind(name)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return None
        listening.listen(64)
        connection = _connect(name)
        variables = {**AT_START, "OMP_NUM_THREADS": "1"}
        if program == "vramscope":
            variables |= {"PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": library_path}
        server = str(Path(__file__).with_name("server.py"))
        # No signal of a terminal ends it: it ends with its last connection.
        os.posix_spawn(
            sys.executable,
            [sys.executable, server, program],
            variables,
            file_actions=[(os.POSIX_SPAWN_DUP2, listening.fileno(), 0)],
            setsid=True,
        )
    return connection
