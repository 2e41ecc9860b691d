"""The screens of sweeps: the grid, its modes and marks, two side by side, the list; look at the pictures."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import Color, ColorSystem
from textual.pilot import Pilot

from vramscope.analyzers.planning.sweep import CellState, SweepCell
from vramscope.analyzers.planning.sweep.index import SweepIndex
from vramscope.cli.live import find_by_words
from vramscope.exporters.figures.style import measure_contrast
from vramscope.sweeps import index_sweeps
from vramscope.tui.draw.glyphs import UNICODE
from vramscope.tui.live.screen import LiveScreen
from vramscope.tui.screens.terminal_app import TerminalApp
from vramscope.tui.sweep.index_screen import SweepIndexScreen, view_sweeps
from vramscope.tui.sweep.lines import (
    DARK,
    LIGHT,
    MODES,
    TILE_CELLS,
    Window,
    draw_lines,
    make_tile,
    mark_best,
    prepare_grid,
)
from vramscope.tui.sweep.screen import ReplayAsked, SweepScreen, SweepView
from vramscope.tui.sweep.words import name_sweeps
from vramscope.tui.terminal.abilities import TerminalAbilities

from ...analyzers.planning.sweep.trees import write_tree
from ..canned import FakeFeed, make_snapshot
from ..canned import make_app as make_view
from ..file_apps import first_screen, make_file_app
from ..inspect.test_inspect import until
from ..looks import notices, shown_text
from ..panes import PROGRAM, pane

LEAST_CONTRAST = 4.5
"""Of text on its ground: Web Content Accessibility Guidelines 2.2, level AA."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def index(tree: Path) -> SweepIndex:
    return index_sweeps([tree], 80.0)


def make_app(
    index: SweepIndex,
    folder: Path,
    begin: SweepView | None = None,
    abilities: TerminalAbilities | None = None,
    asked: list[ReplayAsked] | None = None,
) -> TerminalApp:
    return make_file_app(
        view_sweeps(lambda tell: index, [] if asked is None else asked, begin=begin), folder, abilities
    )


def shown(app: TerminalApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


async def test_the_grid_is_walked_through_in_every_mode_and_ends_with_what_is_to_be_replayed(
    index: SweepIndex, tmp_path: Path
) -> None:
    asked: list[ReplayAsked] = []
    app = make_app(index, tmp_path, asked=asked)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: first_screen(app, SweepIndexScreen).index)
        await press(pilot, "G", "enter")
        await until(pilot, lambda: "best TP 8 PP 64 with 15.0 GiB" in shown(app))
        assert "[▸15.0◂]" in shown(app)
        assert "╏ 73.6!" in shown(app), "the staircase stands before what ran"
        assert "✖ OOM" in shown(app)
        await press(pilot, "left", "k")
        assert "[ 76.0!]" in shown(app)
        assert "theory 99.8 GiB" in shown(app)
        assert "error +31.3 %, ruled out by the theory" in shown(app)
        await press(pilot, "e")
        assert "[  +31 ]" in shown(app)
        await press(pilot, "t")
        assert "[ 99.8!]" in shown(app)
        await press(pilot, "t", "up", "up")
        await press(pilot, "enter")
        assert any(text.startswith("TP 1 PP 32: ran out of memory, no trace") for text in notices(app))
        await press(pilot, "B", "i")
        assert "8,192 GPUs" in shown(app)
        await press(pilot, "escape", "enter")
        await until(pilot, lambda: not app.is_running)
    (layout,) = asked
    assert layout.view == SweepView("485B_8192gpus_tplimit8", (8, 64))
    assert layout.cells[layout.at].place == (8, 64)
    assert len(layout.cells) == 24


async def test_two_sweeps_side_by_side_have_the_same_cell_marked(index: SweepIndex, tmp_path: Path) -> None:
    app = make_app(index, tmp_path, SweepView("485B_8192gpus_tplimit8", (8, 16)))
    async with app.run_test(size=(120, 32)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, SweepScreen))
        await press(pilot, "b")
        text = shown_text(app)
        assert "1 485B · 8,192 GPUs" in text
        assert "2 175B · 1,024 GPUs" in text
        assert text.count("[") == 2
        await press(pilot, "d")
        assert "second minus first -61.2 GiB, -83 %" in shown_text(app)
        assert "-61.2" in shown(app).split("the second less")[0]
        await press(pilot, "l")
        assert "not in this sweep's grid" in shown_text(app)
        assert shown(app).count("[") == 1
        await press(pilot, "E")
        await until(pilot, lambda: any("Wrote" in text for text in notices(app)))
        await press(pilot, "escape", "tab")
        assert "1,024 GPUs" in shown(app).splitlines()[0]
    endings = {path.name.split(".", 1)[1] for path in tmp_path.iterdir()}
    assert endings == {"pdf", "svg", "png", "alt.txt"}


async def test_the_list_is_filtered_and_sorted(index: SweepIndex, tmp_path: Path) -> None:
    app = make_app(index, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: first_screen(app, SweepIndexScreen).index)
        await press(pilot, "slash", *"model=485", "enter")
        assert "1 of 2   filter model=485" in shown_text(app) or "1 of 2" in shown_text(app)
        assert "▌485B" in shown(app)
        await press(pilot, "slash", "=", "=")
        assert "No sweep matches" in shown(app)
        await press(pilot, "escape", "greater_than_sign", "greater_than_sign", "I")
        assert "by gpus (reversed)" in shown_text(app)
        assert [sweep.model for sweep in first_screen(app, SweepIndexScreen)._listed] == ["175B", "485B"]
        await press(pilot, "question_mark")
        assert "side by side" not in shown_text(app)
        assert "Show only sweeps that match: model=485B" in shown_text(app)


def test_from_the_grid_into_the_replay_and_back_to_the_cell_that_was_left(tree: Path) -> None:
    with pane(f"{PROGRAM} sweep {tree} --filter model=485B") as opened:
        opened.wait_for("[▸15.0◂]", "Enter replay")
        opened.press("Enter")
        opened.wait_for("TP 8 PP 64", "{ previous config")
        opened.press("{")
        opened.wait_for("TP 8 PP 32")
        opened.press("q")
        opened.wait_for("[ 38.4 ]", "Enter replay")
        opened.press("q")
        opened.wait_for("exit code 0")


def test_sweeps_of_one_model_are_told_apart_by_name(index: SweepIndex) -> None:
    small, large = index.sweeps
    other = msgspec.structs.replace(large, name="friday/485B_8192gpus_tplimit8")
    titles = name_sweeps([small, large, other])
    assert titles[0].startswith("175B · 1,024 GPUs")
    assert [title.split(" · ")[:2] for title in titles[1:]] == [
        ["485B_8192gpus_tplimit8", "485B"],
        ["friday/485B…pus_tplimit8", "485B"],
    ]


def make_cells() -> Iterator[tuple[SweepCell, SweepCell]]:
    states: tuple[CellState, ...] = ("ok", "oom", "failed", "not_run", "invalid", "running")
    for state in states:
        for first in states:
            yield SweepCell(tp=1, pp=1, state=first), SweepCell(tp=1, pp=1, state=state)


SIZES = st.none() | st.integers(0, 1 << 52)


@given(SIZES, SIZES, SIZES)
def test_whatever_stands_in_a_cell_fits_it(actual: int | None, theory: int | None, other: int | None) -> None:
    first = SweepCell(tp=1, pp=1, state="ok", actual_bytes=other)
    cell = SweepCell(tp=1, pp=1, state="ok", actual_bytes=actual, theory_bytes=theory, is_mispredicted=True)
    for mode in MODES:
        text = make_tile(cell, mode, 80 << 30, UNICODE, first).text
        assert len(text) <= TILE_CELLS
        assert len(mark_best(text)) <= TILE_CELLS


def test_every_state_is_a_word_or_a_glyph_that_fits() -> None:
    texts = {
        make_tile(cell, mode, 80 << 30, UNICODE, first).text for first, cell in make_cells() for mode in MODES
    }
    assert all(0 < len(text) <= TILE_CELLS for text in texts)
    assert {"✖ OOM", "▲ fail", "·", "n/a", "…", "ran —", "✖→▲", "✖→ok"} <= texts


@pytest.mark.parametrize("system", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT])
def test_text_is_read_on_every_ground(system: ColorSystem) -> None:
    for colours in (DARK, LIGHT):
        for look, pair in colours.items():
            one, other = (Color.parse(text).downgrade(system).get_truecolor().normalized for text in pair)
            assert measure_contrast(one, other) >= LEAST_CONTRAST, look


def test_a_window_into_a_large_grid_has_its_lines_and_the_staircase(index: SweepIndex) -> None:
    grid = prepare_grid(index.sweeps[1].grid)
    lines = draw_lines(grid, Window(1, 3, 3, 3, 2, 2, 4), UNICODE)
    texts = ["".join(part.text for part in line) for line in lines]
    assert texts[0].split() == ["PP", "16", "32", "64"]
    assert [text.split()[:2] for text in texts[2::2]] == [["TP", "2"], ["TP", "4"], ["TP", "8"]]
    assert texts[1].endswith("┏━━━━━━━")
    assert texts[3].rstrip().endswith("┏╍╍╍╍╍╍╍┛")
    assert "[ 76.0!]" in texts[4]
    assert len(set(map(len, texts))) == 1
    close = draw_lines(grid, Window(0, 3, 3, 3, 1, 2, 4), UNICODE)
    underlined = [part.text.strip() for line in close for part in line if part.is_underlined]
    assert underlined == ["✖ OOM", "▲ fail", "▲ fail"]


LOOKS = {
    "color": TerminalAbilities(),
    "mono": TerminalAbilities(color_depth="none"),
    "ascii": TerminalAbilities(is_ascii=True, color_depth="16"),
}


@pytest.mark.parametrize(
    ("look", "size"),
    [("color", (80, 24)), ("color", (200, 50)), ("mono", (40, 10)), ("ascii", (80, 24))],
    ids=["80x24", "200x50", "40x10-mono", "ascii"],
)
def test_looks(
    look: str,
    size: tuple[int, int],
    index: SweepIndex,
    tmp_path: Path,
    snap_compare: Callable[..., bool],
) -> None:
    app = make_app(index, tmp_path, SweepView("485B_8192gpus_tplimit8"), LOOKS[look])

    async def wait(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: isinstance(app.screen, SweepScreen))
        await pilot.press(*(["b"] if size[0] == 200 else []))
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=wait)


async def test_sweeps_lie_over_the_live_view_and_what_is_wrong_is_told_in_the_question(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = make_view(FakeFeed(make_snapshot(2)))
    app.tools["sweep"].read = find_by_words
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.press("5", "enter")
        await until(pilot, lambda: "no sweep found; expected memory traces" in shown_text(app))
        await pilot.press("backspace", *f"{tree} --capacity 40GiB", "enter")
        await until(pilot, lambda: isinstance(app.screen, SweepIndexScreen))
        await press(pilot, "end", "enter")
        await until(pilot, lambda: "6 of 24 layouts ran" in shown_text(app))
        assert "capacity 40 GiB" in shown_text(app)
        await press(pilot, "enter")
        assert any("in another shell: vramscope replay" in text for text in notices(app))
        await press(pilot, "escape")
        assert isinstance(app.screen, SweepIndexScreen)
        await press(pilot, "enter", "1")
        assert isinstance(app.screen, LiveScreen)
        await pilot.press("5")
        await until(pilot, lambda: f"{tree} --capacity 40GiB" in shown_text(app))
        await press(pilot, "escape")
        assert isinstance(app.screen, LiveScreen)
        assert "5 Sweep" in shown_text(app)
