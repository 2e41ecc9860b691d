"""Lines of a text file of any size: plain or gzip, any usual Unicode, in blocks of bounded size."""

import codecs
from collections.abc import Iterator
from pathlib import Path

from ...errors import InputFileError
from .input_file import show_path
from .packed_file import PackedFile

LONGEST_LINE = 1 << 16
"""Characters; a longer line is no record, and a file without line ends would otherwise be held whole."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


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
        self._file = PackedFile(path)
        self._head = self._file.read()
        self._decoder = self._choose_decoder()

    @property
    def head(self) -> bytes:
        """The first bytes, unpacked, until lines are read."""
        return self._head

    @property
    def is_cut(self) -> bool:
        """Whether compressed data end in the middle, as when their writer was killed."""
        return self._file.is_cut

    @property
    def read_share(self) -> float:
        """Share of the file that was read so far, from 0 to 1."""
        return self._file.read_share

    def close(self) -> None:
        """Close the file; reading to the end does so too."""
        self._file.close()

    def head_lines(self, count: int = 32) -> list[str]:
        """Return the first lines, without reading on; what follows them is not lost."""
        text = codecs.decode(self._head, self._decoder_name, "replace")
        return [line.rstrip("\r") for line in text.split("\n", count)[:count]]

    def blocks(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of the first line of each block, counted from 1, and its complete lines.

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
                self._check_length(rest, number + len(lines))
                if lines:
                    yield number, lines
                number += len(lines)
        finally:
            self.close()
        if rest.strip():
            self.unfinished = rest
            self.unfinished_number = number

    def numbered_lines(self) -> Iterator[tuple[int, str]]:
        """Yield every line with its number, counted from 1; the last one also where it has no line end.

        Raises:
            InputFileError: A line is too long to be a record, or the compression is damaged.
        """
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

    def _check_length(self, line: str, number: int) -> None:
        if len(line) > self._longest_line:
            raise InputFileError(
                f"{show_path(self.path)}: line {number}: longer than {self._longest_line:,} characters; "
                "expected one record a line"
            )
