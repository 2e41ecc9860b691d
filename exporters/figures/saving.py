"""Figures of matplotlib into the one file a person named, in the format that its name says."""

from pathlib import Path

from ...engine.errors import OutputFileError, UsageError
from ...engine.output_file import write_whole
from ...engine.readers.input_file import show_path
from .sweep_page import SweepFormat, SweepPage

_FORMATS: dict[str, SweepFormat] = {".pdf": "pdf", ".png": "png", ".svg": "svg"}


def find_format(flag: str, path: Path) -> SweepFormat:
    """Return the format that a file's name says.

    Args:
        flag: Whose value it is.
        path: The file.

    Raises:
        UsageError: The name ends otherwise.
    """
    if path.suffix.lower() not in _FORMATS:
        raise UsageError(f"{flag} {path}: expected a name that ends in {', '.join(_FORMATS)}")
    return _FORMATS[path.suffix.lower()]


def save_figure(page: SweepPage, path: Path, kind: SweepFormat) -> None:
    """Write a figure.

    Raises:
        OutputFileError: The folder is missing or cannot be written to.
    """
    if not path.parent.is_dir():
        raise OutputFileError(f"{show_path(path.parent)}: no such folder to write a figure to; make it first")
    write_whole(page.render(kind), path)
