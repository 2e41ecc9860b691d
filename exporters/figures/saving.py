"""Figures of matplotlib into the one file a person named, in the format that its name says."""

from pathlib import Path

from ...engine.errors import OutputFileError
from ...engine.files.base.input_file import show_path
from ...engine.files.base.output_file import write_whole
from .page import SweepFormat, SweepPage

_FORMATS: dict[str, SweepFormat] = {".pdf": "pdf", ".png": "png", ".svg": "svg"}


def save_figure(page: SweepPage, path: Path) -> None:
    """Write a figure into a file whose name ends in `.pdf`, `.png` or `.svg`.

    Raises:
        OutputFileError: The folder is missing or cannot be written to.
    """
    if not path.parent.is_dir():
        raise OutputFileError(f"{show_path(path.parent)}: no such folder to write a figure to; make it first")
    write_whole(page.render(_FORMATS[path.suffix.lower()]), path)
