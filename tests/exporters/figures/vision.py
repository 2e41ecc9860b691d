"""How far apart two colours are, seen with any kind of colour vision."""

from vramscope.exporters.figures.style import Colour

Matrix = tuple[tuple[float, float, float], tuple[float, float, float], tuple[float, float, float]]

NORMAL: Matrix = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency"
# (IEEE TVCG 15(6), 2009), severity 1.0; they apply to linear RGB.
PROTANOPIA: Matrix = (
    (0.152286, 1.052583, -0.204868),
    (0.114503, 0.786281, 0.099216),
    (-0.003882, -0.048116, 1.051998),
)
DEUTERANOPIA: Matrix = (
    (0.367322, 0.860646, -0.227968),
    (0.280085, 0.672501, 0.047413),
    (-0.011820, 0.042940, 0.968881),
)
TRITANOPIA: Matrix = (
    (1.255528, -0.076749, -0.178779),
    (-0.078411, 0.930809, 0.147602),
    (0.004733, 0.691367, 0.303900),
)
VISIONS = {
    "normal": NORMAL,
    "protanopia": PROTANOPIA,
    "deuteranopia": DEUTERANOPIA,
    "tritanopia": TRITANOPIA,
}
_SRGB_TO_XYZ: Matrix = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)
_WHITE = (0.95047, 1.0, 1.08883)


def parse_colour(text: str) -> Colour:
    """Return `#rrggbb` as parts from 0 to 1."""
    red, green, blue = (int(text[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue


def _multiply(matrix: Matrix, vector: Colour) -> Colour:
    first, second, third = (sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)
    return first, second, third


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def to_lab(colour: Colour, vision: Matrix = NORMAL) -> Colour:
    """Return what is seen of a colour, in CIELAB under D65."""
    red, green, blue = map(_linear, colour)
    red, green, blue = (min(1.0, max(0.0, part)) for part in _multiply(vision, (red, green, blue)))
    parts = zip(_multiply(_SRGB_TO_XYZ, (red, green, blue)), _WHITE, strict=True)
    x, y, z = (
        t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116
        for t in (value / white for value, white in parts)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def measure_distance(first: str, second: str, vision: Matrix) -> float:
    """Return the CIE 1976 difference of two colours; 2.3 is just noticeable."""
    here, there = to_lab(parse_colour(first), vision), to_lab(parse_colour(second), vision)
    return float(sum((a - b) ** 2 for a, b in zip(here, there, strict=True)) ** 0.5)
