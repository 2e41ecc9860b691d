"""The look of heat maps of sweeps, for a page of two columns and in the manner of the original.

Every state has a texture and a word of its own, so that it is told in black and white too. Sizes are those of
USENIX proceedings: columns 3.335 in wide on text of 7 in, nothing smaller than 6 pt. Blues and PuOr are of
ColorBrewer (Brewer, Hatchard and Harrower, 2003); the first grows darker all the way, of the second the
sign tells the sides apart.
"""

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from ...analyzers.planning.sweep import CellState
from .style import INK, PAPER

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

SweepStyle = Literal["usenix", "original"]
SWEEP_STYLES: tuple[SweepStyle, ...] = ("usenix", "original")
COLUMN_IN = 3.335
TEXT_IN = 7.0
DPI = 600
LEAST_TEXT_PT = 6.0
MEMORY_MAP = "Blues"
ERROR_MAP = "PuOr_r"
FRAME_INK = "#000000"
LINE = "#bdbdbd"


class SweepLook(msgspec.Struct, frozen=True):
    """What a person chose for a figure."""

    style: SweepStyle = "usenix"
    size_in: tuple[float, float] | None = None
    """Width and height; None for what suits the grid."""
    dpi: int = DPI


class Texture(NamedTuple):
    """How a cell without a value looks."""

    face: str
    hatch: str
    ink: str
    word: str
    """In the cell."""
    meaning: str
    """In the key."""


TEXTURES: dict[CellState, Texture] = {
    "oom": Texture("#e8e8e8", "xxxxx", "#5c5c5c", "OOM", "out of memory"),
    "failed": Texture(PAPER, "/////", "#767676", "fail", "failed otherwise, or cause unknown"),
    "invalid": Texture("#d0d0d0", "", INK, "n/a", "not divisible"),
    "running": Texture(PAPER, "-----", "#767676", "…", "started, no result"),
    "not_run": Texture(PAPER, "", INK, "·", "not run"),
    "ok": Texture(PAPER, ".....", "#767676", "?", "ran, memory unknown"),
}
"""By state; `ok` is for what ran without a figure."""

ORIGINAL_COLOURS = (
    "#FFFFFF",
    "#FEE5D9",
    "#FCBBA1",
    "#FC9272",
    "#FB6A4A",
    "#EF3B2C",
    "#CB181D",
    "#99000D",
)
ORIGINAL_FAILED, ORIGINAL_ABSENT = "#E8E8E8", "#E5E5E5"
ORIGINAL_RATIO = 3.0
"""Width by height."""

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
RC: "dict[SweepStyle, dict[RcKeyType, object]]" = {
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
