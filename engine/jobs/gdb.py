"""gdb as the way into a Python before 3.14 that the injector does not know."""

import os
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

from ..errors import AttachRefusedError, DebuggerMissingError
from .interpreter import ADD_CALL, MAP_MEMORY, RUN_STRING, Interpreter

# gdb stops the process at an arbitrary place: inside malloc, inside the garbage collector, with the GIL
# held or without. So nothing may be called there that takes a lock of the process or looks at a Python
# object. Two functions are safe:
#
# - `mmap`, a bare system call, makes room for the text of the payload;
# - `Py_AddPendingCall` puts an entry into a table of fixed size and allocates nothing. It may be called from
#   any thread, with or without the GIL and without a thread state (docs.python.org, C API, Initialization,
#   "Asynchronous Notifications").
#
# The main thread takes the entry from the table by itself, where signal handlers may run as well, with the
# GIL held. No code is run in the frame that was interrupted. The table's own lock is held for a few
# instructions while an entry is put in or taken out; should the thread have been stopped just there, the
# call would wait for ever, and so it is abandoned after a while: gdb then restores the thread as it was.

ANSWERS_WITHIN_S = 10.0
_GIVES_UP_WITHIN_S = 3.0
_STOPPING = "vramscope: stopping"
_STOPPED = "vramscope: stopped"
_QUEUED = "vramscope: queued"
_RELEASED = "vramscope: released"
# 3 is PROT_READ|PROT_WRITE and 34 MAP_PRIVATE|MAP_ANONYMOUS of Linux. The page stays: nobody can know when
# the text is no longer read. Signals go through to the process; SIGURG, which harms none, is how a call that
# hangs is abandoned.
_COMMANDS = """\
set pagination off
set confirm off
set unwindonsignal on
handle all nostop noprint pass
handle SIGINT nostop noprint pass
handle SIGURG stop print nopass
echo %(stopping)s\\n
attach %(pid)d
echo %(stopped)s\\n
set $room = ((long (*)(long, long, int, int, int, long)) %(map_memory)#x)(0, %(size)d, 3, 34, -1, 0)
restore %(payload)s binary $room
set $full = ((int (*)(void *, void *)) %(add_call)#x)((void *) %(run_string)#x, (void *) $room)
printf "%(queued)s %%d\\n", $full
detach
echo %(released)s\\n
"""


def find_gdb() -> str:
    """Find gdb; `DebuggerMissingError` says how to get it."""
    path = shutil.which("gdb")
    if path is None:
        raise DebuggerMissingError(
            "attaching to this Python needs gdb, which is not installed: `apt-get install gdb`, "
            "`dnf install gdb` or `conda install -c conda-forge gdb`; or start the job with `vramscope run`"
        )
    return path


def inject(interpreter: Interpreter, payload: Path) -> float:
    """Pass a payload to a process and return the seconds for which it was stopped, at most.

    Args:
        payload: File with the code, in a folder whose files only this user can change.

    Raises:
        DebuggerMissingError: There is no gdb.
        AttachRefusedError: gdb could not do it; the text has its message.
    """
    gdb = find_gdb()
    if MAP_MEMORY not in interpreter.functions:
        raise AttachRefusedError(f"process {interpreter.pid}: unknown C library")
    commands = payload.with_suffix(".gdb")
    commands.write_text(_write_commands(interpreter, payload), encoding="utf-8")
    try:
        session = _Session(gdb, interpreter.pid, commands)
        session.watch()
    finally:
        commands.unlink(missing_ok=True)
    return session.stopped_s


def _write_commands(interpreter: Interpreter, payload: Path) -> str:
    return _COMMANDS % {
        "pid": interpreter.pid,
        "map_memory": interpreter.functions[MAP_MEMORY],
        "add_call": interpreter.functions[ADD_CALL],
        "run_string": interpreter.functions[RUN_STRING],
        "payload": payload.name,
        "size": payload.stat().st_size + 1,  # new pages are zero: the text ends with one
        "stopping": _STOPPING,
        "stopped": _STOPPED,
        "queued": _QUEUED,
        "released": _RELEASED,
    }


class _Session:
    """One run of gdb, watched from its first to its last line."""

    def __init__(self, gdb: str, pid: int, commands: Path) -> None:
        self._pid = pid
        self._said: list[str] = []
        self._has_stopped = False
        self.stopped_s = 0.0
        # Symbols are not needed, the addresses are known; reading them would keep the process stopped.
        self._gdb = subprocess.Popen(
            [gdb, "-nx", "-batch", "-readnever", "-iex", "set auto-solib-add off", "-iex", "set auto-load no",
             f"/proc/{pid}/exe", "-x", commands.name],
            cwd=commands.parent,
            env={**os.environ, "DEBUGINFOD_URLS": "", "LC_ALL": "C"},  # no symbols from the network
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            encoding="utf-8",
            errors="replace",
        )  # fmt: skip

    def watch(self) -> None:
        """Follow the output of gdb to its end.

        Raises:
            AttachRefusedError: It could not do it, or not in time.
        """
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        reader.join(ANSWERS_WITHIN_S)
        if reader.is_alive():
            self._give_up(reader)
        self._gdb.wait()
        if not any(line == f"{_QUEUED} 0" for line in self._said):
            raise AttachRefusedError(f"gdb could not reach process {self._pid}: {self._reason()}")

    def _read(self) -> None:
        assert self._gdb.stdout is not None  # noqa: S101 - it was asked for
        begun_s = time.monotonic()
        with self._gdb.stdout as lines:
            for line in map(str.strip, lines):
                self._said.append(line)
                self._has_stopped |= line == _STOPPED
                if line == _STOPPING:
                    begun_s = time.monotonic()
                elif line == _RELEASED:
                    self.stopped_s = time.monotonic() - begun_s

    def _give_up(self, reader: threading.Thread) -> None:
        """Free the process, whatever gdb waits for."""
        if self._has_stopped:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGURG)
            reader.join(_GIVES_UP_WITHIN_S)
        if reader.is_alive():
            self._gdb.kill()
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGCONT)  # a stop that gdb asked for may still be on its way
            reader.join(_GIVES_UP_WITHIN_S)

    def _reason(self) -> str:
        if any(line.startswith(_QUEUED) for line in self._said):
            return "its table of pending calls is full; try again"
        if not self._has_stopped and self._said[-1:] == [_STOPPING]:
            return f"it did not stop within {ANSWERS_WITHIN_S:g} s"
        answers = [line for line in self._said if line and not line.startswith(("[", "vramscope:"))]
        return answers[-1][:300] if answers else f"it did not answer within {ANSWERS_WITHIN_S:g} s"
