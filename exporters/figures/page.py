"""Figures for print: one carries the settings it was drawn under, and is the same wherever it is saved."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from ...engine.errors import OutputFileError
from ...engine.files.base.input_file import show_path
from ...engine.files.base.output_file import write_whole
from .style import INK, PAPER

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType


# Sizes are those of USENIX proceedings: columns 3.335 in wide on text of 7 in, nothing smaller than 6 pt.

PageStyle = Literal["usenix", "original"]
"""For a page of two columns, or in the manner of the original figure of a sweep."""
PAGE_STYLES: tuple[PageStyle, ...] = ("usenix", "original")
COLUMN_IN = 3.335
TEXT_IN = 7.0
DPI = 600
LEAST_TEXT_PT = 6.0

_PAGE: "dict[RcKeyType, object]" = {
    # STIX is metric-like to Times and comes with matplotlib: the same figure on every machine.
    "font.family": ["STIXGeneral"],
    "mathtext.fontset": "stix",
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": False,
    "axes.unicode_minus": True,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "vramscope",
    "hatch.linewidth": 0.5,
    "path.simplify": False,
}
RC: "dict[PageStyle, dict[RcKeyType, object]]" = {
    "usenix": _PAGE
    | {
        "font.size": 7.0,
        "axes.titlesize": 7.5,
        "axes.titlelocation": "left",
        "axes.titlepad": 3.0,
        "axes.labelsize": 7.5,
        "axes.labelpad": 1.5,
        "axes.linewidth": 0.5,
        "xtick.labelsize": 7.0,
        "ytick.labelsize": 7.0,
        "xtick.major.size": 0.0,
        "ytick.major.size": 0.0,
        "xtick.major.pad": 2.0,
        "ytick.major.pad": 2.0,
        "legend.fontsize": 6.5,
        "figure.constrained_layout.h_pad": 0.02,
        "figure.constrained_layout.w_pad": 0.01,
    },
    "original": _PAGE
    | {
        "font.size": 9.0,
        "axes.labelsize": 11.0,
        "axes.labelweight": "bold",
        "axes.linewidth": 0.0,
        "xtick.major.size": 0.0,
        "ytick.major.size": 0.0,
        "legend.fontsize": 8.0,
        "hatch.linewidth": 1.2,
    },
}


if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = object  # matplotlib loads when a figure is drawn

PageFormat = Literal["png", "pdf", "svg"]
_SHOWN_DPI = 160
_METADATA: dict[PageFormat, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    "svg": {"Creator": None, "Date": None},
}
"""What would differ from day to day and from version to version, left out."""


@contextmanager
def hold_settings(style: PageStyle) -> Iterator[None]:
    """Put the settings of a style in place of those of this process, for a while."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(RC[style])
        yield


class FigurePage(Figure):
    """A figure for print; made by `open_figure_page`, where it becomes a figure of matplotlib.

    Args:
        dpi: Dots per inch of a file of dots.
    """

    def __init__(self, style: PageStyle, size_in: tuple[float, float], dpi: int) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        self._style: PageStyle = style
        self._saved_dpi = dpi
        super().__init__(figsize=size_in, layout="constrained")
        FigureCanvasAgg(self)

    def savefig(
        self,
        fname: "str | PathLike[str] | IO[bytes]",
        *,
        transparent: bool | None = None,
        **options: object,
    ) -> None:
        """Save it as matplotlib does, under its own settings and at its own resolution."""
        options.setdefault("dpi", self._saved_dpi)
        with hold_settings(self._style):
            super().savefig(fname, transparent=transparent, **options)

    def render(self, kind: PageFormat) -> bytes:
        """Return the file in a format; the same bytes every time."""
        return self._write(kind, self._saved_dpi)

    def _repr_png_(self) -> bytes:
        """Return what a notebook shows."""
        return self._write("png", _SHOWN_DPI)

    def _write(self, kind: PageFormat, dpi: int) -> bytes:
        """Return a file; `savefig` would draw it twice, for it cannot know that the layout is settled."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        buffer = BytesIO()
        shown_dpi = self.dpi
        with hold_settings(self._style):
            self.dpi = dpi
            try:
                _WRITERS[kind](self, buffer)
            finally:
                self.dpi = shown_dpi
                FigureCanvasAgg(self)
        return buffer.getvalue()


def open_figure_page(style: PageStyle, size_in: tuple[float, float], dpi: int) -> FigurePage:
    from matplotlib.figure import Figure

    class PageFigure(FigurePage, Figure):
        """A figure for print, as a figure of matplotlib."""

    return PageFigure(style, size_in, dpi)


def _write_png(page: Figure, file: BytesIO) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(page).print_png(file, metadata=_METADATA["png"])  # type: ignore[no-untyped-call]


def _write_pdf(page: Figure, file: BytesIO) -> None:
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    FigureCanvasPdf(page).print_pdf(file, metadata=_METADATA["pdf"])  # type: ignore[no-untyped-call]


def _write_svg(page: Figure, file: BytesIO) -> None:
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    FigureCanvasSVG(page).print_svg(file, metadata=_METADATA["svg"])  # type: ignore[no-untyped-call]


_WRITERS = {"png": _write_png, "pdf": _write_pdf, "svg": _write_svg}


# Figures of matplotlib into the one file a person named, in the format that its name says.

_FORMATS: dict[str, PageFormat] = {".pdf": "pdf", ".png": "png", ".svg": "svg"}


def save_figure(page: FigurePage, path: Path) -> None:
    """Write a figure into a file whose name ends in `.pdf`, `.png` or `.svg`.

    Raises:
        OutputFileError: The folder is missing or cannot be written to.
    """
    if not path.parent.is_dir():
        raise OutputFileError(
            f"{show_path(path.parent)}: no such folder to write a figure to; create it first"
        )
    write_whole(page.render(_FORMATS[path.suffix.lower()]), path)
