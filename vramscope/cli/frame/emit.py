"""Prints text, JSON and errors, without control sequences that could steer the terminal."""

import os
import shutil
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO, NoReturn, TextIO, cast

from vramscope.engine.errors import UsageError
from vramscope.engine.text import (
    escape_lines,
    fit_to_reader,
    make_ascii,
    make_printable,
    make_printable_lines,
    shows_unicode,
)

if TYPE_CHECKING:
    import msgspec

    from vramscope.engine.settings import Settings
    from vramscope.exporters.annotations import Annotation
    from vramscope.exporters.text import TableStyle

LEAST_WIDTH = 20
# Begins a line of progress, which overwrites the one before.
CLEAR_LINE = "\r\x1b[K"
_PLAIN_BYTES = bytes([10, *range(32, 127)])
_COLORLESS_TERMINALS = ("dumb", "unknown", "")


class PrintableStream:
    """A stream that writes only printable text, in ASCII where its reader has nothing else.

    So no escape sequence in a file name or in a server's answer reaches the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    @cached_property
    def buffer(self) -> "PrintableBytes":
        """The stream of bytes, for text that is encoded already, such as JSON."""
        return PrintableBytes(self.unguarded.buffer)

    def write(self, text: str) -> int:
        self.unguarded.write(fit_to_reader(text, self.unguarded))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.unguarded, name)


class PrintableBytes:
    """A stream of UTF-8 that writes control characters as `\\uXXXX`, which JSON allows."""

    def __init__(self, stream: BinaryIO) -> None:
        self.unguarded = stream
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def write(self, data: bytes) -> int:
        """Write bytes; an incomplete character waits for its next bytes."""
        is_plain = not self._decoder.getstate()[0] and not data.translate(None, _PLAIN_BYTES)
        self.unguarded.write(data if is_plain else escape_lines(self._decoder.decode(data)).encode())
        return len(data)

    def writelines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.unguarded, name)


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Let standard output and standard error write printable text only."""
    streams = sys.stdout, sys.stderr
    try:
        sys.stdout, sys.stderr = (it and cast(TextIO, PrintableStream(it)) for it in streams)
        yield
    finally:
        sys.stdout, sys.stderr = streams


def write_over(text: str) -> None:
    """Overwrite the current line on standard error, in a terminal; ignore a closed stream.

    Args:
        text: A line without an end, so that it can be overwritten; empty to clear the line.
    """
    stream = getattr(sys.stderr, "unguarded", sys.stderr)
    with suppress(OSError):
        stream.write(CLEAR_LINE + fit_to_reader(make_printable(text), stream))
        stream.flush()


def emit(text: str, *, is_ascii: bool | None = None, is_styled: bool = False) -> None:
    """Print text for people on standard output.

    Args:
        is_ascii: Whether to print ASCII only; None to decide by the reader's encoding.
        is_styled: Whether the text has escape sequences of ours, such as colours.
    """
    stream = getattr(sys.stdout, "unguarded", sys.stdout)
    shown = text if is_styled else make_printable_lines(text)
    is_needed = not shows_unicode(stream) if is_ascii is None else is_ascii
    can_encode = (stream.encoding or "ascii").lower().startswith("utf")
    stream.write(make_ascii(shown) if is_needed or not can_encode else shown)
    stream.flush()


def emit_fitted(settings: "Settings", describe: Callable[[int], str]) -> None:
    """Print text for people, as wide as the terminal and in the characters that the settings allow.

    Args:
        describe: Returns the text for a width in columns.
    """
    style = choose_style(settings)
    emit(describe(style.width), is_ascii=style.is_ascii)


def emit_json(*objects: "msgspec.Struct") -> None:
    from vramscope.exporters.json_lines import write_line

    for each in objects:
        write_line(each, sys.stdout.buffer)


def emit_annotations(annotations: "Iterable[Annotation]") -> None:
    """Print annotations of GitHub Actions; files of the checkout are named as it names them."""
    from pathlib import Path

    from vramscope.exporters.annotations import render_annotations

    root = os.environ.get("GITHUB_WORKSPACE")
    sys.stdout.write(render_annotations(annotations, Path(root) if root else Path.cwd()))


def choose_style(settings: "Settings") -> "TableStyle":
    """Return the style of printed tables: fitted to the terminal or COLUMNS, whole into a pipe."""
    from vramscope.exporters.text import TableStyle

    return TableStyle(width=choose_width(), has_color=has_color(settings), is_ascii=is_ascii(settings))


def choose_width() -> int:
    """Return the columns of the terminal, or COLUMNS; in a pipe 80 for sentences and no limit for tables."""
    from vramscope.exporters.text import PipeWidth

    columns = shutil.get_terminal_size(fallback=(0, 0)).columns
    if columns:
        return max(LEAST_WIDTH, columns)
    return 80 if sys.stdout.isatty() else PipeWidth(80)


def has_color(settings: "Settings") -> bool:
    """Return whether to print in colour: as set, else on terminals with colour (NO_COLOR is a setting)."""
    if settings.theme == "mono":
        return False
    if settings.color is not None:
        return settings.color
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in _COLORLESS_TERMINALS


def is_ascii(settings: "Settings") -> bool:
    """Return whether to print ASCII only: as set, else where the reader has nothing else."""
    return settings.ascii if settings.ascii is not None else not shows_unicode(sys.stdout)


def can_draw(settings: "Settings") -> bool:
    """Return whether the terminal can show a screen; if not, it gets text as a pipe does."""
    from vramscope.tui.terminal.abilities import check_terminal

    try:
        check_terminal(settings)
    except UsageError:
        return False
    return True


def complain(sentence: str, *, program: str = "vramscope") -> None:
    """Print a sentence on stderr, in one line that begins with the name of the program."""
    try:
        print(f"{program}: {make_printable(sentence)}", file=sys.stderr, flush=True)
    except OSError:  # stderr is closed
        return


def leave_now(code: int) -> NoReturn:
    """Flush the output and end the process at once, even if threads hang in the driver."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
