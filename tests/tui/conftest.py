"""What every test of the screens gets: a time zone of its own, and pictures that no slow machine changes."""

import time
from collections.abc import Callable, Iterator

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.css.types import CSSLocation

from vramscope.tui.screens.terminal_app import TerminalApp


@pytest.fixture(autouse=True, scope="session")
def _rules_parsed_once() -> Iterator[None]:
    """Let applications share parsed rules, as one does with itself: hundreds start, with a few themes."""
    known: dict[tuple[object, ...], list[RuleSet]] = {}
    parse_rules = Stylesheet._parse_rules

    def find_rules(
        self: Stylesheet,
        css: str,
        read_from: CSSLocation,
        is_default_rules: bool = False,
        tie_breaker: int = 0,
        scope: str = "",
    ) -> list[RuleSet]:
        what = (css, read_from, is_default_rules, tie_breaker, scope)
        key = (frozenset(self._variables.items()), *what)
        if key not in known:
            known[key] = parse_rules(self, *what)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", find_rules)
        yield


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
