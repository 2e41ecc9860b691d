"""The palette: every line stands out from the paper, and no two look alike to any kind of colour vision."""

from itertools import combinations, pairwise

import pytest

from vramscope.exporters.figures.style import (
    HEAT_MAP,
    INK,
    LINES,
    MARKS,
    PAPER,
    UNMEASURED_INK,
    choose_ink,
    measure_contrast,
)

from .vision import VISIONS, measure_distance, parse_colour, to_lab

LEAST_CONTRAST = 3.0
"""Of graphical objects against what is beside them (WCAG 2.2, 1.4.11)."""
LEAST_TEXT_CONTRAST = 4.5
"""Of text (WCAG 2.2, 1.4.3)."""
LEAST_DISTANCE = 20.0
"""Of two colours in CIELAB; 2.3 is just noticeable."""
DRAWN_TOGETHER = [
    ("allocated", "reserved", "used", "capacity"),
    ("fragmentation", "external", "internal"),
    ("A", "B"),
]


@pytest.mark.parametrize("name", LINES)
def test_lines_stand_out_from_the_paper(name: str) -> None:
    assert measure_contrast(parse_colour(LINES[name].colour), parse_colour(PAPER)) >= LEAST_CONTRAST


def test_marks_and_text_stand_out_from_the_paper() -> None:
    marks = [style.colour for style in MARKS.values()]
    assert all(measure_contrast(parse_colour(mark), parse_colour(PAPER)) >= LEAST_CONTRAST for mark in marks)
    texts = [INK, UNMEASURED_INK]
    assert all(measure_contrast(parse_colour(t), parse_colour(PAPER)) >= LEAST_TEXT_CONTRAST for t in texts)


@pytest.mark.parametrize("vision", VISIONS)
def test_no_two_lines_or_marks_look_alike(vision: str) -> None:
    groups = [[LINES[name].colour for name in names] for names in DRAWN_TOGETHER]
    groups.append(list(dict.fromkeys(style.colour for style in MARKS.values())))
    for group in groups:
        for first, second in combinations(group, 2):
            assert measure_distance(first, second, VISIONS[vision]) >= LEAST_DISTANCE, (first, second)


def test_no_meaning_is_carried_by_colour_alone() -> None:
    for names in DRAWN_TOGETHER:
        assert len({LINES[name].dashes for name in names}) == len(names)
    assert len({style.shape for style in MARKS.values()}) == len(MARKS)
    assert len({MARKS[kind].colour for kind in ("leak", "oom", "oom_met", "fragmentation")}) == 4


@pytest.mark.parametrize("vision", VISIONS)
def test_the_heat_map_grows_lighter_all_the_way(vision: str) -> None:
    from matplotlib import colormaps

    steps = [colormaps[HEAT_MAP](value / 20) for value in range(21)]
    light = [to_lab((red, green, blue), VISIONS[vision])[0] for red, green, blue, _ in steps]
    assert all(later - earlier > 1.0 for earlier, later in pairwise(light))


def test_figures_in_cells_can_be_read_on_any_colour() -> None:
    for level in range(256):
        background = (level / 255, level / 255, level / 255)
        ink = parse_colour(choose_ink(background))
        assert measure_contrast(background, ink) >= LEAST_TEXT_CONTRAST


def test_contrast_is_that_of_the_guidelines() -> None:
    assert measure_contrast((0, 0, 0), (1, 1, 1)) == pytest.approx(21.0)
    assert measure_contrast(parse_colour("#767676"), (1, 1, 1)) == pytest.approx(4.54, abs=0.01)


def test_simulated_vision_knows_what_it_confuses() -> None:
    red, green = "#c04040", "#6b6b20"
    assert measure_distance(red, green, VISIONS["normal"]) > 50
    assert measure_distance(red, green, VISIONS["deuteranopia"]) < 30
