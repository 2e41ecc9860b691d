"""The question for a path: what is wrong stays below the field, what is right is answered with."""

from pathlib import Path

from tests.tui.looks import shown_text
from vramscope.engine.errors import InputFileError, Setting, SettingError
from vramscope.tui.screens.dialogs import Answer, PathPrompt
from vramscope.tui.screens.terminal_app import TerminalApp
from vramscope.tui.terminal.abilities import TerminalAbilities

from ..inspect.test_inspect import until


def read(text: str) -> Path:
    if "--" in text:
        raise SettingError(Setting("--seq", "seq_length"), " 0: expected 1 or more")
    if text == "no-such":
        raise InputFileError("no-such: cannot be read: no such file or directory")
    return Path(text)


async def test_what_is_wrong_is_told_below_the_field_and_what_is_right_is_answered() -> None:
    app = TerminalApp(TerminalAbilities(), driver_class=None)
    answers: list[Answer[Path] | None] = []
    async with app.run_test(size=(80, 24)) as pilot:
        app.push_screen(PathPrompt("Sweep", read, text="no", hint="a folder"), answers.append)
        await pilot.pause()
        assert "a folder; Esc cancels" in shown_text(app)
        await pilot.press("end", *"-such", "enter")
        await until(pilot, lambda: "no-such: cannot be read" in shown_text(app))
        await pilot.press("x")
        await until(pilot, lambda: "no-such: cannot be read" not in shown_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: answers)
        app.push_screen(PathPrompt("Sweep", read), answers.append)
        await pilot.pause()
        await pilot.press("enter", "escape")
        await until(pilot, lambda: len(answers) == 2)
    assert answers == [Answer("no-suchx", Path("no-suchx")), None]


async def test_settings_are_named_by_the_flags_that_are_typed_there() -> None:
    app = TerminalApp(TerminalAbilities(), driver_class=None)
    async with app.run_test(size=(80, 24)) as pilot:
        app.push_screen(PathPrompt("Plan", read, text="gpt2 --seq 0"))
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: "--seq 0: expected 1 or more" in shown_text(app))
