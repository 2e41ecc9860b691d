"""A figure that carries the settings it was drawn under: the same wherever it is saved."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from os import PathLike
from typing import IO, TYPE_CHECKING, Literal

from .page_style import RC, SweepStyle

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = object  # matplotlib loads when a figure is drawn

SweepFormat = Literal["png", "pdf", "svg"]
_SHOWN_DPI = 160
_METADATA: dict[SweepFormat, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    "svg": {"Creator": None, "Date": None},
}
"""What would differ from day to day and from version to version, left out."""


@contextmanager
def hold_settings(style: SweepStyle) -> Iterator[None]:
    """Put the settings of a style in place of those of this process, for a while."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(RC[style])
        yield


class SweepPage(Figure):
    """A heat map of a sweep; made by `open_sweep_page`, where it becomes a figure of matplotlib.

    Args:
        style: Its look.
        size_in: Width and height.
        dpi: Dots per inch of a file of dots.
    """

    def __init__(self, style: SweepStyle, size_in: tuple[float, float], dpi: int) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        self._style: SweepStyle = style
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

    def render(self, kind: SweepFormat) -> bytes:
        """Return the file in a format; the same bytes every time."""
        return self._write(kind, self._saved_dpi)

    def _repr_png_(self) -> bytes:
        """Return what a notebook shows."""
        return self._write("png", _SHOWN_DPI)

    def _write(self, kind: SweepFormat, dpi: int) -> bytes:
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


def open_sweep_page(style: SweepStyle, size_in: tuple[float, float], dpi: int) -> SweepPage:
    """Return an empty page.

    Args:
        style: Its look.
        size_in: Width and height.
        dpi: Dots per inch of a file of dots.
    """
    from matplotlib.figure import Figure

    class SweepFigure(SweepPage, Figure):
        """A heat map of a sweep, as a figure of matplotlib."""

    return SweepFigure(style, size_in, dpi)


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
