"""Files of device memory that a person inspects; which kind one is, its content says and not its name."""

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from ..errors import InputFileError
from ..model import RankCoordinates
from ..model.memory_snapshot import (
    OF_TEXT,
    FlightDevice,
    FlightFailure,
    FlightProcess,
    FlightRecord,
    MemorySnapshot,
)
from ..units import format_bytes
from .base.input_file import lower_first, open_input_file, show_name, show_path
from .base.packed_file import PackedFile
from .flight_record import read_flight_record
from .framework.log import find_rank
from .framework.oom_text import MOST_CHARACTERS, OomText, parse_oom_text
from .memory_snapshot import read_memory_snapshot
from .memory_snapshot.reader import SIZE_LIMIT_BYTES

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


_MARK = re.compile(rb"(?:CUDA|HIP|XPU) out of memory\. Tried to allocate ")
_MARK_BYTES = len("CUDA out of memory. Tried to allocate ")
_LONGEST = MOST_CHARACTERS
_BEFORE = 256
"""Bytes before the mark that may be of its line: what a launcher puts there."""
_BACKENDS = {"CUDA": "cuda", "HIP": "rocm", "XPU": "xpu"}
_TRACEBACK = "Traceback (most recent call last)"


def has_oom_text(path: Path) -> bool:
    """Return whether a file has such a text anywhere.

    Raises:
        InputFileError: It cannot be read.
    """
    return _find_texts(path).texts > 0


def read_oom_file(path: Path) -> FlightRecord:
    """Return the first error that a file tells of, with the number of those that follow.

    Raises:
        InputFileError: It cannot be read, or tells of none.
    """
    found = _find_texts(path)
    said = parse_oom_text(found.text)
    if said is None:
        raise InputFileError(f'{show_path(path)}: no text like "CUDA out of memory. Tried to allocate" in it')
    rank = find_rank(found.prefix)
    more = (f"texts of its kind that follow in the file: {found.texts - 1:,}",) if found.texts > 1 else ()
    return FlightRecord(
        reason=OF_TEXT,
        process=FlightProcess(
            backend=_BACKENDS[said.backend],
            coordinates=None if rank is None else RankCoordinates(rank, source="text"),
        ),
        device=FlightDevice(index=said.device, total_bytes=said.total_bytes),
        failure=FlightFailure(said.asked_bytes, said.free_bytes, said.used_bytes, message=found.text),
        stats=_tell_stats(said),
        notes=(f"figures are as the text at line {found.line:,} rounds them", *_tell_notes(said), *more),
        file=show_name(path),
    )


class _Found(NamedTuple):
    """The first text of a file."""

    text: str = ""
    prefix: str = ""
    """What stands before it in its line."""
    line: int = 0
    texts: int = 0
    """All of its kind."""


def _find_texts(path: Path) -> _Found:
    file = PackedFile(path)
    kept = b""
    from_at = 0
    line = 1
    count = 0
    prefix = b""
    text = b""
    for data in file.chunks():
        text = text if len(text) >= _LONGEST or not count else text + data[:_LONGEST]
        searched = kept + data
        for match in _MARK.finditer(searched, from_at):
            if not count:
                before = searched[: match.start()]
                at = match.start()
                line += before.count(b"\n") - kept.count(b"\n")
                prefix = before[before.rfind(b"\n") + 1 :][-_BEFORE:]
                text = searched[at : at + _LONGEST]
            count += 1
        line += 0 if count else data.count(b"\n")
        kept = searched[-_BEFORE - _MARK_BYTES :]
        # A mark that is whole within what is kept was met.
        from_at = max(0, len(kept) - _MARK_BYTES + 1)
    return _Found(_cut(text.decode("utf-8", "replace")), prefix.decode("utf-8", "replace"), line, count)


def _cut(text: str) -> str:
    """Return a text without what follows it: its line, or more where a terminal has wrapped it."""
    first = text.partition("\n")[0]
    said = parse_oom_text(first)
    if said is None or said.total_bytes is not None:
        return first.rstrip()
    return " ".join(text.partition("\n\n")[0].partition(_TRACEBACK)[0].split())


def _tell_stats(said: OomText) -> dict[str, float]:
    known = {"allocated_bytes": said.allocated_bytes, "reserved_bytes": said.reserved_bytes}
    return {f"{name}.all.current": size for name, size in known.items() if size is not None}


def _tell_notes(said: OomText) -> Iterator[str]:
    for pid, other_bytes in said.others:
        yield f"process {pid} had {format_bytes(other_bytes)} of the device"
    if said.own_bytes is not None:
        yield f"the process that failed had {format_bytes(said.own_bytes)} of the device in all"
    if said.allowed_bytes is not None:
        yield f"the process was limited to {format_bytes(said.allowed_bytes)}"
    if said.in_pools_bytes is not None:
        size = format_bytes(said.in_pools_bytes)
        yield f"{size} of the allocated bytes were in private pools, such as those of CUDA graphs"
