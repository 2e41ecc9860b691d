"""Lines are fitted to the cell, whatever is in them."""

from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.text import make_printable
from vramscope.tui.draw.spans import Span, clean_text, fit_line, fit_text, line_text, line_width, right_text

TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=12)


@given(st.lists(TEXTS, max_size=6), st.integers(0, 30), st.booleans())
def test_a_fitted_line_has_the_exact_width_and_no_control_character(
    texts: list[str], width: int, is_ascii: bool
) -> None:
    line = fit_line([Span(text) for text in texts], width, is_ascii=is_ascii)
    text = line_text(line)
    assert line_width(line) == width
    assert make_printable(text) == text
    assert text.isascii() or not is_ascii


def test_a_cut_is_marked_wherever_a_span_ends() -> None:
    for spans in (
        ["fell off the bus"],
        ["fell ", "off the bus"],
        ["fell off ", "the bus"],
        ["fell ", "off ", "the"],
    ):
        assert line_text(fit_line([Span(text) for text in spans], 9)) == "fell off…"
    assert line_text(fit_line([Span("fell off", "high"), Span("", "low"), Span(" the bus")], 8)) == "fell of…"
    assert line_text(fit_line([Span("fell off"), Span(" the bus")], 8, is_ascii=True)) == "fell of~"


def test_blanks_that_are_cut_off_are_no_loss() -> None:
    assert line_text(fit_line([Span("fell off   ")], 9)) == "fell off "
    assert line_text(fit_line([Span("fell off"), Span("   ")], 8)) == "fell off"


def test_texts_are_cut_to_the_exact_width() -> None:
    assert fit_text("MEMORY", 4, "") == "MEMO"
    assert fit_text("NVIDIA H100", 8, "…") == "NVIDIA …"
    assert right_text("61.2", 6, "…") == "  61.2"


def test_wide_characters_are_not_cut_in_half() -> None:
    assert line_text(fit_line([Span("漢字")], 2)) == " …"
    assert line_text(fit_line([Span("漢字")], 3)) == "漢…"


def test_an_escape_sequence_in_a_name_is_disarmed() -> None:
    assert clean_text("a\x1b[31mb\nc", is_ascii=False) == "a�[31mb c"


def test_ascii_keeps_the_cells() -> None:
    assert clean_text("0–79 °C … 漢", is_ascii=True) == "0-79  C ~ ??"
