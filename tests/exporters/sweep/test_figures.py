"""Figures of sweeps: exact, the same every time, told in black and white, nothing on top of anything."""

import os
import re
import struct
import subprocess
import sys
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import REPOSITORY
from tests.exporters.figures.vision import VISIONS, measure_distance, parse_colour, to_lab
from vramscope.analyzers.planning.sweep import SweepCell, SweepGrid, make_grid
from vramscope.analyzers.planning.sweep.model import CellState
from vramscope.engine.files.sweep import read_sweep
from vramscope.engine.units import GIB
from vramscope.exporters.figures.page import (
    COLUMN_IN,
    LEAST_TEXT_PT,
    PAGE_STYLES,
    TEXT_IN,
    PageStyle,
    hold_settings,
)
from vramscope.exporters.figures.style import measure_contrast
from vramscope.exporters.sweep.figure import draw_sweep
from vramscope.exporters.sweep.figure_cells import TEXTURES, choose_cells, find_borders, merge
from vramscope.exporters.sweep.look import ERROR_MAP, MEMORY_MAP, ORIGINAL_COLOURS, ORIGINAL_FAILED, SweepLook

from ...analyzers.planning.sweep.original import write_original

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

LEAST_CONTRAST, LEAST_TEXT_CONTRAST = 3.0, 4.5


def read_original(folder: Path) -> SweepGrid:
    return make_grid(read_sweep(*write_original(folder)), 80 * GIB)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> SweepGrid:
    return read_original(tmp_path_factory.mktemp("original"))


def all_states() -> SweepGrid:
    """A sweep that has every state, theory too low and too high, and memory beyond the capacity."""
    states: list[CellState] = ["ok", "oom", "failed", "not_run", "invalid", "running"]
    cells = [
        SweepCell(tp=1, pp=2**at, state=state, cause="E: x" if state == "failed" else None)
        for at, state in enumerate(states)
    ]
    cells += [
        SweepCell(
            tp=2,
            pp=2**at,
            state="ok",
            actual_bytes=round(gib * GIB),
            theory_bytes=round(theory * GIB),
            is_mispredicted=theory >= 80,
        )
        for at, (gib, theory) in enumerate(
            [(0.1, 0.05), (20, 9.9), (40, 200.4), (60, 61), (79.9, 80), (123.4, 99)]
        )
    ]
    return SweepGrid(cells=tuple(cells), capacity_bytes=80 * GIB)


def texts_of(page: "Figure") -> "list[Text]":
    texts = [text for axes in page.axes for text in axes.texts]
    return [*texts, *(text for legend in page.legends for text in legend.get_texts())]


def words_of(page: "Figure") -> list[str]:
    return [text.get_text() for text in texts_of(page)]


def write_all(folder: Path) -> None:
    grid = read_original(folder / "sweep")
    for style in PAGE_STYLES:
        page = draw_sweep(grid, SweepLook(style, dpi=100))
        for kind in ("png", "pdf", "svg"):
            (folder / f"{style}.{kind}").write_bytes(page.render(kind))


def test_a_column_of_the_page_is_exactly_as_wide_in_every_format(original: SweepGrid) -> None:
    page = draw_sweep(original, SweepLook(dpi=600))
    assert struct.unpack(">I", page.render("png")[16:20])[0] == round(COLUMN_IN * 600)
    pdf = page.render("pdf")
    (box,) = re.findall(rb"/MediaBox \[([^]]*)\]", pdf)
    assert [float(part) for part in box.split()][0::2] == [0.0, pytest.approx(COLUMN_IN * 72)]
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    (width,) = re.findall(rb'<svg [^>]*width="([\d.]+)pt"', page.render("svg"))
    assert float(width) == pytest.approx(COLUMN_IN * 72)


def test_many_columns_take_the_width_of_the_text_and_a_given_size_is_taken() -> None:
    cells = tuple(SweepCell(tp=1, pp=pp, state="ok", actual_bytes=GIB) for pp in range(1, 11))
    grid = SweepGrid(cells=cells, capacity_bytes=80 * GIB)
    assert draw_sweep(grid).get_size_inches()[0] == TEXT_IN
    assert tuple(draw_sweep(grid, SweepLook(size_in=(5.0, 2.5))).get_size_inches()) == (5.0, 2.5)


def test_bytes_are_the_same_in_any_process_and_under_any_settings(tmp_path: Path) -> None:
    code = "import sys, pathlib; from tests.exporters.sweep.test_figures import write_all as write;"
    code += "write(pathlib.Path(sys.argv[1]))"
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    write_all(here)
    (tmp_path / "rc").write_text("font.size: 20\nhatch.linewidth: 9\n")
    environment = {**os.environ, "PYTHONHASHSEED": "2", "MATPLOTLIBRC": str(tmp_path / "rc")}
    command = [sys.executable, "-c", code, str(there)]
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, timeout=120)
    written = [
        {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix} for folder in (here, there)
    ]
    assert len(written[0]) == 6
    assert written[0] == written[1]
    assert all(b"Date" not in data and b"Matplotlib" not in data for data in written[0].values())


@pytest.mark.parametrize("style", PAGE_STYLES)
def test_no_text_is_small_and_none_stands_on_another_or_leaves_the_page(
    original: SweepGrid, style: PageStyle
) -> None:
    for grid in (original, all_states()):
        page = draw_sweep(grid, SweepLook(style, dpi=150))
        with hold_settings(style):
            page.canvas.draw()
        renderer = page.canvas.get_renderer()  # type: ignore[attr-defined]
        shown = [text for text in texts_of(page) if text.get_text()]
        axes = page.axes
        shown += [label for each in axes for label in (*each.get_xticklabels(), *each.get_yticklabels())]
        shown += [text for each in axes for text in (each.xaxis.label, each.yaxis.label, each._left_title)]  # type: ignore[attr-defined]
        shown = [text for text in shown if text.get_text()]
        assert all(float(text.get_fontsize()) >= LEAST_TEXT_PT for text in shown)
        boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in shown]
        for (one, box), (other, place) in combinations(boxes, 2):
            assert not box.shrunk(0.98, 0.9).overlaps(place.shrunk(0.98, 0.9)), (one, other)
        width, height = page.bbox.width, page.bbox.height
        for words, box in boxes:
            assert box.x0 >= 0, words
            assert box.y0 >= 0, words
            assert box.x1 <= width, words
            assert box.y1 <= height, words


@pytest.mark.parametrize("style", PAGE_STYLES)
def test_figures_in_cells_can_be_read_on_their_colour(style: PageStyle) -> None:
    page = draw_sweep(all_states(), SweepLook(style, dpi=100))
    mesh = page.axes[0].collections[0]
    page.render("png")
    colours = np.asarray(mesh.get_facecolor(), dtype=float)
    inks = [
        text.get_color() for text in page.axes[0].texts if "GB" in text.get_text() or "." in text.get_text()
    ]
    assert len(inks) >= 6
    in_row = [colour[:3] for colour in colours[6:12]]
    per_cell = len(inks) // 6
    for at, (red, green, blue) in enumerate(in_row):
        for ink in inks[at * per_cell : (at + 1) * per_cell]:
            assert measure_contrast((red, green, blue), parse_colour(str(ink))) >= LEAST_TEXT_CONTRAST


def test_every_state_is_told_without_colour() -> None:
    assert len({texture.word for texture in TEXTURES.values()}) == len(TEXTURES)
    patterns = [(texture.hatch, texture.face) for texture in TEXTURES.values()]
    assert len(set(patterns)) >= len(TEXTURES) - 1
    for texture in TEXTURES.values():
        if texture.hatch:
            assert measure_contrast(parse_colour(texture.face), parse_colour(texture.ink)) >= LEAST_CONTRAST
    page = draw_sweep(all_states())
    assert {texture.word for texture in TEXTURES.values()} <= set(words_of(page))
    meanings = [f"{texture.word}  {texture.meaning}" for texture in TEXTURES.values()]
    assert [text.get_text() for text in page.legends[0].get_texts()][-6:] == [
        meanings[5],
        *meanings[:2],
        meanings[4],
        meanings[2],
        meanings[3],
    ]


@pytest.mark.parametrize("vision", VISIONS)
def test_more_memory_is_darker_to_everyone_and_errors_have_two_sides(vision: str) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    steps = [colormaps[MEMORY_MAP](value / 20) for value in range(21)]
    light = [to_lab((red, green, blue), VISIONS[vision])[0] for red, green, blue, _ in steps]
    assert all(earlier - later > 1.0 for earlier, later in pairwise(light))
    for share in (0.2, 0.5):
        low, high = (to_hex(colormaps[ERROR_MAP](0.5 + side * share * 0.99)) for side in (-1, 1))
        assert measure_distance(low, high, VISIONS[vision]) > 20


def test_the_page_says_what_was_measured_predicted_and_by_how_much_it_was_wrong(original: SweepGrid) -> None:
    page = draw_sweep(original)
    words = words_of(page)
    assert [words.count(word) for word in ("OOM", "fail")] == [6, 12]
    assert {"57.3", "136.9", "15.0", "34.2", "+139", "+11"} <= set(words)
    assert "ran, predicted ≥ 80 GiB" in words
    assert page.axes[0].get_title(loc="left").startswith("(a) Peak memory, GiB")


def test_the_staircase_parts_what_ran_from_what_ran_out_of_memory(original: SweepGrid) -> None:
    drawn = choose_cells(original)
    assert find_borders(drawn, is_known=True) == [[(5, 1), (6, 1)]]
    blind = {tuple(line) for line in find_borders(drawn, is_known=False)}
    assert blind == {
        ((5, 1), (5, 2)),
        ((4, 2), (5, 2)),
        ((4, 2), (4, 3)),
        ((3, 3), (4, 3)),
        ((3, 3), (3, 4)),
    }


def test_the_original_looks_as_its_document_says(original: SweepGrid) -> None:
    from matplotlib.colors import to_hex
    from matplotlib.patches import Rectangle

    page = draw_sweep(original, SweepLook("original"))
    width_in, height_in = page.get_size_inches()
    assert (width_in, width_in / height_in) == (8.0, pytest.approx(3.0))
    axes = page.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("PP SIZE", "TP SIZE")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "4", "8", "16", "32", "64"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2", "4", "8"]
    words = words_of(page)
    assert words.count("—") == 18
    assert "Actual: 57.3GB\nTheory: 136.9GB" in words
    hatched = [it for it in axes.patches if isinstance(it, Rectangle) and it.get_hatch() == "///"]
    assert {it.get_xy() for it in hatched} == {(5, 1), (4, 2), (3, 3)}
    colours = axes.collections[0].get_cmap()
    assert colours.N == 256
    assert [to_hex(colours(at / 7)).upper() for at in (0, 7)] == [ORIGINAL_COLOURS[0], ORIGINAL_COLOURS[-1]]
    assert (
        to_hex(tuple(np.asarray(axes.collections[-1].get_facecolor(), dtype=float)[0])).upper()
        == ORIGINAL_FAILED
    )


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30))
def test_textures_cover_each_cell_of_theirs_once_and_no_other(places: set[tuple[int, int]]) -> None:
    covered = [
        (row + down, column + right)
        for row, column, height, width in merge(places)
        for down in range(height)
        for right in range(width)
    ]
    assert sorted(covered) == sorted(places)


def test_cells_too_small_for_figures_keep_their_texture_and_thousands_are_drawn() -> None:
    cells = tuple(
        SweepCell(tp=tp, pp=pp, state="ok" if tp > pp else "oom", actual_bytes=GIB if tp > pp else None)
        for tp in range(1, 65)
        for pp in range(1, 65)
    )
    page = draw_sweep(SweepGrid(cells=cells, capacity_bytes=80 * GIB), SweepLook(dpi=80))
    assert not page.axes[0].texts
    assert any(it.get_hatch() == TEXTURES["oom"].hatch for it in page.axes[0].collections)
    assert page.render("png").startswith(b"\x89PNG")


def test_a_sweep_in_which_nothing_ran_is_drawn_in_both_styles() -> None:
    grid = SweepGrid(cells=(SweepCell(tp=1, pp=1, state="oom"),), capacity_bytes=80 * GIB)
    for style in PAGE_STYLES:
        assert draw_sweep(grid, SweepLook(style, dpi=80)).render("png").startswith(b"\x89PNG")
