"""Reports as JSON: two spaces deep, not-a-number as null, and on disk whole or not at all."""

from pathlib import Path

import msgspec

from ...engine.files.base.output_file import write_whole
from ..json_lines import encode_line


def encode_report(report: msgspec.Struct) -> bytes:
    """Return a report as JSON that people can read, in UTF-8 with a newline at its end."""
    return msgspec.json.format(encode_line(report), indent=2) + b"\n"


def write_report(report: msgspec.Struct, path: Path) -> None:
    """Write a report to a file, which holds the old content or the new at any moment.

    Raises:
        OutputFileError: It cannot be written.
    """
    write_whole(encode_report(report), path)
