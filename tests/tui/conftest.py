"""What every test of the screens gets: a time zone of its own, and pictures that no slow machine changes."""

import time
from collections.abc import Callable, Iterator

import pytest

from vramscope.tui.terminal_app import TerminalApp


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Show times of day in UTC wherever the test runs."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def snap_compare(snap_compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Compare pictures; what is told over a screen stays until its picture is taken, however late."""
    monkeypatch.setattr(TerminalApp, "NOTIFICATION_TIMEOUT", 600)
    return snap_compare
