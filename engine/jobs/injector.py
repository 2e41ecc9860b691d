"""Running a line of Python in another process before 3.14, without a debugger.

No code is executed at an arbitrary place, and no register is touched. While all threads of the process are
stopped, one entry is written into CPython's own table of pending calls, as `Py_AddPendingCall` writes it:
`PyRun_SimpleString` with the address of a text. Then the threads are released, and the main thread finds the
entry by itself. It is safe because

- nobody else is in that table: the lock of the table is free, and all threads that could take it are stopped;
- the memory of the text belongs to nobody (`find_room`), so nothing of the process is overwritten;
- the structures are checked before (`pending_calls.py`), and all of it is done first to a fresh process of
  the same Python (`rehearse`): on a machine or with a version where that fails, the job is not touched;
- this process may end at any moment: the kernel then releases the threads, and the ranges are written by one
  system call.

It runs in a process of its own, so that no other thread delays it and no Ctrl-Z stops it while it keeps the
threads of the job waiting.
"""

import gc
import mmap
import os
import re
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from ..child_processes import module_command, own_environment
from ..errors import AttachRefusedError, UnknownInterpreterError, UsageError, VramscopeError
from ..sources.processes import (
    PROC,
    MappedFile,
    list_mapped_files,
    read_inner_pid,
    read_status,
    read_variables,
)
from .interpreter import RUN_STRING, ElfFile, Interpreter, find_executable, find_interpreter, path_seen_from
from .pending_calls import PendingCalls, Table, UnsettledInterpreterError
from .standstill import LateThreadError, MemoryMap, ProcessMemory, Standstill

PROGRAM = "vramscope.engine.jobs.injector"
ANSWERS_WITHIN_S = 30.0
# All threads stop within a fraction of a millisecond, unless one is in an uninterruptible system call.
STOPS_WITHIN_S = 0.1
# How long all stops of one attachment may take together; another one is made only if its wait fits in.
MOST_STOPPED_S = 0.3
# Pauses before each further try, while the lock of the table is held or a thread does not stop; the threads
# run at least for as long as they were stopped.
PAUSES_S = (0.01, 0.05, 0.2, 0.5)
# How long it is watched whether the main thread finds the entry; it may be outside Python for hours.
WATCHED_S = 1.0
_LOOKS_EVERY_S = 0.002
# After so long without the flag, the flag is set again, and again after twice that time.
_FLAG_IS_LOST_AFTER_S = 0.02
# Kept free around the text.
_MARGIN_BYTES = 16
# Libraries of glibc that Python itself requires; glibc does not use the bytes behind their data.
_QUIET = re.compile(r"(?P<stem>lib(?:m|c|pthread|dl|util|rt))(?:\.so\.\d+|-2\.\d+\.so)")
_PYTHON_LIBRARY = re.compile(r"libpython3\.\d+\.so(?:\.\d+)*")
_PYTHON_PROGRAM = re.compile(r"python(?:3(?:\.\d+)?)?")


class Injection(msgspec.Struct, frozen=True):
    """A text that was passed to a process."""

    # For how long the threads of the process were stopped, all stops together.
    stopped_s: float
    # Whether its main thread has taken the entry.
    is_taken: bool
    # Where the text is, and its bytes with the closing zero.
    room: int
    text: bytes


class Request(msgspec.Struct, frozen=True):
    # None: only rehearse, with the Python of this process.
    pid: int | None
    text: bytes
    is_rehearsed: bool = False


class Answer(msgspec.Struct, frozen=True):
    injection: Injection | None = None
    # Class of the error, and its text.
    kind: Literal["", "unknown", "refused", "usage"] = ""
    reason: str = ""


def inject(pid: int, text: bytes) -> Injection:
    """Have a text run as Python in the module `__main__` of a process, by its main thread.

    Args:
        text: ASCII without zeros; it should raise nothing, and leave no name behind.

    Raises:
        UnknownInterpreterError: The structures of its Python are not those that are known; nothing was done.
        AttachRefusedError: It could not be stopped, or its table was not free; nothing was done.
        UsageError: It has ended.
    """
    interpreter = find_interpreter(read_status(pid))
    memory = ProcessMemory(pid)
    try:
        mappings = MemoryMap(pid)
        calls = _open_table(interpreter, memory, mappings)
        room = find_room(interpreter, memory, mappings, len(text) + 1)
        entry = _Entry(pid, memory, calls, interpreter.functions[RUN_STRING], room, text + b"\0")
        # Nothing may delay what happens while the process is stopped.
        gc.collect()
        gc.disable()
        try:
            entry.put()
        finally:
            gc.enable()
    except OSError as error:
        read_status(pid)
        raise UnknownInterpreterError(f"its memory cannot be read: {error.strerror}") from error
    try:
        is_taken = entry.watch()
    except (OSError, VramscopeError):
        is_taken = False  # it may take it yet, so this is no failure
    return Injection(entry.stopped_s, is_taken, room, entry.text)


def erase(pid: int, injection: Injection) -> None:
    """Set the bytes of a text to zero again, after it has run."""
    memory = ProcessMemory(pid)
    try:
        if memory.read(injection.room, len(injection.text)) == injection.text:
            memory.write((injection.room, bytes(len(injection.text))))
    except OSError:
        return  # the process has ended, or runs another program


def _open_table(interpreter: Interpreter, memory: ProcessMemory, mappings: MemoryMap) -> PendingCalls:
    """Return the table, after looking several times: threads that start and end make a look inconsistent."""
    inner_pid = read_inner_pid(interpreter.pid)
    for _ in range(4):
        try:
            return PendingCalls(interpreter, memory, mappings, inner_pid)
        except UnknownInterpreterError:
            time.sleep(_LOOKS_EVERY_S)
            mappings = MemoryMap(interpreter.pid)
    return PendingCalls(interpreter, memory, mappings, inner_pid)


class _Entry:
    """One call in the table of a process, from the first try until it is taken."""

    def __init__(
        self, pid: int, memory: ProcessMemory, calls: PendingCalls, function: int, room: int, text: bytes
    ) -> None:
        self._pid = pid
        self._memory = memory
        self._calls = calls
        self._function = function
        self._room = room
        self._slot = -1
        self.text = text
        self.stopped_s = 0.0

    def put(self) -> None:
        """Write text and entry as soon as the table is free.

        Raises:
            AttachRefusedError: It is not free; the text says why.
        """
        reason = ""
        for pause_s in (*PAUSES_S, 0.0):
            still = Standstill(self._pid, STOPS_WITHIN_S)
            try:
                with still:
                    table = self._calls.read()
                    if table.has_room():
                        self._write(table)
            except LateThreadError as error:
                reason = str(error)
            else:
                reason = f"process {self._pid}: its table of pending calls is in use or full"
            self.stopped_s += still.stopped_s
            if self._slot >= 0:
                return
            if not still.is_over or not self._may_stop():
                break
            time.sleep(max(pause_s, still.stopped_s))
        raise AttachRefusedError(f"{reason}; try again")

    def _may_stop(self) -> bool:
        """Return whether the threads may be stopped once more."""
        return self.stopped_s + STOPS_WITHIN_S <= MOST_STOPPED_S

    def _write(self, table: Table) -> None:
        room = self._memory.read(self._room, len(self.text))
        if any(room):
            raise UnknownInterpreterError("the room for the text is used")
        pieces = [(self._room, self.text), *self._calls.write_entry(table, self._function, self._room)]
        former = [(address, self._memory.read(address, len(data))) for address, data in pieces]
        try:
            self._memory.write(*pieces)
        except OSError:
            # A page that a fork shares has to be copied, for which there may be no memory.
            for piece in reversed(former):
                with suppress(OSError):
                    self._memory.write(piece)
            raise
        self._slot = table.end

    def watch(self) -> bool:
        """Return whether the main thread takes the entry within a while."""
        deadline_s = time.monotonic() + WATCHED_S
        patience_s = _FLAG_IS_LOST_AFTER_S
        lost_since_s = time.monotonic()
        while (now_s := time.monotonic()) < deadline_s:
            table = self._look()
            if table is not None:
                if not self._calls.is_waiting(table, self._slot, self._room):
                    return True
                if table.is_flagged or not self._is_main_thread_running():
                    lost_since_s = now_s
            if now_s - lost_since_s > patience_s and self._may_stop():
                self._set_flag_again()
                patience_s *= 2
                lost_since_s = time.monotonic()
            time.sleep(_LOOKS_EVERY_S)
        return False

    def _look(self) -> Table | None:
        """Read the table of the process while it runs; None if the look fell between two of its writes."""
        try:
            return self._calls.read()
        except UnknownInterpreterError:
            read_status(self._pid)
            return None

    def _is_main_thread_running(self) -> bool:
        stat = (PROC / str(self._pid) / "task" / str(self._pid) / "stat").read_bytes()
        return stat.rpartition(b") ")[2][:1] == b"R"

    def _set_flag_again(self) -> None:
        # Before 3.13 the flag is computed from several fields and then stored, without a lock
        # (COMPUTE_EVAL_BREAKER). A thread that was stopped in between stores the value of before. A main
        # thread that waits outside Python computes it when it returns; one that runs may never do so again.
        still = Standstill(self._pid, STOPS_WITHIN_S)
        try:
            with still:
                table = self._calls.read()
                if self._calls.is_waiting(table, self._slot, self._room):
                    self._memory.write(*self._calls.write_flags(max(1, table.to_do)))
        except LateThreadError:
            return
        finally:
            self.stopped_s += still.stopped_s


def find_room(interpreter: Interpreter, memory: ProcessMemory, mappings: MemoryMap, size_bytes: int) -> int:
    """Return the address of bytes of a process that nobody uses.

    The data of a library end somewhere in a page, and nothing is put into the rest of that page; it is zero
    where the data end in zeros that the file does not have. Only libraries are considered that stay as long
    as the interpreter does: its own file and those that it requires. Not the program, because the heap may
    begin in that page, and not the loader, which allocates its first memory there. The C library musl gives
    such bytes to its heap; with it there is no room.

    Raises:
        UnknownInterpreterError: There is none.
    """
    executable = find_executable(interpreter.pid)
    mapped = list_mapped_files(interpreter.pid)
    if any(Path(file.path).name.startswith(("ld-musl", "libc.musl")) for file in mapped):
        raise UnknownInterpreterError("it uses the C library musl")
    for file in mapped:
        if file.path == executable or not _stays_and_is_quiet(file, interpreter):
            continue
        end = _find_end_of_data(interpreter.pid, file)
        if end is None:
            continue
        page_end = _round_to_page(end)
        step = (size_bytes + 2 * _MARGIN_BYTES) // _MARGIN_BYTES * _MARGIN_BYTES
        # From the end of the page: a text whose process has not taken it yet stays where it is.
        for start in range(page_end - step, end + _MARGIN_BYTES, -step):
            if mappings.is_writable(start, step) and not any(memory.read(start, step)):
                return start
    raise UnknownInterpreterError("its libraries leave no room for a text")


def _stays_and_is_quiet(file: MappedFile, interpreter: Interpreter) -> bool:
    """Return whether a library stays as long as the interpreter, and uses no byte behind its data."""
    name = Path(file.path).name
    if file.path == interpreter.path:
        return bool(_PYTHON_LIBRARY.fullmatch(name))
    found = _QUIET.fullmatch(name)
    return found is not None and any(it.startswith(f"{found['stem']}.so") for it in interpreter.required)


def _find_end_of_data(pid: int, file: MappedFile) -> int | None:
    """Return where the data of a library end; None if they do not end in zeros, or others share the page."""
    try:
        with ElfFile(path_seen_from(pid, file.path)) as elf:
            shift = elf.find_shift(file)
            segments = elf.segments
    except (OSError, ValueError):
        return None
    ends = [
        it.address + it.memory_bytes for it in segments if it.is_writable and it.memory_bytes > it.size_bytes
    ]
    if shift is None or not ends:
        return None
    end = max(ends)
    if any(end <= it.address < _round_to_page(end) for it in segments):
        return None
    return shift + end


def _round_to_page(address: int) -> int:
    return (address + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE


_READY = b"ready\n"
_WENT_ON = b"went on\n"
_REHEARSAL = """
import sys, time
done = False
print("ready", flush=True)
while not done:
    time.sleep(0.001)
print("went on")
"""
_REHEARSES_WITHIN_S = 10.0


def rehearse(pid: int) -> float:
    """Do all of it to a fresh process of the same Python, and return for how long that was stopped.

    Args:
        pid: The process whose Python is meant.

    Raises:
        UnknownInterpreterError: It failed, or cannot be done; the text says why.
    """
    link = PROC / str(pid) / "exe"
    program = link.readlink()
    if not _PYTHON_PROGRAM.fullmatch(program.name):
        raise UnknownInterpreterError(f"its program is {program.name}, with which nothing can be rehearsed")
    if not program.exists() or not program.samefile(link):
        raise UnknownInterpreterError(f"its program {program} is not visible from here")
    searched = read_variables(pid).get("LD_LIBRARY_PATH")
    with subprocess.Popen(
        [str(program), "-I", "-S", "-c", _REHEARSAL],
        env={} if searched is None else {"LD_LIBRARY_PATH": searched},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            return _rehearse_on(process, pid)
        except (OSError, VramscopeError, subprocess.TimeoutExpired) as error:
            raise UnknownInterpreterError(f"a rehearsal failed: {error}") from error
        finally:
            process.kill()


def _rehearse_on(process: "subprocess.Popen[bytes]", pid: int) -> float:
    assert process.stdout is not None  # noqa: S101 - it was asked for
    is_said, _, _ = select.select([process.stdout], [], [], _REHEARSES_WITHIN_S)
    if not is_said or process.stdout.readline() != _READY:
        raise UnknownInterpreterError("its Python does not start")
    if identify(find_interpreter(read_status(process.pid))) != identify(find_interpreter(read_status(pid))):
        raise UnknownInterpreterError("its Python starts with another library")
    injection = inject(process.pid, b"done = True\n")
    said, _ = process.communicate(timeout=_REHEARSES_WITHIN_S)
    if said != _WENT_ON or process.returncode != 0:
        raise UnknownInterpreterError("the process did not go on as before")
    return injection.stopped_s


def identify(interpreter: Interpreter) -> tuple[int, int]:
    """Return what identifies the file of an interpreter."""
    found = path_seen_from(interpreter.pid, interpreter.path).stat()
    return found.st_dev, found.st_ino


_rehearsed: set[tuple[int, int]] = set()


def enter(interpreter: Interpreter, text: bytes) -> Injection:
    """Do what `inject` does, in a process of its own and after a rehearsal; raises what `inject` raises."""
    which = identify(interpreter)
    answer = _ask(Request(interpreter.pid, text, is_rehearsed=which in _rehearsed))
    if answer.injection is None:
        raise {
            "unknown": UnknownInterpreterError,
            "usage": UsageError,
        }.get(answer.kind, AttachRefusedError)(answer.reason)
    _rehearsed.add(which)
    return answer.injection


def try_on_own_process() -> float:
    """Rehearse with the Python of this process, and return for how long a process of it was stopped.

    Raises:
        UnknownInterpreterError: That is not possible here; the text says why.
    """
    answer = _ask(Request(pid=None, text=b""))
    if answer.injection is None:
        raise UnknownInterpreterError(answer.reason)
    return answer.injection.stopped_s


def _ask(request: Request) -> Answer:
    try:
        done = subprocess.run(
            module_command(PROGRAM),
            input=msgspec.json.encode(request),
            capture_output=True,
            env=own_environment(),
            timeout=ANSWERS_WITHIN_S,
            start_new_session=True,
            check=False,
        )
        return msgspec.json.decode(done.stdout, type=Answer)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AttachRefusedError(f"the process that attaches did not answer: {error}") from error
    except msgspec.DecodeError as error:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise AttachRefusedError(f"the process that attaches failed: {said[-1][:300]}") from error


def main() -> int:
    """Answer one request, from standard input to standard output."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    try:
        answer = Answer(_answer(request))
    except UnknownInterpreterError as error:
        answer = Answer(kind="unknown", reason=str(error))
    except UsageError as error:
        answer = Answer(kind="usage", reason=str(error))
    except VramscopeError as error:
        answer = Answer(kind="refused", reason=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 0


def _answer(request: Request) -> Injection:
    if request.pid is None:
        return Injection(rehearse(os.getpid()), is_taken=True, room=0, text=b"")
    if not request.is_rehearsed:
        rehearse(request.pid)
    try:
        return inject(request.pid, request.text)
    except UnsettledInterpreterError as error:
        # The rehearsal has shown that the places are right. gdb must not call into it at this moment either.
        raise AttachRefusedError(f"process {request.pid}: {error}; try again") from error


if __name__ == "__main__":
    sys.exit(main())
