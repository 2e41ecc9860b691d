"""The process that serves Prometheus for an agent: started, kept and ended with it."""

import os
import select
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import UsageError
from .processes import EXPORTER_LOG_NAME, command_of, last_line, own_environment

STARTS_WITHIN_S = 20.0
ENDS_WITHIN_S = 1.0
BACKOFF_S = (0.5, 2.0, 10.0, 60.0)
"""Wait before the next start, by the number of crashes so far."""
MOST_ADDRESS_BYTES = 4096


class ExporterProcess:
    """Keeps `vramscope exporter` running; a thread waits for its end, so the agent spends nothing on it.

    Args:
        runtime_dir: Folder of the agent.
        arguments: Flags of the verb.
        tell: Told in a sentence when it crashed.
    """

    def __init__(self, runtime_dir: Path, arguments: Sequence[str], *, tell: Callable[[str], None]) -> None:
        self._command = command_of("exporter", *arguments, "--runtime-dir", str(runtime_dir))
        self._log, self._tell = runtime_dir / EXPORTER_LOG_NAME, tell
        self._stop = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="exporter", daemon=True)

    def start(self) -> str:
        """Start it and return the address of the metrics once it serves them.

        Raises:
            UsageError: It cannot serve; the text says why.
        """
        self._process = self._spawn()
        address = _read_address(self._process)
        if address is None:
            code = self._end(self._process)
            reason = last_line(self._log) or f"the exporter ended with status {code}"
            raise UsageError(reason.removeprefix("vramscope: "))
        self._thread.start()
        return address

    def stop(self) -> None:
        """End it; it goes by itself when its standard input closes."""
        self._stop.set()
        if self._process is not None:
            self._end(self._process)
        if self._thread.is_alive():
            self._thread.join(timeout=ENDS_WITHIN_S)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        with self._log.open("wb") as log:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=own_environment(),
            )

    def _keep(self) -> None:
        """Wait for its end, and start it again unless it was asked for."""
        for crashes in range(1 << 30):
            if self._process is None:
                return
            code = self._process.wait()
            if self._stop.is_set():
                return
            wait_s = BACKOFF_S[min(crashes, len(BACKOFF_S) - 1)]
            reason = last_line(self._log) or f"status {code}"
            self._tell(f"the exporter of metrics ended ({reason}); it is started again in {wait_s:g} s")
            if self._stop.wait(wait_s):
                return
            _close_pipes(self._process)
            self._process = self._spawn()
            address = _read_address(self._process)
            if address is not None:
                self._tell(f"metrics are at {address} again")

    def _end(self, process: "subprocess.Popen[bytes]") -> int:
        _close_pipes(process)
        try:
            return process.wait(timeout=ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _read_address(process: "subprocess.Popen[bytes]") -> str | None:
    """Return the line that it prints when it serves; None where it ended, or prints none in time."""
    if process.stdout is None or not select.select([process.stdout], [], [], STARTS_WITHIN_S)[0]:
        return None
    return os.read(process.stdout.fileno(), MOST_ADDRESS_BYTES).decode(errors="replace").strip() or None


def _close_pipes(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
