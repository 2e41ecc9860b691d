"""The Python inside a process: its version, and where in memory the functions lie that attaching calls."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import UsageError
from .elf import ElfFile
from .process import PROC, MappedFile, ProcessStatus, list_mapped_files

ADD_CALL, RUN_STRING, MAP_MEMORY = "Py_AddPendingCall", "PyRun_SimpleString", "mmap"
OLDEST = (3, 9)
_VERSION = "Py_Version"
"""A constant that holds the version since Python 3.11 (docs.python.org, C API, API and ABI Versioning)."""
_SINCE = {"PyModule_AddObjectRef": (3, 10), "PyModule_AddType": (3, 9)}
"""Functions by which an older one is known: documented as new in that version."""
_DELETED = " (deleted)"


class Interpreter(NamedTuple):
    """A Python that runs in a process."""

    pid: int
    version: tuple[int, int]
    functions: dict[str, int]
    """Addresses in the process of what a debugger calls, as far as they were found."""


def find_interpreter(status: ProcessStatus, proc: Path = PROC) -> Interpreter:
    """Return the Python inside a process.

    Raises:
        UsageError: There is none, it is too old for the probe, or its files are gone from the disk.
        OSError: The kernel does not tell this user.
    """
    mapped = list_mapped_files(status.pid, proc)
    who = f"process {status.pid} ({status.name})"
    for file in _list_likely(mapped, _executable(status.pid, proc)):
        symbols = _find_in(status.pid, file, (ADD_CALL, RUN_STRING, _VERSION, *_SINCE), proc)
        if ADD_CALL not in symbols.addresses or RUN_STRING not in symbols.addresses:
            continue
        version = _name_version(symbols)
        if version < OLDEST:
            raise UsageError(f"{who} runs a Python older than 3.9, the oldest that the probe knows")
        functions = {name: symbols.addresses[name] for name in (ADD_CALL, RUN_STRING)}
        return Interpreter(status.pid, version, functions | _find_memory_call(status.pid, mapped, proc))
    gone = [file.path for file in mapped if file.path.endswith(_DELETED) and "python" in file.path]
    if gone:
        raise UsageError(f"{who} runs a Python whose files were replaced since ({gone[0]}): start it anew")
    raise UsageError(f"{who} does not run Python")


class _Symbols(NamedTuple):
    addresses: dict[str, int]
    version_word: int | None = None


def _list_likely(mapped: Collection[MappedFile], executable: str | None) -> Iterator[MappedFile]:
    """Yield the files that may hold the interpreter: the program itself, then a shared libpython."""
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
    """Return where a process has the symbols of a file that it has mapped."""
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
    """Return where the C library has mmap; empty where it is not found."""
    for file in mapped:
        if Path(file.path).name.startswith(("libc.so", "libc-", "ld-musl")):
            found = _find_in(pid, file, (MAP_MEMORY,), proc).addresses
            if found:
                return found
    return {}
