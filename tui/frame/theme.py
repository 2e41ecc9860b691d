"""Themes: how every role of `tui/draw/spans.py` looks, dark, light, and without colour.

Colours go from blue over yellow to orange and vermilion, which people with all common kinds of colour
blindness can distinguish (after M. Okabe and K. Ito, "Color Universal Design"); every meaning also has a
glyph or word.
"""

from functools import cache
from typing import TYPE_CHECKING, TypeVar, get_args

from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from ..draw.spans import Role

if TYPE_CHECKING:
    from textual.app import App
    from textual.widget import Widget

ReturnT = TypeVar("ReturnT")

# In the order of its definition.
ROLES: tuple[Role, ...] = get_args(Role)

DEFAULT_THEME = "vramscope-dark"


# Roles that share the colour of another role.
_COLOR_OF = {
    "cursor": "accent",
    "fill-medium": "medium",
    "fill-high": "high",
    "fill-critical": "critical",
}


def _variables(colors: dict[str, str], styles: dict[str, str]) -> dict[str, str]:
    """Return the theme variables `$role-…` and `$role-…-style` of every role."""
    variables = {f"role-{role}": colors[_COLOR_OF.get(role, role)] for role in ROLES}
    variables.update({f"role-{role}-style": styles.get(role, "none") for role in ROLES})
    return variables


def _make_theme(name: str, colors: dict[str, str], styles: dict[str, str], *, is_dark: bool) -> Theme:
    """Return a theme in true colour; its chrome uses the roles' own colours."""
    chrome = {
        "footer-background": colors["surface"],
        "footer-item-background": colors["surface"],
        "footer-key-background": colors["surface"],
        "footer-description-background": colors["surface"],
        "footer-key-foreground": colors["accent"],
        "footer-description-foreground": colors["muted"],
        "block-cursor-background": colors["cursor"],
        "block-cursor-foreground": colors["strong"],
        "block-cursor-text-style": "none",
        "border": colors["accent"],
        "border-blurred": colors["faint"],
        "scrollbar": colors["faint"],
        "scrollbar-hover": colors["muted"],
        "scrollbar-active": colors["accent"],
        "scrollbar-background": colors["background"],
        "scrollbar-background-hover": colors["background"],
        "scrollbar-background-active": colors["background"],
        "scrollbar-corner-color": colors["background"],
    }
    return Theme(
        name=name,
        primary=colors["accent"],
        secondary=colors["fill"],
        accent=colors["accent"],
        warning=colors["medium"],
        error=colors["critical"],
        success=colors["low"],
        foreground=colors["text"],
        background=colors["background"],
        surface=colors["surface"],
        panel=colors["surface"],
        dark=is_dark,
        variables={**chrome, **_variables(colors, styles)},
    )


_STYLES = {"strong": "bold", "cursor": "bold reverse", "high": "bold", "critical": "bold"}

# The default: calm blues on near black; only trouble is warm.
DARK = _make_theme(
    "vramscope-dark",
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
LIGHT = _make_theme(
    "vramscope-light",
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
HIGH_CONTRAST = _make_theme(
    "vramscope-high-contrast",
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
        "low": "#9fd8ff",
        "medium": "#ffee33",
        "high": "#ffb733",
        "critical": "#ff9980",
        "unknown": "#d6d6d6",
    },
    {**_STYLES, "critical": "bold reverse"},
    is_dark=True,
)

_MONO_STYLES = {
    "strong": "bold",
    "faint": "dim",
    "band": "dim",
    "accent": "bold",
    "cursor": "bold reverse",
    "medium": "bold",
    "high": "bold underline",
    "critical": "bold reverse",
}

# The terminal's own two colours; bold, underline, dim and reverse carry what colour carried.
MONO = Theme(
    name="vramscope-mono",
    ansi=True,
    primary="ansi_default",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    variables={
        **_variables(dict.fromkeys(ROLES, "ansi_default"), _MONO_STYLES),
        "ansi-background": "ansi_default",
        "ansi-foreground": "ansi_default",
        "block-cursor-foreground": "ansi_default",
        "block-cursor-background": "ansi_default",
        "block-cursor-text-style": "bold reverse",
        "border": "ansi_default",
        "border-blurred": "ansi_default",
        "footer-key-foreground": "ansi_default",
        "link-color": "ansi_default",
        "link-background-hover": "ansi_default",
        "link-color-hover": "ansi_default",
        "link-style-hover": "bold reverse",
        "scrollbar": "ansi_default",
        "scrollbar-hover": "ansi_default",
        "scrollbar-active": "ansi_default",
        "scrollbar-background": "ansi_default",
        "scrollbar-background-hover": "ansi_default",
        "scrollbar-background-active": "ansi_default",
        "input-selection-background": "ansi_default",
        "screen-selection-background": "ansi_default",
        "screen-selection-foreground": "ansi_default",
    },
)

# In the order in which a key steps through them.
THEMES = (DARK, LIGHT, HIGH_CONTRAST, MONO)


def register_themes(app: "App[ReturnT]") -> None:
    for theme in THEMES:
        app.register_theme(theme)


def default_variables() -> dict[str, str]:
    """Return values for `App.get_theme_variable_defaults`, so that Textual's own themes work too."""
    return {name: value for name, value in DARK.variables.items() if name.startswith("role-")}


def find_look(app: "App[ReturnT]", role: Role) -> Style:
    """Return how a role looks in the theme of an application: colour and style, without a background.

    Component classes would give the same, but each costs every widget that has it a pass of the style sheet.
    """
    variables = app.current_theme.variables
    name = f"role-{role}"
    return _make_look(
        variables.get(name, DARK.variables[name]),
        variables.get(f"{name}-style", DARK.variables[f"{name}-style"]),
    )


def find_looks(widget: "Widget") -> dict[Role, Style]:
    """Return how every role looks on a widget, with the widget's own background."""
    own = widget.rich_style
    return {role: own + find_look(widget.app, role) for role in ROLES}


@cache
def _make_look(color: str, text_style: str) -> Style:
    return Style(color=Color.parse(color).rich_color) + Style.parse(text_style)


def role_rules(prefix: str) -> str:
    """Return CSS rules for component classes `PREFIX--ROLE`, to put inside a widget's own."""
    return "\n".join(
        f"& > .{prefix}--{role} {{ color: $role-{role}; text-style: $role-{role}-style; }}" for role in ROLES
    )
