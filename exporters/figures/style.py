"""The look of all figures: colours, line styles, sizes. Defined here once, and checked by tests.

Blue and vermilion are of the palette of Okabe and Ito (Color Universal Design, 2008); every line has a
contrast of at least 3:1 with white (WCAG 2.2, 1.4.11). The heat map is cividis (Nuñez, Anderton and Renslow,
2018). No meaning is carried by colour alone: lines differ in their dashes, findings in their shape.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...engine.errors import OutputFileError
from ...engine.files.base.input_file import show_path
from ...engine.files.base.output_file import write_whole
from ...engine.text import make_printable
from .model import FigureClock, FigureFormat, make_time_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType


WIDTH_IN = 7.0
"""Width of every figure, exactly: the text width of a page."""
HEIGHT_IN = 3.4
DOTS_PER_INCH = 160
PAPER = "#ffffff"
INK = "#1a1a1a"
FAINT = "#d9d9d9"
UNMEASURED_INK = "#767676"
HEAT_MAP = "cividis"


class LineStyle(NamedTuple):
    colour: str
    dashes: str | tuple[float, tuple[float, ...]] = "solid"
    width_pt: float = 1.4


LINES = {
    "allocated": LineStyle("#0072b2"),
    "reserved": LineStyle("#d55e00", (0, (6, 2))),
    "used": LineStyle("#767676", (0, (1.5, 1.5))),
    "capacity": LineStyle(INK, (0, (8, 3, 1.5, 3)), 1.0),
    "fragmentation": LineStyle("#0072b2"),
    "external": LineStyle("#d55e00", (0, (6, 2))),
    "internal": LineStyle("#767676", (0, (1.5, 1.5))),
    "A": LineStyle("#0072b2"),
    "B": LineStyle("#d55e00", (0, (6, 2))),
    "B - A": LineStyle(INK, "solid", 1.0),
}
"""By what they show; `A` and `B` are two runs."""


class MarkStyle(NamedTuple):
    colour: str
    shape: str


OTHER = ""
MARKS = {
    "oom_met": MarkStyle("#8a0f3c", "X"),
    "oom": MarkStyle("#d55e00", "^"),
    "leak": MarkStyle("#0072b2", "D"),
    "host_leak": MarkStyle("#0072b2", "d"),
    "fragmentation": MarkStyle("#767676", "s"),
    "retries": MarkStyle("#767676", "v"),
    OTHER: MarkStyle("#767676", "o"),
}
"""By kind of finding: an error that was met, a forecast of one and a leak differ in colour, all in shape."""

RC: "dict[RcKeyType, object]" = {
    "font.family": ["DejaVu Sans"],
    "font.size": 8.0,
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "axes.labelsize": 8.0,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "hatch.linewidth": 0.6,
    "hatch.color": UNMEASURED_INK,
    # Type 42 fonts are outlines that every press takes, and can be searched.
    "pdf.fonttype": 42,
    "svg.hashsalt": "vramscope",
    "path.simplify": False,
    "axes.unicode_minus": False,
}


# Contrast of colours, as the Web Content Accessibility Guidelines 2.2 define it.

Colour = tuple[float, float, float]
"""Red, green and blue of sRGB, each from 0 to 1."""
_BLACK = "#000000"
_WHITE = "#ffffff"


def measure_luminance(colour: Colour) -> float:
    """Return the relative luminance, from 0 for black to 1 for white (WCAG 2.2, relative luminance)."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def measure_contrast(first: Colour, second: Colour) -> float:
    """Return the contrast ratio of two colours, from 1 to 21 (WCAG 2.2, contrast ratio)."""
    darker, lighter = sorted((measure_luminance(first), measure_luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def choose_ink(background: Colour) -> str:
    """Return black or white, whichever stands out more; the contrast is 4.5 at least on any background."""
    black = measure_contrast(background, (0, 0, 0))
    white = measure_contrast(background, (1, 1, 1))
    return _BLACK if black >= white else _WHITE


# One figure from empty page to files: always the same size, the same bytes, and whole files or none.

_METADATA: dict[FigureFormat, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    "svg": {"Creator": None, "Date": None},
}
"""What would differ from day to day and from version to version, left out."""


@contextmanager
def open_page(height_in: float = HEIGHT_IN) -> "Iterator[Figure]":
    """Give an empty figure in the house's style, independent of matplotlib's own settings.

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
        raise OutputFileError(
            f"{show_path(path.parent)}: no such folder to write figures to; create it first"
        )
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


# What frames every figure: title, axis of time, and a plain sentence where there is nothing to draw.

_MOST_TITLE = 100


def title_axes(axes: "Axes", title: str, subtitle: str) -> None:
    """Write the title, and under it the origin of the values."""
    axes.set_title(title, fontweight="bold", color=INK, pad=16 if subtitle else 6)
    if subtitle:
        short = subtitle if len(subtitle) <= _MOST_TITLE else f"{subtitle[: _MOST_TITLE - 1]}…"
        axes.annotate(
            short,
            (0, 1),
            xytext=(0, 6),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=7,
            color=INK,
            annotation_clip=False,
        )


def frame_time(axes: "Axes", start_s: float, end_s: float, clock: FigureClock) -> None:
    if end_s <= start_s:
        start_s = start_s - 0.5
        end_s = end_s + 0.5
    axes.set_xlim(start_s, end_s)
    axis = make_time_axis(start_s, end_s, clock)
    axes.set_xticks(axis.ticks_s, axis.labels)
    axes.set_xlabel(axis.title)


def say_unmeasured(axes: "Axes", reason: str) -> None:
    """Write where a curve would be that there is none, and why."""
    axes.set_axis_off()
    axes.text(
        0.5,
        0.5,
        "not measured" + (f"\n{reason}" if reason else ""),
        ha="center",
        va="center",
        color=UNMEASURED_INK,
        fontsize=11,
        transform=axes.transAxes,
        wrap=True,
    )
