"""What every test of the screens gets: a time zone of its own, and pictures that no slow machine changes."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.css.types import CSSLocation
from textual.geometry import Size
from textual.pilot import Pilot

from vramscope.tui.screens.terminal_app import TerminalApp

PICTURE_SIZE = (120, 32)
TEXT_SIZES = ((80, 24), (200, 50))


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

    parsed: dict[tuple[object, ...], tuple[list[RuleSet], dict[str, list[RuleSet]]]] = {}
    parse = Stylesheet.parse

    def find_parsed(self: Stylesheet) -> None:
        key = (frozenset(self._variables.items()), *self.source.items())
        if self._invalid_css or key not in parsed:
            parse(self)
            parsed[key] = self._rules, self.rules_map
        self._rules, self._rules_map = parsed[key]
        self._require_parse = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", find_rules)
        patch.setattr(Stylesheet, "parse", find_parsed)
        patch.setattr(RuleSet, "__hash__", object.__hash__)  # its own is the same, in Python
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


class TextFile(SingleFileSnapshotExtension):
    """The text of a screen in a file of its own."""

    _file_extension = "txt"
    _write_mode = WriteMode.TEXT


@pytest.fixture
def compare_screen(snap_compare: Callable[..., bool], snapshot: SnapshotAssertion) -> Callable[..., None]:
    """Compare a screen at three sizes, in one run: text at 80x24 and 200x50, a picture at 120x32."""
    texts = snapshot.use_extension(TextFile)

    def compare(
        app: TerminalApp,
        run_before: Callable[[Pilot[None]], Awaitable[None]] | None = None,
        *,
        keys_at_each_size: Sequence[str] = (),
    ) -> None:
        drawn: dict[str, str] = {}

        async def draw_other_sizes(pilot: Pilot[None]) -> None:
            await pilot.pause()
            if run_before is not None:
                await run_before(pilot)
            for width, height in (*TEXT_SIZES, PICTURE_SIZE):
                await pilot.resize_terminal(width, height)
                async with asyncio.timeout(60):
                    while pilot.app.screen._compositor.size != Size(width, height):
                        await pilot.pause()
                await pilot.press(*keys_at_each_size)
                await pilot.pause()
                strips = pilot.app.screen._compositor.render_strips()
                drawn[f"{width}x{height}"] = "".join(f"{strip.text.rstrip()}\n" for strip in strips)

        is_alike = snap_compare(app, terminal_size=PICTURE_SIZE, run_before=draw_other_sizes)
        for width, height in TEXT_SIZES:
            name = f"{width}x{height}"
            assert drawn[name] == texts(name=name)
        assert is_alike

    return compare
