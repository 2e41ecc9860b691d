"""Themes: how Textual shows the roles of `tui/draw/spans.py` in each palette."""

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.strip import Strip
from textual.theme import Theme

from ..draw import palettes
from ..draw.palettes import Palette
from ..draw.spans import ROLES, Role, Span

if TYPE_CHECKING:
    from textual.app import App
    from textual.widget import Widget

ReturnT = TypeVar("ReturnT")


def _variables(palette: Palette) -> dict[str, str]:
    """Return the theme variables `$role-…` and `$role-…-style` of every role."""
    variables = {f"role-{role}": palette.color_of(role) for role in ROLES}
    variables.update({f"role-{role}-style": palette.style_of(role) for role in ROLES})
    return variables


def _make_theme(name: str, palette: Palette) -> Theme:
    """Return a theme in true colour; its chrome uses the roles' own colours."""
    colors = palette.colors
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
        dark=palette.is_dark,
        variables={**chrome, **_variables(palette)},
    )


# The default: calm blues on near black; only trouble is warm.
DARK = _make_theme("vramscope-dark", palettes.DARK)

# For light terminals.
LIGHT = _make_theme("vramscope-light", palettes.LIGHT)

# Text at a contrast of 7:1 or more (WCAG 2.2, level AAA).
HIGH_CONTRAST = _make_theme("vramscope-high-contrast", palettes.HIGH_CONTRAST)

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
        **_variables(palettes.MONO),
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


def to_strip(line: Iterable[Span], looks: Mapping[Role, Style]) -> Strip:
    """Return a fitted line as a strip; neighbours of one role become one segment."""
    segments: list[Segment] = []
    text = ""
    role = None
    for span_text, span_role in line:
        if span_role == role:
            text += span_text
            continue
        if role is not None:
            segments.append(Segment(text, looks[role]))
        text = span_text
        role = span_role
    if role is not None:
        segments.append(Segment(text, looks[role]))
    return Strip(segments, sum(map(_measure, [segment.text for segment in segments])))


# Most texts of a line are those of the tick before.
_measure = lru_cache(maxsize=2048)(cell_len)
