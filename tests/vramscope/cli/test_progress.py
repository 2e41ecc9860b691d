"""The line that says how far a verb is: what it shows in a terminal, in a file, and when it is gone."""

import io
import threading

import pytest

from vramscope.cli.frame import progress
from vramscope.cli.frame.progress import ProgressLine


class Screen(io.StringIO):
    """Standard error as a terminal, which counts what is written."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self.has_seconds = threading.Event()

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        if text.endswith(" s"):
            self.has_seconds.set()
        return super().write(text)


def watch(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool = True) -> Screen:
    """Put a screen in the place of standard error, which pytest changes between a fixture and its test."""
    made = Screen(is_terminal=is_terminal)
    monkeypatch.setattr("sys.stderr", made)
    if is_terminal:
        monkeypatch.setattr(progress, "QUIET_S", 0.0)
    return made


def test_work_without_reports_counts_its_seconds_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    monkeypatch.setattr(progress, "_TICK_S", 0.01)
    with ProgressLine("vramscope phases", "phases"):
        assert screen.has_seconds.wait(30)
    lines = screen.getvalue().split("\r\x1b[K")
    assert lines[1].startswith("vramscope phases: working, ")
    assert lines[-1] == ""


def test_counts_come_with_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    with ProgressLine("vramscope phases", "phases") as line:
        line.show_count(3, 12, "Backward Pass 1.2 GiB, peak 3.4 GiB")
    shown = screen.getvalue()
    assert "vramscope phases: 3 of 12 phases, Backward Pass 1.2 GiB, peak 3.4 GiB" in shown


def test_a_file_gets_no_line_within_the_first_minute_unless_each_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = watch(monkeypatch, is_terminal=False)
    with ProgressLine("vramscope export") as line:
        line.show_share(0.5, 1000)
    assert log.getvalue() == ""
    with ProgressLine("vramscope heatmap", "figures drawn", is_eager=True) as line:
        line.show_count(1, 2)
    assert log.getvalue() == "vramscope heatmap: [############............] 1 of 2 figures drawn\n"
