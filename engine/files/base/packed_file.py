"""Bytes of a file of any size, plain or gzip, in chunks of bounded size."""

import codecs
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from ...errors import InputFileError
from ...units import TIB, format_bytes
from .input_file import lower_first, open_input_file, show_path

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


# Read at a time. Memory stays at a few of these, however long the file.
CHUNK_BYTES = 1 << 18
CUT_NOTE = "the compressed file is cut short; the rest is missing"
_SIZE_LIMIT_BYTES = 64 * TIB
_GZIP_MARK = b"\x1f\x8b"
_GZIP_BITS = 31
_PACKED_BYTES = 1 << 16
_CHECKED_MEMBERS = 1000
_LEAST_MEMBER_BYTES = 256
_CHECKED_BYTES = 64 << 20
_MOST_RATIO = 250


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class GzipStream(io.RawIOBase):
    """Unpacks the members of a gzip file, one after the other.

    Refuses what was made to keep us busy: tiny members take a thousand times the time of one, and a single
    byte can become a thousand. No writer of traces or logs makes either.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._packed = b""
        self._member: zlib._Decompress | None = None
        self._members = self._packed_bytes = self._unpacked_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes; empty at the end.

        Raises:
            OSError: It is no gzip, or made of what no writer makes.
            EOFError: It ends within a member.
        """
        while True:
            is_at_end = False
            if not self._packed:
                self._packed = self._raw.read(_PACKED_BYTES)
                self._packed_bytes += len(self._packed)
                is_at_end = not self._packed
            if self._member is None:
                self._packed = self._packed.lstrip(b"\0") if self._members else self._packed  # padding
                if not self._packed:
                    if is_at_end:
                        return b""
                    continue
                self._begin()
            data = self._unpack(size)
            if data:
                return data

    def _begin(self) -> None:
        self._members += 1
        if self._members > _CHECKED_MEMBERS and self._packed_bytes < self._members * _LEAST_MEMBER_BYTES:
            raise OSError(
                f"more than {_CHECKED_MEMBERS:,} gzip members of less than {_LEAST_MEMBER_BYTES} bytes"
            )
        self._member = zlib.decompressobj(_GZIP_BITS)

    def _unpack(self, size: int) -> bytes:
        member = self._member
        assert member is not None  # noqa: S101 - `read` has begun one
        was_empty = not self._packed
        data = member.decompress(self._packed, max(0, size))
        if member.eof:
            self._packed = member.unused_data
            self._member = None
        else:
            self._packed = member.unconsumed_tail
            if was_empty and not data:
                raise EOFError("the last member is cut short")
        self._unpacked_bytes += len(data)
        if self._unpacked_bytes > max(_CHECKED_BYTES, _MOST_RATIO * self._packed_bytes):
            raise OSError(f"unpacks to more than {_MOST_RATIO} times its size")
        return data


class PackedFile:
    """A file that is read once, from its beginning to its end; gzip is known by its first bytes.

    Args:
        on_read: Called before each piece with the share read so far; what it raises ends the reading.
        limit_bytes: A larger file, before it is unpacked, is refused.
    """

    def __init__(
        self,
        path: Path,
        on_read: Callable[[float], None] | None = None,
        *,
        limit_bytes: int = _SIZE_LIMIT_BYTES,
    ) -> None:
        self.path = path
        self._on_read = on_read
        # Compressed data end in the middle, as when their writer was killed.
        self.is_cut = False
        self._stack = ExitStack()
        self._raw, self._size_bytes = self._stack.enter_context(open_input_file(path, limit_bytes))
        mark = self._raw.read(2)
        self._raw.seek(0)
        self._file: _Readable = self._raw
        if mark == _GZIP_MARK:
            self._file = GzipStream(self._raw)

    @property
    def read_share(self) -> float:
        if self._raw.closed or not self._size_bytes:
            return 1.0
        return min(1.0, self._raw.tell() / self._size_bytes)

    def close(self) -> None:
        self._stack.close()

    def read(self, size: int = CHUNK_BYTES) -> bytes:
        """Return the next bytes; empty at the end.

        Raises:
            InputFileError: The compression is damaged.
        """
        if self._on_read is not None:
            self._on_read(self.read_share)
        try:
            return self._file.read(size)
        except EOFError:
            self.is_cut = True
            return b""
        except (OSError, zlib.error) as error:
            self.close()
            reason = lower_first(str(error))
            raise InputFileError(f"{show_path(self.path)}: damaged file: {reason}") from error

    def chunks(self) -> Iterator[bytes]:
        try:
            while data := self.read():
                yield data
        finally:
            self.close()


def read_packed_file(path: Path, limit_bytes: int) -> bytes:
    file = PackedFile(path)
    parts = []
    size_bytes = 0
    for data in file.chunks():
        size_bytes += len(data)
        if size_bytes > limit_bytes:
            file.close()
            raise InputFileError(
                f"{show_path(path)}: more than {format_bytes(limit_bytes)}, too much for this format, "
                "which is read at once; split the file"
            )
        parts.append(data)
    return b"".join(parts)


# Characters. A longer line is no record, and a file without line ends would be read into memory whole.
LONGEST_LINE = 1 << 16
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class LineFile:
    """Lines of a file that is read once, from its beginning to its end.

    Gzip is known by its first bytes, the encoding by a byte order mark.
    """

    def __init__(self, path: Path, *, longest_line: int = LONGEST_LINE) -> None:
        self.path = path
        self._longest_line = longest_line
        # The last line if it has no line end; known once all blocks were read.
        self.unfinished: str | None = None
        self.unfinished_number = 0
        self._file = PackedFile(path)
        self._head = self._file.read()
        self._decoder = self._choose_decoder()

    @property
    def head(self) -> bytes:
        """The first bytes, unpacked; empty once lines are read."""
        return self._head

    @property
    def is_cut(self) -> bool:
        return self._file.is_cut

    @property
    def read_share(self) -> float:
        return self._file.read_share

    def close(self) -> None:
        self._file.close()

    def head_lines(self, count: int = 32) -> list[str]:
        """Return the first lines; they are still read by `blocks`."""
        text = codecs.decode(self._head, self._decoder_name, "replace")
        return [line.rstrip("\r") for line in text.split("\n", count)[:count]]

    def blocks(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of the first line of each block, from 1, and its complete lines.

        Raises:
            InputFileError: A line is too long to be a record, or the compression is damaged.
        """
        number = 1
        rest = ""
        try:
            while data := self._head or self._file.read():
                self._head = b""
                lines = (rest + self._decoder.decode(data)).replace("\r\n", "\n").split("\n")
                rest = lines.pop()
                if len(rest) > self._longest_line:
                    raise InputFileError(
                        f"{show_path(self.path)}: line {number + len(lines)}: "
                        f"longer than {self._longest_line:,} characters; expected one record a line"
                    )
                if lines:
                    yield number, lines
                number += len(lines)
        finally:
            self.close()
        if rest.strip():
            self.unfinished = rest
            self.unfinished_number = number

    def numbered_lines(self) -> Iterator[tuple[int, str]]:
        """Yield every line with its number, from 1; the last one also if it has no line end."""
        for first, lines in self.blocks():
            yield from enumerate(lines, first)
        if self.unfinished is not None:
            yield self.unfinished_number, self.unfinished

    def _choose_decoder(self) -> codecs.IncrementalDecoder:
        self._decoder_name = "utf-8"
        for mark, name in _MARKS:
            if self._head.startswith(mark):
                self._head = self._head[len(mark) :]
                self._decoder_name = name
                break
        return codecs.getincrementaldecoder(self._decoder_name)("replace")
