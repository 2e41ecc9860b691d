"""Lines of a text file of any size: plain or gzip, any usual Unicode, in blocks of bounded size."""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from ..errors import InputFileError
from ..units import TIB
from .input_file import lower_first, open_input_file, show_path

BLOCK_BYTES = 1 << 18
"""Read at a time: what is held is a few of these, however long the file."""
LONGEST_LINE = 1 << 16
"""Characters; a longer line is no record, and a file without line ends would otherwise be held whole."""
_SIZE_LIMIT_BYTES = 64 * TIB
_GZIP_MARK = b"\x1f\x8b"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class LineFile:
    """A file that is read once, from its beginning to its end.

    Args:
        path: A regular file; gzip is known by its first bytes, the encoding by a byte order mark.
        longest_line: Characters past which a line is refused.

    Raises:
        InputFileError: The file is absent, not readable, not a regular file, or no gzip after all.
    """

    def __init__(self, path: Path, *, longest_line: int = LONGEST_LINE) -> None:
        self.path = path
        self._longest_line = longest_line
        self.unfinished: str | None = None
        """The last line where it has no line end; known once all blocks were read."""
        self.unfinished_number = 0
        """Number of that line, counted from 1."""
        self.is_cut = False
        """Whether compressed data end in the middle, as when their writer was killed."""
        self._stack = ExitStack()
        self._raw, self._size_bytes = self._stack.enter_context(open_input_file(path, _SIZE_LIMIT_BYTES))
        mark = self._raw.read(2)
        self._raw.seek(0)
        self._file: _Readable = self._raw
        if mark == _GZIP_MARK:
            self._file = self._stack.enter_context(gzip.GzipFile(fileobj=self._raw))
        self._head = self._read()
        self._decoder = self._choose_decoder()

    @property
    def read_share(self) -> float:
        """Share of the file that was read so far, from 0 to 1."""
        if self._raw.closed or not self._size_bytes:
            return 1.0
        return min(1.0, self._raw.tell() / self._size_bytes)

    def close(self) -> None:
        """Close the file; reading to the end does so too."""
        self._stack.close()

    def head_lines(self, count: int = 32) -> list[str]:
        """Return the first lines, without reading on; what follows them is not lost."""
        text = codecs.decode(self._head, self._decoder_name, "replace")
        return [line.rstrip("\r") for line in text.split("\n", count)[:count]]

    def blocks(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of the first line of each block, counted from 1, and its complete lines.

        Raises:
            InputFileError: A line is too long to be a record, or the compression is damaged.
        """
        number, rest = 1, ""
        try:
            while data := self._head or self._read():
                self._head = b""
                lines = (rest + self._decoder.decode(data)).replace("\r\n", "\n").split("\n")
                rest = lines.pop()
                self._check_length(rest, number + len(lines))
                if lines:
                    yield number, lines
                number += len(lines)
        finally:
            self.close()
        if rest.strip():
            self.unfinished, self.unfinished_number = rest, number

    def _read(self) -> bytes:
        try:
            return self._file.read(BLOCK_BYTES)
        except EOFError:
            self.is_cut = True
            return b""
        except zlib.error as error:
            raise self._explain_damage(error) from error
        except OSError as error:
            raise self._explain_damage(error) from error

    def _explain_damage(self, error: Exception) -> InputFileError:
        self.close()
        reason = lower_first(str(error))
        return InputFileError(f"{show_path(self.path)}: cannot be read on: {reason}; the file is damaged")

    def _choose_decoder(self) -> codecs.IncrementalDecoder:
        self._decoder_name = "utf-8"
        for mark, name in _MARKS:
            if self._head.startswith(mark):
                self._head = self._head[len(mark) :]
                self._decoder_name = name
                break
        return codecs.getincrementaldecoder(self._decoder_name)("replace")

    def _check_length(self, line: str, number: int) -> None:
        if len(line) > self._longest_line:
            raise InputFileError(
                f"{show_path(self.path)}: line {number}: longer than {self._longest_line:,} characters; "
                "expected one record a line"
            )
