"""The interpreter of another process, found and entered through gdb."""

import mmap
import os
import shutil
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from ..errors import AttachRefusedError, DebuggerMissingError, UsageError
from ..sources.processes import PROC, MappedFile, ProcessStatus, list_mapped_files

ADD_CALL = "Py_AddPendingCall"
RUN_STRING = "PyRun_SimpleString"
MAP_MEMORY = "mmap"
OLDEST = (3, 9)
# A constant with the version since Python 3.11 (docs.python.org, C API, API and ABI Versioning).
_VERSION = "Py_Version"
# Functions that reveal an older version: documented as new in that one.
_SINCE = {"PyModule_AddObjectRef": (3, 10), "PyModule_AddType": (3, 9)}
_DELETED = " (deleted)"


class Interpreter(NamedTuple):
    pid: int
    version: tuple[int, int]
    # Addresses in the process of what a debugger calls, as far as they were found.
    functions: dict[str, int]


def find_interpreter(status: ProcessStatus, proc: Path = PROC) -> Interpreter:
    """Return the Python inside a process.

    Raises:
        UsageError: There is none, it is too old for the probe, or its files are gone from the disk.
        OSError: The kernel does not show this user.
    """
    mapped = list_mapped_files(status.pid, proc)
    who = f"process {status.pid} ({status.name})"
    for file in _list_likely(mapped, _executable(status.pid, proc)):
        symbols = _find_in(status.pid, file, (ADD_CALL, RUN_STRING, _VERSION, *_SINCE), proc)
        if ADD_CALL not in symbols.addresses or RUN_STRING not in symbols.addresses:
            continue
        version = _name_version(symbols)
        if version < OLDEST:
            raise UsageError(f"{who} runs a Python older than 3.9, the oldest that the probe supports")
        functions = {name: symbols.addresses[name] for name in (ADD_CALL, RUN_STRING)}
        return Interpreter(status.pid, version, functions | _find_memory_call(status.pid, mapped, proc))
    gone = [file.path for file in mapped if file.path.endswith(_DELETED) and "python" in file.path]
    if gone:
        raise UsageError(f"{who} runs a Python whose files have been replaced ({gone[0]}): restart it")
    raise UsageError(f"{who} does not run Python")


class _Symbols(NamedTuple):
    addresses: dict[str, int]
    version_word: int | None = None


def _list_likely(mapped: Collection[MappedFile], executable: str | None) -> Iterator[MappedFile]:
    """Yield the files that may be the interpreter: the program itself, then a shared libpython."""
    yield from (file for file in mapped if file.path == executable)
    for file in mapped:
        if "python" in Path(file.path).name and file.path != executable:
            yield file


def _executable(pid: int, proc: Path) -> str | None:
    try:
        return str((proc / str(pid) / "exe").readlink())
    except OSError:
        return None


def _find_in(pid: int, file: MappedFile, names: Collection[str], proc: Path) -> _Symbols:
    seen_from_it = proc / str(pid) / "root" / file.path.lstrip("/")
    try:
        with ElfFile(seen_from_it) as elf:
            segment = next((s for s in elf.segments if _is_start_of(file.offset, s.offset)), None)
            if segment is None:
                return _Symbols({})
            shift = file.address - (segment.address - segment.offset + file.offset)
            found = elf.find_symbols(names)
            word = elf.read_word(found[_VERSION]) if _VERSION in found else None
    except (OSError, ValueError):
        return _Symbols({})
    return _Symbols({name: address + shift for name, address in found.items()}, word)


def _is_start_of(mapped_offset: int, segment_offset: int) -> bool:
    """Return whether a mapping begins with a segment, which the loader rounds down to a whole page."""
    return mapped_offset <= segment_offset < mapped_offset + 65536


def _name_version(symbols: _Symbols) -> tuple[int, int]:
    if symbols.version_word is not None:
        return symbols.version_word >> 24 & 0xFF, symbols.version_word >> 16 & 0xFF
    return next((version for name, version in _SINCE.items() if name in symbols.addresses), (0, 0))


def _find_memory_call(pid: int, mapped: Collection[MappedFile], proc: Path) -> dict[str, int]:
    """Return the address of mmap in the C library; empty if it is not found."""
    for file in mapped:
        if Path(file.path).name.startswith(("libc.so", "libc-", "ld-musl")):
            found = _find_in(pid, file, (MAP_MEMORY,), proc).addresses
            if found:
                return found
    return {}


# Layout: `elf(5)`. Only 64-bit little-endian files are understood, which are those of x86-64 and AArch64.
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MAGIC_64_LITTLE = b"\x7fELF\x02\x01"
_SEGMENT_LOADED = 1
_SECTION_DYNAMIC_SYMBOLS = 11


class LoadedSegment(NamedTuple):
    """A part of the file that is mapped to be run."""

    # Bytes from the start of the file.
    offset: int
    # Before the loader has shifted the whole file.
    address: int
    size_bytes: int


class ElfFile:
    """A program or library, open for reading.

    Raises:
        ValueError: It is not an ELF file of the kind that is understood.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            if self._data[:6] != _MAGIC_64_LITTLE:
                raise ValueError(f"{path}: not a 64-bit little-endian ELF file")
            header = _HEADER.unpack_from(self._data)
            self._segments_at = header[5]
            self._sections_at = header[6]
            self._segment_count = header[10]
            self._section_count = header[12]
            self.segments = tuple(self._list_segments())
        except (ValueError, struct.error) as error:
            self._data.close()
            raise ValueError(str(error)) from None

    def __enter__(self) -> "ElfFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._data.close()

    def find_symbols(self, names: Collection[str]) -> dict[str, int]:
        """Return the addresses of exported functions and data, as far as the file has them."""
        wanted = {name.encode() + b"\0": name for name in names}
        longest = max(map(len, wanted))
        found: dict[str, int] = {}
        try:
            for symbols, texts in self._list_symbol_tables():
                for place, _, _, section, address, _ in _SYMBOL.iter_unpack(symbols):
                    text = texts[place : place + longest]
                    name = wanted.get(text[: text.find(b"\0") + 1])
                    if name is not None and section != 0:
                        found[name] = address
        except struct.error as error:
            raise ValueError(f"broken symbol table: {error}") from None
        return found

    def read_word(self, address: int) -> int | None:
        """Return the 64-bit word at an address, or None if the file has none there."""
        for segment in self.segments:
            place = address - segment.address
            if 0 <= place <= segment.size_bytes - 8:
                return int.from_bytes(
                    self._data[segment.offset + place : segment.offset + place + 8], "little"
                )
        return None

    def _list_segments(self) -> Iterator[LoadedSegment]:
        for index in range(self._segment_count):
            place = self._segments_at + index * _PROGRAM_HEADER.size
            kind, _, offset, address, _, size, _, _ = self._unpack(_PROGRAM_HEADER, place)
            if kind == _SEGMENT_LOADED:
                yield LoadedSegment(offset, address, size)

    def _list_symbol_tables(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield each table of dynamic symbols with the texts of its names."""
        for index in range(self._section_count):
            _, kind, _, _, offset, size, linked, _, _, _ = self._section(index)
            if kind == _SECTION_DYNAMIC_SYMBOLS and linked < self._section_count:
                _, _, _, _, texts_at, texts_size, _, _, _, _ = self._section(linked)
                yield self._data[offset : offset + size], self._data[texts_at : texts_at + texts_size]

    def _section(self, index: int) -> tuple[int, ...]:
        return self._unpack(_SECTION_HEADER, self._sections_at + index * _SECTION_HEADER.size)

    def _unpack(self, layout: struct.Struct, place: int) -> tuple[int, ...]:
        if place + layout.size > len(self._data):
            raise ValueError(f"a table of the file leads outside it (byte {place} of {len(self._data)})")
        numbers: tuple[int, ...] = layout.unpack_from(self._data, place)
        return numbers


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
            "attaching to a Python before 3.14 needs gdb, which is not installed: `apt-get install gdb`, "
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
        told = [line for line in self._said if line and not line.startswith(("[", "vramscope:"))]
        return told[-1][:300] if told else f"it did not answer within {ANSWERS_WITHIN_S:g} s"
