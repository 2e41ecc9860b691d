"""A whole and its parts: the bar, and figures that add up whatever rounding does."""

from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.units import GIB, MIB
from vramscope.tui.draw.bars import Part, describe_sum, draw_stacked_bar, round_parts
from vramscope.tui.draw.glyphs import ASCII, UNICODE
from vramscope.tui.draw.spans import line_text, line_width


def _parts(*values: int | None) -> list[Part]:
    return [Part(f"part{number}", value, "█▓▒▄"[number % 4], "fill") for number, value in enumerate(values)]


def test_parts_stand_side_by_side_and_the_rest_is_empty() -> None:
    assert line_text(draw_stacked_bar(_parts(4, 2, 2), 10, 10, UNICODE)) == "████▓▓▒▒░░"
    assert line_text(draw_stacked_bar(_parts(4, None, 2), 10, 10, UNICODE)) == "████▒▒░░░░"
    assert line_text(draw_stacked_bar(_parts(), 10, 4, ASCII)) == "...."


def test_a_part_that_is_there_is_seen_however_small() -> None:
    assert line_text(draw_stacked_bar(_parts(1, 8000, 1), 10_000, 10, UNICODE)) == "█▓▓▓▓▓▓▓▒░"


@given(
    st.lists(st.none() | st.integers(0, 100 * GIB), max_size=6), st.integers(0, 80), st.integers(0, 90 * GIB)
)
def test_a_bar_has_its_width_whatever_the_figures(values: list[int | None], width: int, scale: int) -> None:
    assert line_width(draw_stacked_bar(_parts(*values), scale, width, UNICODE)) == width


@given(st.lists(st.integers(0, 90 * GIB), min_size=1, max_size=6))
def test_figures_of_known_parts_add_up_to_the_figure_of_the_whole(values: list[int]) -> None:
    whole, *parts = round_parts(sum(values), values, UNICODE)
    figures = [float(text.removesuffix(" MiB").replace(",", "")) for text in (whole, *parts)]
    assert round(sum(figures[1:]), 6) == figures[0]
    unit = MIB if "MiB" in whole else GIB
    for value, figure in zip(values, figures[1:], strict=True):
        assert abs(value / unit - figure) < (1.0 if unit == MIB else 0.1001)


def test_what_is_unknown_stays_unknown_and_guesses_nothing_into_the_others() -> None:
    assert round_parts(10 * GIB, [6 * GIB, None], UNICODE) == ["10.0", "6.0", "—"]
    assert round_parts(None, [6 * GIB, GIB], UNICODE) == ["—", "6.0", "1.0"]
    assert round_parts(3 * GIB, [2 * GIB, GIB], UNICODE) == ["3,072 MiB", "2,048 MiB", "1,024 MiB"]


def test_a_sum_names_every_part_with_its_glyph_and_breaks_between_parts_only() -> None:
    parts = [Part("allocated", 75 * GIB, "█", "fill"), Part("cached", GIB, "▓", "band")]
    (line,) = describe_sum(Part("used", 76 * GIB, "", "strong"), parts, 80, UNICODE)
    assert line_text(line) == "used 76.0 = █ allocated 75.0 + ▓ cached 1.0"
    lines = describe_sum(Part("used", 76 * GIB, "", "strong"), parts, 30, UNICODE)
    assert [line_text(line) for line in lines] == ["used 76.0 = █ allocated 75.0", "+ ▓ cached 1.0"]
