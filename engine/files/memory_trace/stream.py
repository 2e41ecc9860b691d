"""Reads a memory trace piece by piece, at the speed of the decoder and in the memory of one piece.

It knows the shape in which the tracker writes: iterations in ascending order, values that are logged once
next to a list of flat samples. Any other shape is refused; `read_whole` understands any JSON.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec

from ...errors import InputFileError
from ...units import MIB, TIB
from ..base.input_file import lower_first, open_input_file, show_path
from .reading import IterationRecord, SampleRecord, TraceBatch

PIECE_BYTES = MIB
# No sample is longer.
MOST_PENDING_BYTES = 8 * MIB
# Nothing but samples is longer.
MOST_HEAD_BYTES = 1 << 16
_SIZE_LIMIT_BYTES = 64 * TIB
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
_FIGURE = rb'"[ !#-\[\]-~]{0,64}"[ \t\r\n]*:[ \t\r\n]*-?[0-9][0-9.eE+-]{0,64}'
_OPEN = re.compile(rb"[ \t\r\n]*\{")
_HEAD = re.compile(
    rb'[ \t\r\n]*"([0-9]{1,9})"[ \t\r\n]*:[ \t\r\n]*\{'
    rb"((?:[ \t\r\n]*" + _FIGURE + rb"[ \t\r\n]*,){0,64})"
    rb'[ \t\r\n]*"samples"[ \t\r\n]*:[ \t\r\n]*\['
)
_TAIL = re.compile(rb"\]((?:[ \t\r\n]*,[ \t\r\n]*" + _FIGURE + rb"){0,64})[ \t\r\n]*\}")
_NEXT = re.compile(rb"[ \t\r\n]*([,}])")
_SAMPLES = msgspec.json.Decoder(list[SampleRecord])
_ITERATION = msgspec.json.Decoder(IterationRecord)
_PLACE = re.compile(r"\s*- at `\$\[(\d+)\]([^`]*)`")
_BYTE = re.compile(r"\s*\(byte (\d+)\)")


def stream_trace(
    path: Path, *, piece_bytes: int = PIECE_BYTES, on_read: Callable[[int], None] | None = None
) -> Iterator[TraceBatch]:
    with open_input_file(path, _SIZE_LIMIT_BYTES) as (file, _):
        window = _Window(path, file, piece_bytes, on_read)
        window.skip_mark()
        window.match(_OPEN, "expected an object of iterations")
        index = -1
        while True:
            head = window.match(_HEAD, 'expected an iteration: "0": {"samples": [...], ...}')
            key = head[1].decode()
            if int(key) <= index:
                window.refuse("expected iterations in ascending order")
            index = int(key)
            yield from _read_iteration(window, key, head[2])
            if window.match(_NEXT, "expected an iteration or the end")[1] == b"}":
                window.expect_end()
                return


def _read_iteration(window: "_Window", key: str, before: bytes) -> Iterator[TraceBatch]:
    position = 0
    index = int(key)
    while (stop := window.find_end_of_samples()) is None:
        samples = window.take_samples(key, position, window.find_last_sample())
        yield TraceBatch(key, index, position, samples, None)
        position += len(samples)
        window.read()
    samples = window.take_samples(key, position, stop)
    tail = window.match(_TAIL, "expected sizes after the samples")
    try:
        logged = _ITERATION.decode(b'{%b"samples":[]%b}' % (before, tail[1]))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        window.refuse(lower_first(str(error)))
    yield TraceBatch(key, index, position, samples, logged)


class _Window:
    """The part of the file in memory, and the reading position in it."""

    def __init__(
        self, path: Path, file: BinaryIO, piece_bytes: int, on_read: Callable[[int], None] | None
    ) -> None:
        self._path = path
        self._file = file
        self._piece_bytes = piece_bytes
        self._on_read = on_read
        self._data = b""
        self._at = 0
        # Offset of `_data` in the file.
        self._offset = 0
        self.read()

    def read(self) -> None:
        """Read one more piece; refuse if the file ends or something in it is too long."""
        if not self._read():
            self._refuse_end("the file is cut short")

    def skip_mark(self) -> None:
        while len(self._data) < len(_BYTE_ORDER_MARK) and self._read():
            pass
        if self._data.startswith(_BYTE_ORDER_MARK):
            self._at = len(_BYTE_ORDER_MARK)

    def match(self, pattern: re.Pattern[bytes], expectation: str) -> re.Match[bytes]:
        while True:
            found = pattern.match(self._data, self._at)
            if found is not None:
                self._at = found.end()
                return found
            if len(self._data) - self._at >= max(self._piece_bytes, MOST_HEAD_BYTES):
                self.refuse(expectation)
            if not self._read():
                self._refuse_end(expectation)

    def expect_end(self) -> None:
        """Refuse anything but blanks."""
        while not self._data[self._at :].strip(_BLANK):
            self._at = len(self._data)
            if not self._read():
                return
        self.refuse("expected nothing after the last iteration")

    def find_end_of_samples(self) -> int | None:
        """Return where the list of samples ends, None if that was not read yet."""
        stop = self._data.find(b"]", self._at)
        return None if stop < 0 else stop

    def find_last_sample(self) -> int:
        """Return the end of the last sample that is whole, or the reading position."""
        return max(self._at, self._data.rfind(b"}", self._at) + 1)

    def take_samples(self, key: str, position: int, stop: int) -> list[SampleRecord]:
        """Pass over samples, with the comma before them, and return them."""
        text = self._data[self._at : stop]
        lead = len(text) - len(text.lstrip(_BLANK))
        if position and lead < len(text):
            if text[lead : lead + 1] != b",":
                self.refuse("expected a comma between samples")
            lead += 1
            if not text[lead:].strip(_BLANK):
                self.refuse("expected a sample after the comma")
        try:
            samples = _SAMPLES.decode(b"[%b]" % text[lead:])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            self._at += lead - 1
            self._refuse_sample(key, position, str(error))
        self._at = stop
        return samples

    def refuse(self, expectation: str) -> NoReturn:
        # The file is read again up to the error, to count its lines.
        offset = self._offset + self._at
        self._file.seek(0)
        line = 1
        at = 0
        begin = 0
        while at < offset and (piece := self._file.read(min(MIB, offset - at))):
            line += piece.count(b"\n")
            newest = piece.rfind(b"\n")
            begin = at + newest + 1 if newest >= 0 else begin
            at += len(piece)
        column = offset - begin + 1
        raise InputFileError(f"{show_path(self._path)}: line {line}, column {column}: {expectation}")

    def _refuse_end(self, expectation: str) -> NoReturn:
        """Raise for what cannot be understood up to the end; only a whole file ends with a bracket."""
        if not self._data.rstrip(_BLANK).endswith((b"}", b"]")):
            self._at = len(self._data)
            expectation = "the file is cut short"
        self.refuse(expectation)

    def _refuse_sample(self, key: str, position: int, message: str) -> NoReturn:
        place = _PLACE.search(message)
        if place is not None:
            where = f'at $["{key}"].samples[{position + int(place[1])}]{place[2]}'
            told = lower_first(message[: place.start()])
            raise InputFileError(f"{show_path(self._path)}: {where}: {told}")
        byte = _BYTE.search(message)
        if byte is not None:
            self._at = max(0, self._at + int(byte[1]))
            message = message.replace(byte[0], "")
        self.refuse(lower_first(message))

    def _read(self) -> bool:
        """Read one more piece in place of what was passed over; False at the end."""
        if len(self._data) - self._at > max(MOST_PENDING_BYTES, self._piece_bytes):
            self.refuse(f"expected a sample within {MOST_PENDING_BYTES:,} bytes")
        piece = self._file.read(self._piece_bytes)
        self._offset += self._at
        self._data = self._data[self._at :] + piece
        self._at = 0
        if self._on_read is not None and piece:
            self._on_read(len(piece))
        return bool(piece)
