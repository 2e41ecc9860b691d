"""The look of heat maps of sweeps: what a person chose, and the colours of values, marks and the original.

Blues and PuOr are of ColorBrewer (Brewer, Hatchard and Harrower, 2003); the first grows darker all the way,
in the second the hue shows the sign.
"""

import msgspec

from ..figures.page import DPI, PageStyle

MEMORY_MAP = "Blues"
ERROR_MAP = "PuOr_r"
FRAME_INK = "#000000"
LINE = "#bdbdbd"


class SweepLook(msgspec.Struct, frozen=True):
    """What a person chose for a figure."""

    style: PageStyle = "usenix"
    size_in: tuple[float, float] | None = None
    """Width and height; None for what suits the grid."""
    dpi: int = DPI


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
ORIGINAL_FAILED = "#E8E8E8"
ORIGINAL_ABSENT = "#E5E5E5"
ORIGINAL_RATIO = 3.0
"""Width by height."""
