"""An out-of-memory error that only a text tells of, pasted or within a log, as a flight record."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import InputFileError
from ..model import RankCoordinates
from ..model.flight_record import OF_TEXT, FlightDevice, FlightFailure, FlightProcess, FlightRecord
from ..units import format_bytes
from .framework_lines import find_rank
from .input_file import show_name, show_path
from .oom_text import MOST_CHARACTERS, OomText, parse_oom_text
from .packed_file import PackedFile

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
    file, kept, from_at, line, count = PackedFile(path), b"", 0, 1, 0
    prefix, text = b"", b""
    for data in file.chunks():
        text = text if len(text) >= _LONGEST or not count else text + data[:_LONGEST]
        searched = kept + data
        for match in _MARK.finditer(searched, from_at):
            if not count:
                before, at = searched[: match.start()], match.start()
                line += before.count(b"\n") - kept.count(b"\n")
                prefix, text = before[before.rfind(b"\n") + 1 :][-_BEFORE:], searched[at : at + _LONGEST]
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
