"""JSON lines: one object a line, numbers as numbers, flushed; no byte that steers a terminal."""

from pathlib import Path
from typing import BinaryIO

import msgspec

from ..engine.files.base.output_file import write_whole
from ..engine.text import escape_json

_ENCODER = msgspec.json.Encoder()


def encode_line(value: msgspec.Struct) -> bytes:
    """Return a struct as one line of JSON.

    A number that JSON does not know (infinity, not-a-number) becomes null. Bytes of a foreign command
    line that were no UTF-8 become the replacement character.
    """
    try:
        data = _ENCODER.encode(value)
    except UnicodeEncodeError:
        data = _ENCODER.encode(_replace_surrogates(msgspec.to_builtins(value)))
    return escape_json(data) + b"\n"


def write_line(value: msgspec.Struct, stream: BinaryIO) -> None:
    """Write a struct as one line of JSON and flush, so that a reader of a pipe sees it at once."""
    stream.write(encode_line(value))
    stream.flush()


def _replace_surrogates(value: object) -> object:
    """Return the same tree of built-in values with text that UTF-8 can hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {name: _replace_surrogates(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_surrogates(part) for part in value]
    return value


# Reports as JSON: two spaces deep, not-a-number as null, and on disk whole or not at all.


def encode_report(report: msgspec.Struct) -> bytes:
    """Return a report as JSON that people can read, in UTF-8 with a newline at its end."""
    return msgspec.json.format(encode_line(report), indent=2) + b"\n"


def write_report(report: msgspec.Struct, path: Path) -> None:
    """Write a report to a file, which holds the old content or the new at any moment.

    Raises:
        OutputFileError: It cannot be written.
    """
    write_whole(encode_report(report), path)
