"""The look of all figures: colours, line styles, sizes. Defined here once, and held to by tests.

Blue and vermilion are of the palette of Okabe and Ito (Color Universal Design, 2008); every line stands out
against white by 3:1 at least (WCAG 2.2, 1.4.11). The heat map is cividis (Nuñez, Anderton and Renslow, 2018).
No meaning is carried by colour alone: lines differ in their dashes, findings in their shape.
"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

WIDTH_IN = 7.0
"""Of every figure, exactly: the text width of a page."""
HEIGHT_IN = 3.4
DOTS_PER_INCH = 160
PAPER = "#ffffff"
INK = "#1a1a1a"
FAINT = "#d9d9d9"
UNMEASURED_INK = "#767676"
HEAT_MAP = "cividis"


class LineStyle(NamedTuple):
    """How a line looks."""

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
    "B less A": LineStyle(INK, "solid", 1.0),
}
"""By what they show; `A` and `B` are two runs."""


class MarkStyle(NamedTuple):
    """How a finding is marked."""

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
