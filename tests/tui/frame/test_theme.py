"""Text can be read in every theme, and what differs in meaning differs in look."""

import pytest
from rich.color import Color as RichColor
from rich.color import ColorSystem
from textual.app import App
from textual.color import Color
from textual.theme import Theme

from vramscope.tui.draw.spans import ROLES
from vramscope.tui.frame.theme import (
    DARK,
    HIGH_CONTRAST,
    LIGHT,
    MONO,
    THEMES,
    default_variables,
    register_themes,
)

TEXT_ROLES = ("text", "strong", "muted", "accent", "low", "medium", "high", "critical", "unknown")
PICTURE_ROLES = ("faint", "fill", "band", "fill-medium", "fill-high", "fill-critical")
COLORED = [DARK, LIGHT, HIGH_CONTRAST]


def _contrast(theme: Theme, role: str, ground: str | None) -> float:
    """Return the contrast of two colours after WCAG 2.2, success criterion 1.4.3."""
    lights = sorted(map(_luminance, (ground or "", theme.variables[f"role-{role}"])))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(color: str) -> float:
    """Return the relative luminance of a colour after WCAG 2.2."""
    parts = [part / 255 for part in Color.parse(color).rgb]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", COLORED, ids=lambda theme: theme.name)
@pytest.mark.parametrize("role", TEXT_ROLES)
def test_text_is_readable_on_every_ground(theme: Theme, role: str) -> None:
    least = 7.0 if theme is HIGH_CONTRAST else 4.5
    assert _contrast(theme, role, theme.background) >= least
    assert _contrast(theme, role, theme.surface) >= least


@pytest.mark.parametrize("theme", COLORED, ids=lambda theme: theme.name)
def test_a_selected_row_is_readable(theme: Theme) -> None:
    assert _contrast(theme, "strong", theme.variables["block-cursor-background"]) >= 4.5


@pytest.mark.parametrize("theme", COLORED, ids=lambda theme: theme.name)
@pytest.mark.parametrize("role", PICTURE_ROLES)
def test_pictures_stand_out(theme: Theme, role: str) -> None:
    assert _contrast(theme, role, theme.background) >= (2.2 if role in ("faint", "band") else 3.0)


@pytest.mark.parametrize("theme", COLORED, ids=lambda theme: theme.name)
@pytest.mark.parametrize("system", [ColorSystem.STANDARD, ColorSystem.EIGHT_BIT], ids=["16", "256"])
@pytest.mark.parametrize("role", ROLES)
def test_nothing_vanishes_on_a_terminal_of_fewer_colours(
    theme: Theme, system: ColorSystem, role: str
) -> None:
    ground = RichColor.parse(Color.parse(theme.background or "").hex).downgrade(system)
    assert RichColor.parse(theme.variables[f"role-{role}"]).downgrade(system) != ground


def test_mono_writes_no_colour_and_tells_levels_by_attribute() -> None:
    assert {MONO.variables[f"role-{role}"] for role in ROLES} == {"ansi_default"}
    looks = [MONO.variables[f"role-{role}-style"] for role in ("low", "medium", "high", "critical")]
    assert len(set(looks)) == 4


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
async def test_every_theme_can_be_used(theme: Theme) -> None:
    app = App[None]()
    register_themes(app)
    async with app.run_test() as pilot:
        app.theme = theme.name
        await pilot.pause()
        assert app.current_theme.name == theme.name


def test_themes_of_others_get_the_roles_too() -> None:
    assert set(default_variables()) == {f"role-{role}{end}" for role in ROLES for end in ("", "-style")}
