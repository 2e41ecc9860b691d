"""One figure from empty page to files: always the same size, the same bytes, and whole files or none."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from ...engine.errors import OutputFileError
from ...engine.files.base.input_file import show_path
from ...engine.files.base.output_file import write_whole
from ...engine.text import make_printable
from .model import FigureFormat
from .style import DOTS_PER_INCH, HEIGHT_IN, RC, WIDTH_IN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_METADATA: dict[FigureFormat, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    "svg": {"Creator": None, "Date": None},
}
"""What would differ from day to day and from version to version, left out."""


@contextmanager
def open_page(height_in: float = HEIGHT_IN) -> "Iterator[Figure]":
    """Give an empty figure in the house's style, whatever matplotlib's own settings are here.

    Drawing and saving belong inside: matplotlib asks for its settings until the end.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(RC)
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def save_page(figure: "Figure", folder: Path, name: str, formats: Sequence[FigureFormat]) -> list[Path]:
    """Write a figure in some formats and return the files.

    Raises:
        OutputFileError: The folder is missing or cannot be written to.
    """
    paths = [folder / f"{name}.{kind}" for kind in formats]
    for path in paths:
        save_file(figure, path)
    return paths


def save_file(figure: "Figure", path: Path) -> None:
    """Write a figure into a file whose name ends in `.png`, `.pdf` or `.svg`.

    Raises:
        OutputFileError: The folder is missing or cannot be written to.
    """
    if not path.parent.is_dir():
        raise OutputFileError(f"{show_path(path.parent)}: no such folder to write figures to; make it first")
    kind = next(each for each in _METADATA if path.suffix.lower() == f".{each}")
    buffer = BytesIO()
    figure.savefig(buffer, format=kind, dpi=DOTS_PER_INCH, metadata=_METADATA[kind])
    write_whole(buffer.getvalue(), path)


def name_for_file(device: str) -> str:
    """Return a device's label as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", device)[:64] or "_"


def show_text(text: str) -> str:
    """Return text of others as a figure may show it: printable, on one line, no formula of TeX."""
    plain = "".join(each if ord(each) < 0x2E80 else "?" for each in make_printable(text))
    return plain.replace("$", r"\$")
