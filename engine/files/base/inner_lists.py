"""The lists of numbers within lists of a JSON file of any size, one after the other."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from ...errors import InputFileError
from ...units import MIB
from .input_file import show_path
from .packed_file import PackedFile

MOST_BYTES = 128 * MIB
"""A list of numbers that is longer in the file is refused: it would be held whole."""
MOST_NUMBERS = 1 << 23
"""Times of that many bytes are fewer."""
_BLANK = b" \t\r\n"
_MOST_OPENED = 2
_DECODER = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]])


class InnerList(NamedTuple):
    """One list that holds numbers and no list."""

    opened: int
    """Brackets that open right before its numbers, its own included."""
    numbers: list[int]


def read_inner_lists(file: PackedFile, path: Path, expectation: str) -> Iterator[InnerList]:
    """Yield the lists of whole numbers of a file to its end; what is cut off at the end is left out.

    Args:
        file: The file, of which nothing was read.
        path: Of the file.
        expectation: What is said where something else stands in it.

    Raises:
        InputFileError: Something else stands in it, or a list is longer than could be held.
    """
    closings = 0
    for at, piece in _split(file, path):
        before, bracket, numbers = piece.rpartition(b"[")
        opened = before.count(b"[") + 1
        if not bracket:
            closings += 1
            if piece.strip(_BLANK) or closings > _MOST_OPENED:
                raise _refuse(path, at, piece, expectation)
            continue
        if opened > _MOST_OPENED or before.translate(None, b"[," + _BLANK):
            raise _refuse(path, at, piece, expectation)
        try:
            yield InnerList(opened, _DECODER.decode(b"[" + numbers + b"]"))
        except msgspec.DecodeError as error:
            raise _refuse(path, at, piece, expectation) from error


def _split(file: PackedFile, path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield what stands before each closing bracket, and its place in bytes."""
    parts: list[bytes] = []
    held = numbers = place = 0
    for data in file.chunks():
        *ended, rest = data.split(b"]")
        for piece in ended:
            whole = b"".join((*parts, piece))
            yield place, whole
            place += len(whole) + 1
            parts.clear()
            held = 0
        parts.append(rest)
        held += len(rest)
        if held > MOST_BYTES:
            file.close()
            raise InputFileError(
                f"{show_path(path)}: byte {place:,}: a list of more than {MOST_BYTES:,} bytes"
            )
        numbers = rest.count(b",") + (numbers if len(ended) == 0 else 0)
        if numbers > MOST_NUMBERS:
            file.close()
            raise InputFileError(
                f"{show_path(path)}: byte {place:,}: a list of more than {MOST_NUMBERS:,} numbers"
            )


def _refuse(path: Path, at: int, piece: bytes, expectation: str) -> InputFileError:
    shown = ascii(piece.strip(_BLANK)[:24].decode("utf-8", "replace"))
    return InputFileError(
        f"{show_path(path)}: byte {at:,}: {shown} is no list of whole numbers; {expectation}"
    )
