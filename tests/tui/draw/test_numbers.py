"""Figures keep their width from the smallest to the largest that hardware shows."""

import pytest

from vramscope.engine.units import format_bytes, share_percent
from vramscope.tui.draw import numbers
from vramscope.tui.draw.glyphs import ASCII, UNICODE
from vramscope.tui.widgets.title_words import format_time


@pytest.mark.parametrize("value", [None, 0.0, 7.4, 77.0, 100.0, 37100.0])
def test_percent(value: float | None) -> None:
    assert len(numbers.percent_text(value, UNICODE)) == numbers.PERCENT_WIDTH


@pytest.mark.parametrize("value", [None, 0.0, 64.2, 104.0])
def test_celsius(value: float | None) -> None:
    assert len(numbers.celsius_text(value, UNICODE)) == numbers.CELSIUS_WIDTH
    assert numbers.celsius_text(value, ASCII).isascii()


@pytest.mark.parametrize("value", [None, 0.0, 612.4, 1200.0, 9999.0])
def test_watts(value: float | None) -> None:
    assert len(numbers.watts_text(value, UNICODE)) == numbers.WATTS_WIDTH


def test_unmeasured_is_never_zero() -> None:
    assert numbers.gib_text(None, UNICODE) == "—"
    assert numbers.percent_text(None, ASCII).strip() == "-"
    assert share_percent(None, 100) is None
    assert share_percent(5, None) is None


def test_spans_and_moments() -> None:
    assert [numbers.span_text(span_s) for span_s in (60, 600, 7200)] == ["60 s", "10 min", "2 h"]
    assert numbers.moment_text(12.34, "trace") == "12.3 s"
    assert numbers.moment_text(1199.0, "trace") == "1,199.0 s"
    assert format_time(1199.0, "trace") == "t 1,199.0 s"
    assert format_bytes(1016 << 20) == "1,016 MiB"
    assert format_bytes(2_000 << 40) == "2,000 TiB"
    assert numbers.age_text(7.9) == " 7 s"
    assert numbers.count_text(1, "process", "processes") == "1 process"
