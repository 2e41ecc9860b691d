"""What the thrifty compositor sends makes a terminal show exactly what a full redraw would."""

import random
from importlib.metadata import version
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from textual._compositor import CompositorUpdate
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from tests.tui.emulator import Emulator
from vramscope.tui.terminal.compositor import CellRow, CellWriter, ThriftyScreen

STYLES = [
    Style(),
    Style(color="red"),
    Style(color="#102030", bgcolor="#405060"),
    Style(color="#102030", bgcolor="#405060", bold=True),
    Style(bgcolor="#405060", reverse=True, underline=True),
    Style(bold=True),
]
ALPHABET = ["a", "b", " ", "█", "⣿", "漢", "字", "—", "✖", "é", "e\u0301", "ж"]
WIDTH, HEIGHT = 23, 5


def test_textual_is_the_version_whose_private_parts_are_used() -> None:
    assert version("textual") == "8.2.8"


def _row(rng: random.Random, width: int) -> list[Segment]:
    segments: list[Segment] = []
    left = width
    while left:
        text = "".join(rng.choice(ALPHABET) for _ in range(rng.randint(1, 6)))
        cropped = Strip([Segment(text, rng.choice(STYLES))]).crop(0, left)
        segments.extend(cropped)
        left -= cropped.cell_length
    return segments


def _normal(segments: list[Segment]) -> str:
    """Return the text as the emulator keeps it: an accent and its letter are one character."""
    return normalize("NFC", "".join(segment.text for segment in segments))


@given(st.integers(0, 2**32), st.integers(1, WIDTH))
@settings(max_examples=150, deadline=None)
def test_the_difference_of_two_rows_is_the_new_row(seed: int, width: int) -> None:
    rng = random.Random(seed)
    thrifty, full = Emulator(width, 2), Emulator(width, 2)
    shown = CellRow(width)
    for _ in range(6):
        segments = _row(rng, width)
        new = CellRow(width)
        new.put(segments, 0, 0, width, ColorSystem.TRUECOLOR)
        for emulator, old in ((thrifty, shown), (full, CellRow(width))):
            writer = CellWriter(width)
            writer.paint(1, 0, width, old, new)
            emulator.feed(writer.finish())
        assert thrifty.cells() == full.cells()
        assert thrifty.text()[1].rstrip() == _normal(segments).rstrip()
        shown = new


@given(st.integers(0, 2**32), st.data())
@settings(max_examples=150, deadline=None)
def test_changing_a_part_of_a_row_leaves_no_half_of_a_wide_character(seed: int, data: st.DataObject) -> None:
    rng = random.Random(seed)
    x1 = data.draw(st.integers(0, WIDTH - 1))
    x2 = data.draw(st.integers(x1 + 1, WIDTH))
    old, new = CellRow(WIDTH), CellRow(WIDTH)
    old.put(_row(rng, WIDTH), 0, 0, WIDTH, ColorSystem.TRUECOLOR)
    new.texts, new.pens = old.texts.copy(), old.pens.copy()
    new.put(_row(rng, WIDTH), 0, x1, x2, ColorSystem.TRUECOLOR)
    new.mend(x1)
    new.mend(x2)
    thrifty, full = Emulator(WIDTH, 1), Emulator(WIDTH, 1)
    for emulator, steps in ((thrifty, [(CellRow(WIDTH), old), (old, new)]), (full, [(CellRow(WIDTH), new)])):
        for shown, wanted in steps:
            writer = CellWriter(WIDTH)
            writer.paint(0, 0, WIDTH, shown, wanted)
            emulator.feed(writer.finish())
    assert thrifty.cells() == full.cells()


@given(st.integers(0, 2**32), st.integers(0, 4), st.integers(0, WIDTH - 1))
@settings(max_examples=150, deadline=None)
def test_a_strip_put_over_a_similar_one_leaves_the_cells_of_the_whole(seed: int, x: int, x1: int) -> None:
    rng = random.Random(seed)
    x2 = rng.randint(x1 + 1, WIDTH)
    row, whole = CellRow(WIDTH), CellRow(WIDTH)
    for other in (row, whole):
        other.put([Segment("·" * WIDTH)], 0, 0, WIDTH, ColorSystem.TRUECOLOR)
    segments = _row(rng, WIDTH)
    for _ in range(6):
        before = row.copy()
        left, right = row.put_strip(segments, x, x1, x2, ColorSystem.TRUECOLOR)
        whole.put(segments, x, x1, x2, ColorSystem.TRUECOLOR)
        whole.mend(x1)
        whole.mend(x2)
        assert (row.texts, row.pens) == (whole.texts, whole.pens)
        assert (row.texts[:left], row.texts[right:]) == (before.texts[:left], before.texts[right:])
        assert (row.pens[:left], row.pens[right:]) == (before.pens[:left], before.pens[right:])
        # Some segments are replaced by others, maybe of another length; sometimes none.
        at = rng.randrange(len(segments) + 1)
        segments = [*segments[:at], *_row(rng, rng.randint(0, 4)), *segments[at + rng.randint(0, 2) :]]


def test_one_changed_digit_costs_a_move_and_a_digit() -> None:
    old, new = CellRow(40), CellRow(40)
    old.put([Segment("used 61.2 GiB".ljust(40))], 0, 0, 40, ColorSystem.TRUECOLOR)
    new.put([Segment("used 61.3 GiB".ljust(40))], 0, 0, 40, ColorSystem.TRUECOLOR)
    writer = CellWriter(40)
    writer.paint(6, 0, 40, old, new)
    assert writer.finish() == "\x1b[7;9H3"


class Board(Widget):
    """Random rows, drawn by the Line API."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.rows: dict[int, list[Segment]] = {}

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        row = self.rows.setdefault(y, _row(self.rng, width))
        return Strip(row).adjust_cell_length(width)

    def change(self) -> None:
        """Draw some rows anew."""
        for y in self.rng.sample(range(self.size.height), k=max(1, self.size.height // 3)):
            self.rows[y] = _row(self.rng, self.size.width)
            self.refresh(Region(0, y, self.size.width, 1))


class Dialog(ThriftyScreen[None], ModalScreen[None]):
    """A dialog over the board."""

    def compose(self) -> ComposeResult:
        yield Static("Send SIGTERM to 4242?")


class Plain(Screen[None]):
    """A screen with Textual's own compositor, as its command palette has."""

    def compose(self) -> ComposeResult:
        yield Static("somebody else wrote here\n" * 4)


class Main(ThriftyScreen[None]):
    CSS = "Board { width: 1fr; height: 1fr; } Static { width: 9; height: 2; dock: right; }"

    def compose(self) -> ComposeResult:
        yield Static("漢 side", id="side")
        yield Board(7)


class BoardApp(App[None]):
    """Feeds an emulator with what a terminal would be sent."""

    def __init__(self, emulator: Emulator) -> None:
        super().__init__()
        self.emulator = emulator
        self.sent = 0
        self.terminal = Console(force_terminal=True, color_system="truecolor", width=40)

    def get_default_screen(self) -> Screen[None]:
        return Main()

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        if isinstance(renderable, CompositorUpdate):
            data = renderable.render_segments(self.terminal)
            if not self._batch_count:
                self.sent += len(data.encode())
                self.emulator.feed(data)
        super()._display(screen, renderable)

    def expected(self, width: int, height: int) -> Emulator:
        """Return a terminal on which everything was drawn from nothing, by Textual's own writer."""
        emulator = Emulator(width, height)
        for y, strip in enumerate(self.screen._compositor.render_strips()):
            emulator.feed(f"\x1b[{y + 1}H" + strip.render(self.terminal))
        return emulator


@pytest.mark.parametrize("seed", range(3))
async def test_a_terminal_follows_updates_dialogs_other_screens_and_a_new_size(seed: int) -> None:
    emulator = Emulator(40, 10)
    app = BoardApp(emulator)
    async with app.run_test(size=(40, 10)) as pilot:
        board = app.screen.query_one(Board)
        board.rng.seed(seed)
        for screen in (None, Dialog(), None, Plain(), None):
            if screen is not None:
                await app.push_screen(screen)
                await pilot.pause()
                app.pop_screen()
            for _ in range(5):
                board.change()
                await pilot.pause()
                assert emulator.cells() == app.expected(40, 10).cells()
        app.emulator = emulator = Emulator(33, 12)
        await pilot.resize_terminal(33, 12)
        board.change()
        await pilot.pause()
        assert emulator.cells() == app.expected(33, 12).cells()


async def test_what_is_to_be_painted_within_a_batch_is_painted_after_it() -> None:
    emulator = Emulator(40, 10)
    app = BoardApp(emulator)
    async with app.run_test(size=(40, 10)) as pilot:
        board = app.screen.query_one(Board)
        await pilot.pause()
        with app.batch_update():
            board.change()
            app.screen._compositor.update_widgets({board})
            app.screen._compositor_refresh()
        await pilot.pause()
        assert emulator.cells() == app.expected(40, 10).cells()


async def test_a_widget_that_was_marked_while_a_layout_ran_is_painted_with_it() -> None:
    emulator = Emulator(40, 10)
    app = BoardApp(emulator)
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        board = app.screen.query_one(Board)
        assert isinstance(app.screen, Main)
        board.change()
        board._repaint_required = False  # its own message was processed: nothing else has it painted
        app.screen.mark(board)
        app.screen._compositor_refresh()
        await pilot.pause()
        assert emulator.cells() == app.expected(40, 10).cells()


async def test_a_repaint_without_a_change_sends_nothing() -> None:
    app = BoardApp(Emulator(40, 10))
    async with app.run_test(size=(40, 10)) as pilot:
        board = app.screen.query_one(Board)
        await pilot.pause()
        before = app.sent
        board.refresh(Region(0, 0, 20, 3))
        await pilot.pause()
        assert app.sent == before


async def test_a_full_repaint_sends_everything_again() -> None:
    app = BoardApp(Emulator(40, 10))
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        app.emulator = Emulator(40, 10)
        app.screen.refresh()
        await pilot.pause()
        assert app.emulator.cells() == app.expected(40, 10).cells()


async def test_a_picture_of_the_screen_does_not_change_what_is_known_of_the_terminal() -> None:
    emulator = Emulator(40, 10)
    app = BoardApp(emulator)
    async with app.run_test(size=(40, 10)) as pilot:
        board = app.screen.query_one(Board)
        await pilot.pause()
        app.export_screenshot()
        board.change()
        await pilot.pause()
        assert emulator.cells() == app.expected(40, 10).cells()
