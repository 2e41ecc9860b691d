"""What the terminal can show: read from the environment once, before anything is drawn."""

import os
from collections.abc import Mapping
from typing import Literal

import msgspec

from ...engine.errors import UsageError
from ...engine.settings import Settings, ThemeName
from ...engine.text import name_locale, names_utf8

# `none` leaves bold, dim and reverse.
ColorDepth = Literal["none", "16", "256", "truecolor"]

HEADLESS_ADVICE = "use `vramscope --once` for a table or `vramscope --json` for scripts"
RECORDED_ADVICE = "use `vramscope export FILE --jsonl` for its data or `vramscope profile --input FILE`"

# Terminal families whose fonts have neither braille nor eighth blocks.
_ASCII_TERMINALS = ("linux", "vt", "ansi", "cons25", "sun", "wyse")
_COLORLESS_TERMINALS = ("vt", "sun", "wyse")
_SIXTEEN_COLOR_TERMINALS = ("linux", "ansi", "cons25")


class TerminalAbilities(msgspec.Struct, frozen=True):
    """What may be written to a terminal."""

    is_ascii: bool = False
    color_depth: ColorDepth = "truecolor"
    # Whether the terminal reports a light background.
    has_light_background: bool = False
    # Whether mouse reports do no harm: GNU screen 4.9 delays the Escape key with them.
    has_mouse: bool = True
    # Why only ASCII may be written, in one sentence; empty otherwise.
    reason: str = ""


def check_terminal(settings: Settings, advice: str = HEADLESS_ADVICE) -> TerminalAbilities:
    """Return what the terminal around this process can show; cheap, so call it before anything is started.

    Args:
        advice: Alternative for the error text.

    Raises:
        UsageError: Nothing can be drawn here; the text says what to use instead.
    """
    return read_abilities(
        os.environ,
        is_input_tty=os.isatty(0),
        is_output_tty=os.isatty(1),
        ascii_choice=settings.ascii,
        color_choice=settings.color,
        advice=advice,
    )


def read_abilities(
    env: Mapping[str, str],
    *,
    is_input_tty: bool,
    is_output_tty: bool,
    ascii_choice: bool | None = None,
    color_choice: bool | None = None,
    advice: str = HEADLESS_ADVICE,
) -> TerminalAbilities:
    """Return what the terminal can show.

    Args:
        is_input_tty: Whether standard input is a terminal.
        is_output_tty: Whether standard output is a terminal.
        ascii_choice: The user's choice about ASCII; None to go by the terminal.
        color_choice: The user's choice about colour; None to go by the terminal and NO_COLOR.
        advice: Alternative for the error text.

    Raises:
        UsageError: Nothing can be drawn here; the text says what to use instead.
    """
    _require_terminal(env.get("TERM", ""), is_input_tty, is_output_tty, advice)
    term = env["TERM"].lower()
    reason = (
        _ascii_reason(env, term) if ascii_choice is None else "ASCII was requested" if ascii_choice else ""
    )
    return TerminalAbilities(
        is_ascii=bool(reason),
        color_depth="none" if color_choice is False else _color_depth(env, term, color_choice),
        has_light_background=_has_light_background(env.get("COLORFGBG", "")),
        has_mouse="STY" not in env,
        reason=reason,
    )


def choose_theme(theme: ThemeName | None, abilities: TerminalAbilities) -> ThemeName:
    """Return the look to begin with: the one asked for, or the one that suits the terminal."""
    if abilities.color_depth == "none":
        return "mono"
    return theme or ("light" if abilities.has_light_background else "dark")


def _ascii_reason(env: Mapping[str, str], term: str) -> str:
    if term.startswith(_ASCII_TERMINALS):
        return f"TERM={env['TERM']} has no braille and no block characters"
    if not names_utf8(env):
        return f"the locale {name_locale(env) or 'C'} is not UTF-8"
    return ""


def _require_terminal(term: str, is_input_tty: bool, is_output_tty: bool, advice: str) -> None:
    if not is_output_tty:
        raise UsageError(f"standard output is not a terminal; {advice}")
    if not is_input_tty:
        raise UsageError(f"standard input is not a terminal, so keys cannot be read; {advice}")
    if term.lower() in {"", "dumb", "unknown"}:
        found = f"TERM={term}" if term else "TERM is not set, which"
        raise UsageError(f"{found} cannot move the cursor; {advice}, or set TERM=xterm-256color")


def _color_depth(env: Mapping[str, str], term: str, color_choice: bool | None) -> ColorDepth:
    """Return the colours the terminal shows; see no-color.org for NO_COLOR."""
    if (env.get("NO_COLOR") and color_choice is None) or term.startswith(_COLORLESS_TERMINALS):
        return "none"
    if term.startswith(_SIXTEEN_COLOR_TERMINALS):
        return "16"
    is_gnu_screen = term.startswith("screen") and not env.get("TMUX")
    if env.get("COLORTERM", "").lower() in {"truecolor", "24bit"} and not is_gnu_screen:
        return "truecolor"
    return "truecolor" if term.endswith("-direct") else "256"


def _has_light_background(colors: str) -> bool:
    """Return whether COLORFGBG (`foreground;background`, set by rxvt, Konsole, …) names a light one."""
    background = colors.rsplit(";", 1)[-1]
    return background.isdigit() and (int(background) == 7 or 9 <= int(background) <= 15)
