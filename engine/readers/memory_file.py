"""Files of device memory that a person inspects; which kind one is, its content says and not its name."""

import zlib
from pathlib import Path
from typing import Literal

from ..errors import InputFileError
from ..model.flight_record import FlightRecord
from ..model.memory_snapshot import MemorySnapshot
from .flight_record import read_flight_record
from .input_file import lower_first, open_input_file, show_path
from .memory_snapshot import read_memory_snapshot
from .memory_snapshot.reader import SIZE_LIMIT_BYTES
from .oom_file import has_oom_text, read_oom_file

MemoryFileKind = Literal["snapshot", "flight record", "out-of-memory text"]
MemoryFile = MemorySnapshot | FlightRecord

_GZIP_MARK = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PICKLE_MARK = b"\x80"
"""How pickles from protocol 2 on begin; JSON never does."""
_HEAD_BYTES = 512
_SCHEMA_KEY = b'"schema"'
"""At the beginning of a flight record. A log of JSON lines begins alike, and may tell of an error."""


def recognize_memory_file(path: Path) -> MemoryFileKind:
    """Return what a file holds.

    Raises:
        InputFileError: It cannot be read, or is none of them.
    """
    with open_input_file(path, SIZE_LIMIT_BYTES) as (file, _):
        head = file.read(_HEAD_BYTES)
        if head.startswith(_GZIP_MARK):
            head = _unpack_head(path, head + file.read(_HEAD_BYTES * 16))
    if not head.strip():
        raise InputFileError(f"{show_path(path)}: the file is empty; its writer may not have finished")
    if head.startswith(_PICKLE_MARK):
        return "snapshot"
    if head.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"{"):
        is_record = _SCHEMA_KEY in head or not has_oom_text(path)
        return "flight record" if is_record else "out-of-memory text"
    if has_oom_text(path):
        return "out-of-memory text"
    raise InputFileError(
        f"{show_path(path)}: neither a memory snapshot nor a flight record nor a text with an "
        "out-of-memory error; expected a pickle as torch.cuda.memory._dump_snapshot writes it, what "
        'vramscope wrote at such an error, or the words "CUDA out of memory. Tried to allocate"'
    )


def read_memory_file(path: Path) -> MemoryFile:
    """Read a memory snapshot of PyTorch, in any dialect, a flight record, or an error that a text tells of.

    Raises:
        InputFileError: It cannot be read, or is none of them.
    """
    kind = recognize_memory_file(path)
    if kind == "snapshot":
        return read_memory_snapshot(path)
    return read_flight_record(path) if kind == "flight record" else read_oom_file(path)


def _unpack_head(path: Path, packed: bytes) -> bytes:
    """Return the first bytes of what is compressed; the beginning of the file is enough for that."""
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        return unpacker.decompress(packed, _HEAD_BYTES)
    except zlib.error as error:
        raise InputFileError(
            f"{show_path(path)}: cannot be decompressed: {lower_first(str(error))}; the file is damaged"
        ) from error
