"""The interpreter of another process, found in its files without asking it."""

import mmap
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from ..errors import UsageError
from ..sources.processes import PROC, MappedFile, ProcessStatus, list_mapped_files

ADD_CALL = "Py_AddPendingCall"
RUN_STRING = "PyRun_SimpleString"
MAP_MEMORY = "mmap"
_RUNTIME = "_PyRuntime"
# Exported by builds with Py_REF_DEBUG only (Include/refcount.h, Include/object.h).
_DEBUG = "_Py_NegativeRefcount"
# A lock is a semaphore where the interpreter calls this, and a mutex with a condition elsewhere
# (Python/thread_pthread.h).
_SEMAPHORE = "sem_init"
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
    # File that has the interpreter, as the process names it, and by how much the loader moved its addresses.
    path: str = ""
    shift: int = 0
    # Address of the structure from which all others are found.
    runtime: int | None = None
    is_debug: bool = False
    has_semaphores: bool = False
    # Names of the libraries that the file itself requires, so that they stay as long as it does.
    required: tuple[str, ...] = ()


def find_interpreter(status: ProcessStatus, proc: Path = PROC) -> Interpreter:
    """Return the Python inside a process.

    Raises:
        UsageError: There is none, it is too old for the probe, or its files are gone from the disk.
        OSError: The kernel does not show this user.
    """
    mapped = list_mapped_files(status.pid, proc)
    who = f"process {status.pid} ({status.name})"
    for file in _list_likely(mapped, find_executable(status.pid, proc)):
        names = (ADD_CALL, RUN_STRING, _VERSION, _RUNTIME, _DEBUG, *_SINCE)
        symbols = _find_in(status.pid, file, names, proc)
        if ADD_CALL not in symbols.addresses or RUN_STRING not in symbols.addresses:
            continue
        version = _name_version(symbols)
        if version < OLDEST:
            raise UsageError(f"{who} runs a Python older than 3.9, the oldest that the probe supports")
        functions = {name: symbols.addresses[name] for name in (ADD_CALL, RUN_STRING)}
        return Interpreter(
            status.pid,
            version,
            functions | _find_memory_call(status.pid, mapped, proc),
            path=file.path,
            shift=symbols.shift,
            runtime=symbols.addresses.get(_RUNTIME),
            is_debug=_DEBUG in symbols.addresses,
            has_semaphores=symbols.has_semaphores,
            required=symbols.required,
        )
    gone = [file.path for file in mapped if file.path.endswith(_DELETED) and "python" in file.path]
    if gone:
        raise UsageError(f"{who} runs a Python whose files have been replaced ({gone[0]}): restart it")
    raise UsageError(f"{who} does not run Python")


class _Symbols(NamedTuple):
    addresses: dict[str, int]
    version_word: int | None = None
    shift: int = 0
    has_semaphores: bool = False
    required: tuple[str, ...] = ()


def _list_likely(mapped: Collection[MappedFile], executable: str | None) -> Iterator[MappedFile]:
    """Yield the files that may be the interpreter: the program itself, then a shared libpython."""
    yield from (file for file in mapped if file.path == executable)
    for file in mapped:
        if "python" in Path(file.path).name and file.path != executable:
            yield file


def find_executable(pid: int, proc: Path = PROC) -> str | None:
    try:
        return str((proc / str(pid) / "exe").readlink())
    except OSError:
        return None


def _find_in(pid: int, file: MappedFile, names: Collection[str], proc: Path) -> _Symbols:
    try:
        with ElfFile(path_seen_from(pid, file.path, proc)) as elf:
            shift = elf.find_shift(file)
            if shift is None:
                return _Symbols({})
            found = elf.find_symbols(names)
            return _Symbols(
                {name: address + shift for name, address in found.items()},
                version_word=elf.read_word(found[_VERSION]) if _VERSION in found else None,
                shift=shift,
                has_semaphores=_SEMAPHORE in elf.list_imports((_SEMAPHORE,)),
                required=elf.list_required(),
            )
    except (OSError, ValueError):
        return _Symbols({})


def path_seen_from(pid: int, path: str, proc: Path = PROC) -> Path:
    """Return the file that a process names by a path, which may be in another mount namespace."""
    return proc / str(pid) / "root" / path.lstrip("/")


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
_DYNAMIC = struct.Struct("<qQ")
_MAGIC_64_LITTLE = b"\x7fELF\x02\x01"
_SEGMENT_LOADED = 1
_SEGMENT_WRITABLE = 2
_SECTION_DYNAMIC = 6
_SECTION_DYNAMIC_SYMBOLS = 11
_DYNAMIC_REQUIRED = 1


class LoadedSegment(NamedTuple):
    """A part of the file that is mapped to be run."""

    # Bytes from the start of the file.
    offset: int
    # Before the loader has shifted the whole file.
    address: int
    # Bytes in the file, and in memory, where zeros may follow.
    size_bytes: int
    memory_bytes: int
    is_writable: bool


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

    def find_shift(self, file: MappedFile) -> int | None:
        """Return by how much the loader moved the addresses of this file, from its first mapping."""
        segment = next((it for it in self.segments if _is_start_of(file.offset, it.offset)), None)
        return None if segment is None else file.address - (segment.address - segment.offset + file.offset)

    def find_symbols(self, names: Collection[str]) -> dict[str, int]:
        """Return the addresses of exported functions and data, as far as the file has them."""
        return {name: address for name, section, address in self._match_symbols(names) if section != 0}

    def list_imports(self, names: Collection[str]) -> set[str]:
        """Return which of some functions the file expects from other files."""
        return {name for name, section, _ in self._match_symbols(names) if section == 0}

    def list_required(self) -> tuple[str, ...]:
        """Return the names of the libraries that are loaded with this file."""
        found = []
        for entries, texts in self._list_tables(_SECTION_DYNAMIC):
            for tag, place in _DYNAMIC.iter_unpack(entries[: len(entries) // _DYNAMIC.size * _DYNAMIC.size]):
                if tag == _DYNAMIC_REQUIRED:
                    found.append(texts[place : texts.find(b"\0", place)].decode(errors="replace"))
        return tuple(found)

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
            kind, rights, offset, address, _, size, memory, _ = self._unpack(_PROGRAM_HEADER, place)
            if kind == _SEGMENT_LOADED:
                yield LoadedSegment(offset, address, size, memory, bool(rights & _SEGMENT_WRITABLE))

    def _match_symbols(self, names: Collection[str]) -> Iterator[tuple[str, int, int]]:
        """Yield name, section and address of symbols; section 0 is another file."""
        wanted = {name.encode() + b"\0": name for name in names}
        longest = max(map(len, wanted))
        try:
            for symbols, texts in self._list_tables(_SECTION_DYNAMIC_SYMBOLS):
                for place, _, _, section, address, _ in _SYMBOL.iter_unpack(symbols):
                    text = texts[place : place + longest]
                    name = wanted.get(text[: text.find(b"\0") + 1])
                    if name is not None:
                        yield name, section, address
        except struct.error as error:
            raise ValueError(f"broken symbol table: {error}") from None

    def _list_tables(self, wanted: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield each table of a kind with the texts that its entries name."""
        for index in range(self._section_count):
            _, kind, _, _, offset, size, linked, _, _, _ = self._section(index)
            if kind == wanted and linked < self._section_count:
                _, _, _, _, texts_at, texts_size, _, _, _, _ = self._section(linked)
                yield self._data[offset : offset + size], self._data[texts_at : texts_at + texts_size]

    def _section(self, index: int) -> tuple[int, ...]:
        return self._unpack(_SECTION_HEADER, self._sections_at + index * _SECTION_HEADER.size)

    def _unpack(self, layout: struct.Struct, place: int) -> tuple[int, ...]:
        if place + layout.size > len(self._data):
            raise ValueError(f"a table of the file leads outside it (byte {place} of {len(self._data)})")
        numbers: tuple[int, ...] = layout.unpack_from(self._data, place)
        return numbers
