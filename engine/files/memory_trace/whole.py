"""Reads a memory trace whole: JSON of any shape and order, and the place of what is wrong in it."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import msgspec

from ...errors import InputFileError
from ...units import MIB
from ..base.input_file import locate_byte, lower_first, read_input_file, show_path
from .records import IterationRecord, TraceBatch

SIZE_LIMIT_BYTES = 512 * MIB
"""A larger file is not read whole."""
EXPECTATION = 'expected a memory trace: {"0": {"samples": [...], "peak_allocated_MB": ...}, "1": ...}'
_FILE_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITERATION_DECODER = msgspec.json.Decoder(IterationRecord)


def read_whole(path: Path) -> Iterator[TraceBatch]:
    """Yield the iterations of a file in order of their numbers.

    Raises:
        InputFileError: It is absent, larger than `SIZE_LIMIT_BYTES`, or no memory trace; the text says where.
    """
    yield from _WholeFile(path).batches(read_input_file(path, SIZE_LIMIT_BYTES))


class _WholeFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def batches(self, data: bytes) -> Iterator[TraceBatch]:
        records = self._decode_file(data)
        for index, key in self._order(records):
            record = self._decode_iteration(data, key, records[key])
            yield TraceBatch(key, index, 0, record.samples, record)

    def _decode_file(self, data: bytes) -> dict[str, msgspec.Raw]:
        try:
            return _FILE_DECODER.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            self._refuse(data, 0, "$", error)

    def _decode_iteration(self, data: bytes, key: str, raw: msgspec.Raw) -> IterationRecord:
        try:
            return _ITERATION_DECODER.decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            self._refuse(data, data.find(bytes(raw)), f'$["{key}"]', error)

    def _refuse(self, data: bytes, offset: int, prefix: str, error: Exception) -> NoReturn:
        """Raise what the decoder found, with the place in the whole file."""
        message, _, place = str(error).partition(" - at `$")
        byte = re.search(r"\s*\(byte (\d+)\)", message)
        expectation = "" if place else f"; {EXPECTATION}"
        if byte is not None:
            position = locate_byte(data, offset + int(byte.group(1)))
            message = message.replace(byte.group(0), "")
        elif "truncated" in message:
            position = locate_byte(data, len(data))
            message = "the file ends in the middle"
        else:
            position = f"at {prefix}{place.rstrip('`')}"
        raise InputFileError(
            f"{show_path(self._path)}: {position}: {lower_first(message)}{expectation}"
        ) from error

    def _order(self, records: dict[str, msgspec.Raw]) -> list[tuple[int, str]]:
        for key in records:
            if re.fullmatch(r"[0-9]{1,9}", key) is None:
                self._fail(
                    f"at $[{msgspec.json.encode(key).decode()}]", "expected the number of an iteration as key"
                )
        ordered = sorted((int(key), key) for key in records)
        if not ordered:
            self._fail("at $", "no iteration in it; expected at least one")
        for (index, key), (following, _) in pairwise(ordered):
            if index == following:
                self._fail(f'at $["{key}"]', f"iteration {index} is there twice; expected it once")
        return ordered

    def _fail(self, position: str, text: str) -> NoReturn:
        raise InputFileError(f"{show_path(self._path)}: {position}: {text}")
