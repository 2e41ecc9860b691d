"""Contrast of colours, as the Web Content Accessibility Guidelines 2.2 define it."""

Colour = tuple[float, float, float]
"""Red, green and blue of sRGB, each from 0 to 1."""
_BLACK, _WHITE = "#000000", "#ffffff"


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
