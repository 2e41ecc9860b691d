"""Memory by length as a figure: six panels over logarithms of length, laws in words, crosses, same bytes."""

from itertools import combinations

import numpy as np
import pytest

from tests.exporters.figures.vision import VISIONS, measure_distance, parse_colour
from tests.vramscope.phases.studies import LENGTHS, make_study
from vramscope.exporters.figures.style import measure_contrast
from vramscope.exporters.seqlen.figure import ALGORITHMS, STAGE_COLOURS, LengthLook, draw_lengths


def test_six_panels_have_points_laws_and_crosses_where_memory_ran_out() -> None:
    page = draw_lengths(make_study(out_of_memory={2048: "Backward"}))
    assert [axes.get_title(loc="left") for axes in page.axes] == list(STAGE_COLOURS)
    assert {axes.get_xscale() for axes in page.axes} == {"log"}
    assert list(page.axes[0].get_xticks()) == list(LENGTHS)
    forward, backward = page.axes[2:4]
    words = forward.texts[0].get_text().replace("\N{NO-BREAK SPACE}", " ")
    assert words == "2 MiB + 4.88 KiB/token + 48 B/token², residual 0 B"
    _, points, hollow, crosses = backward.lines
    assert np.array_equal(points.get_xdata(), LENGTHS[:-1])
    assert np.array_equal(hollow.get_xdata(), [2048])
    assert np.array_equal(crosses.get_xdata(), [2048])
    assert crosses.get_marker() == "x"
    assert page.get_suptitle().count("imulated") == 2
    assert [text.get_text() for text in page.legends[0].get_texts()] == [
        "out of memory",
        "as the law predicts",
    ]


def test_a_figure_is_the_same_every_time_and_exactly_as_wide_as_the_text() -> None:
    study = make_study(("none", "hooks", "ghost"), (64, 128, 256))
    pdf = draw_lengths(study).render("pdf")
    assert pdf == draw_lengths(study).render("pdf")
    assert b"/MediaBox [ 0 0 504 " in pdf
    assert b"/Type3" not in pdf


def test_the_style_of_the_original_has_its_colours_and_writes_every_value() -> None:
    page = draw_lengths(make_study(lengths=(64, 128)), LengthLook("original"))
    assert [axes.lines[0].get_color() for axes in page.axes] == list(STAGE_COLOURS.values())
    texts = [text.get_text() for text in page.axes[0].texts]
    assert texts == ["2 points, no law", "100.0", "100.0"]


def test_a_panel_without_a_figure_says_so() -> None:
    setup = draw_lengths(make_study(("none",), (64, 128, 256))).axes[1]
    assert "no such phase without privacy" in [text.get_text() for text in setup.texts]


@pytest.mark.parametrize("vision", VISIONS)
def test_no_two_algorithms_look_alike(vision: str) -> None:
    colours = [style.colour for style in ALGORITHMS.values()]
    assert all(measure_distance(one, other, VISIONS[vision]) >= 20 for one, other in combinations(colours, 2))
    assert all(measure_contrast(parse_colour(colour), (1, 1, 1)) >= 3 for colour in colours)
    assert len({style.dashes for style in ALGORITHMS.values()}) == len(ALGORITHMS)
    assert len({style.shape for style in ALGORITHMS.values()}) == len(ALGORITHMS)
