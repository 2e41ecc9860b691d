"""What the terminal can show, read from its environment."""

import pytest

from vramscope.engine.errors import UsageError
from vramscope.tui.terminal.abilities import TerminalAbilities, read_abilities

UTF8 = {"LANG": "en_US.UTF-8"}


def abilities(
    env: dict[str, str], ascii_choice: bool | None = None, color_choice: bool | None = None
) -> TerminalAbilities:
    return read_abilities(
        env, is_input_tty=True, is_output_tty=True, ascii_choice=ascii_choice, color_choice=color_choice
    )


@pytest.mark.parametrize(
    ("env", "is_ascii", "depth"),
    [
        ({**UTF8, "TERM": "xterm-256color"}, False, "256"),
        ({**UTF8, "TERM": "xterm-256color", "COLORTERM": "truecolor"}, False, "truecolor"),
        ({**UTF8, "TERM": "tmux-256color", "TMUX": "/tmp/x"}, False, "256"),
        ({**UTF8, "TERM": "tmux-256color", "TMUX": "/tmp/x", "COLORTERM": "24bit"}, False, "truecolor"),
        ({**UTF8, "TERM": "screen", "STY": "1", "COLORTERM": "truecolor"}, False, "256"),
        ({**UTF8, "TERM": "linux"}, True, "16"),
        ({**UTF8, "TERM": "vt100"}, True, "none"),
        ({**UTF8, "TERM": "xterm", "NO_COLOR": "1"}, False, "none"),
        ({**UTF8, "TERM": "xterm", "NO_COLOR": ""}, False, "256"),
        ({"TERM": "xterm", "LANG": "en_US.ISO-8859-1"}, True, "256"),
        ({"TERM": "xterm", "LC_ALL": "C", "LANG": "en_US.UTF-8"}, True, "256"),
        ({"TERM": "xterm", "LC_ALL": "POSIX"}, True, "256"),
        ({"TERM": "xterm", "LANG": "C", "LC_CTYPE": "C.UTF-8"}, True, "256"),
        ({"TERM": "xterm", "LANG": "en_US.ISO-8859-1", "LC_CTYPE": "C.UTF-8"}, True, "256"),
        ({"TERM": "xterm", "LANG": "de_DE.UTF-8", "LC_CTYPE": "C.UTF-8"}, False, "256"),
        ({"TERM": "xterm", "LC_CTYPE": "C.UTF-8"}, False, "256"),
        ({"TERM": "xterm", "LC_ALL": "de_DE.utf8"}, False, "256"),
        ({"TERM": "xterm"}, False, "256"),
    ],
)
def test_the_environment_decides(env: dict[str, str], is_ascii: bool, depth: str) -> None:
    found = abilities(env)
    assert (found.is_ascii, found.color_depth) == (is_ascii, depth)
    assert bool(found.reason) == is_ascii


def test_the_users_choice_goes_before_the_terminal() -> None:
    assert abilities({**UTF8, "TERM": "xterm-kitty"}, ascii_choice=True).is_ascii
    assert not abilities({"LC_ALL": "C", "TERM": "linux"}, ascii_choice=False).is_ascii
    assert abilities({**UTF8, "TERM": "xterm"}, color_choice=False).color_depth == "none"
    assert abilities({**UTF8, "TERM": "xterm", "NO_COLOR": "1"}, color_choice=True).color_depth == "256"


@pytest.mark.parametrize(
    ("colors", "is_light"),
    [("15;0", False), ("0;15", True), ("0;default;15", True), ("0;7", True), ("7;8", False), ("", False)],
)
def test_a_light_background_is_believed(colors: str, is_light: bool) -> None:
    assert abilities({**UTF8, "TERM": "xterm", "COLORFGBG": colors}).has_light_background is is_light


@pytest.mark.parametrize("term", ["dumb", "", "unknown"])
def test_a_terminal_without_a_cursor_is_refused_with_advice(term: str) -> None:
    with pytest.raises(UsageError, match="vramscope --once"):
        abilities({**UTF8, "TERM": term})


@pytest.mark.parametrize(
    ("is_input_tty", "is_output_tty", "what"), [(True, False, "output"), (False, True, "input")]
)
def test_a_pipe_is_refused_with_advice(is_input_tty: bool, is_output_tty: bool, what: str) -> None:
    with pytest.raises(UsageError, match=f"standard {what} is not a terminal.*--json"):
        read_abilities({**UTF8, "TERM": "xterm"}, is_input_tty=is_input_tty, is_output_tty=is_output_tty)


def test_gnu_screen_holds_escape_back_while_the_mouse_is_listened_to() -> None:
    assert abilities({**UTF8, "TERM": "xterm-256color"}).has_mouse
    assert not abilities({**UTF8, "TERM": "screen", "STY": "77.pts-1.node"}).has_mouse
