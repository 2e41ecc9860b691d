"""Palettes: the colour and the style of every role, dark, light, and without colour.

Risk goes from blue over yellow to orange and vermilion, which people with all common kinds of colour
blindness can distinguish (after M. Okabe and K. Ito, "Color Universal Design"). How full a device is goes
from blue to purple: full is no risk. Every meaning also has a glyph or word.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ...engine.settings import ThemeName
from .spans import ROLES, Role

# Roles that share the colour of another role.
_COLOR_OF = {
    "cursor": "accent",
    "fill-medium": "medium",
    "fill-high": "high",
    "fill-critical": "critical",
}


class Palette(NamedTuple):
    # Of every role that has a colour of its own, and of `background` and `surface`.
    colors: Mapping[str, str]
    # Rich styles of the roles that have one.
    styles: Mapping[str, str]
    is_dark: bool = True

    def color_of(self, role: Role) -> str:
        return self.colors[_COLOR_OF.get(role, role)]

    def style_of(self, role: Role) -> str:
        return self.styles.get(role, "none")


_STYLES = {"strong": "bold", "cursor": "bold reverse", "high": "bold", "critical": "bold"}

# The default: calm blues on near black; only trouble is warm.
DARK = Palette(
    {
        "background": "#0d1117",
        "surface": "#161c25",
        "cursor": "#26364a",
        "text": "#c6d0da",
        "strong": "#ffffff",
        "muted": "#8a97a5",
        "faint": "#566270",
        "accent": "#6cb6ff",
        "fill": "#4f9fe0",
        "band": "#3a6f9e",
        "fill-nearly": "#9f8be8",
        "fill-full": "#d27fcf",
        "activity": "#3fb59b",
        "low": "#7fb8e6",
        "medium": "#e8d25a",
        "high": "#f2a33a",
        "critical": "#ff7a52",
        "unknown": "#8a97a5",
    },
    _STYLES,
    is_dark=True,
)

# For light terminals.
LIGHT = Palette(
    {
        "background": "#fafbfc",
        "surface": "#eef1f4",
        "cursor": "#cfe3f8",
        "text": "#2b333b",
        "strong": "#000000",
        "muted": "#5a6672",
        "faint": "#8b96a2",
        "accent": "#0757a8",
        "fill": "#1f74c4",
        "band": "#6ea6d8",
        "fill-nearly": "#6a4fc0",
        "fill-full": "#9a2f93",
        "activity": "#0b7a63",
        "low": "#0f5fa8",
        "medium": "#755a00",
        "high": "#9a4a00",
        "critical": "#b3260e",
        "unknown": "#5a6672",
    },
    _STYLES,
    is_dark=False,
)

# Text at a contrast of 7:1 or more (WCAG 2.2, level AAA).
HIGH_CONTRAST = Palette(
    {
        "background": "#000000",
        "surface": "#000000",
        "cursor": "#003f8a",
        "text": "#ffffff",
        "strong": "#ffffff",
        "muted": "#d6d6d6",
        "faint": "#9a9a9a",
        "accent": "#7fd0ff",
        "fill": "#3fb4ff",
        "band": "#9fcbe8",
        "fill-nearly": "#b9a6ff",
        "fill-full": "#f09cec",
        "activity": "#5fe0c0",
        "low": "#9fd8ff",
        "medium": "#ffee33",
        "high": "#ffb733",
        "critical": "#ff9980",
        "unknown": "#d6d6d6",
    },
    {**_STYLES, "critical": "bold reverse"},
    is_dark=True,
)

# The terminal's own two colours; bold, underline, dim and reverse carry what colour carried.
MONO = Palette(
    dict.fromkeys((*ROLES, "background", "surface"), "ansi_default"),
    {
        "strong": "bold",
        "faint": "dim",
        "band": "dim",
        "accent": "bold",
        "cursor": "bold reverse",
        "medium": "bold",
        "high": "bold underline",
        "critical": "bold reverse",
    },
)

PALETTES: dict[ThemeName, Palette] = {
    "dark": DARK,
    "light": LIGHT,
    "high-contrast": HIGH_CONTRAST,
    "mono": MONO,
}
