"""The gauge runs from nothing to the capacity; the band of a tick is lighter than the line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.model import AllocatorReading, MemoryReading
from vramscope.tui.draw.bars import draw_gauge, draw_split_gauge, level_glyph
from vramscope.tui.draw.glyphs import ASCII, UNICODE, Glyphs
from vramscope.tui.draw.spans import line_text, line_width


def _gauge(memory: MemoryReading, scale: float | None, width: int, glyphs: Glyphs = UNICODE) -> str:
    return line_text(draw_gauge(memory, scale, width, glyphs))


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (0, "░░░░░░░░░░"),
        (1, "▏░░░░░░░░░"),
        (50, "█████░░░░░"),
        (55, "█████▌░░░░"),
        (100, "██████████"),
        (300, "██████████"),
    ],
)
def test_the_line_is_what_is_used_of_the_capacity(used: int, expected: str) -> None:
    assert _gauge(MemoryReading(used_bytes=used), 100, 10) == expected


def test_the_band_is_lighter_and_follows_the_line() -> None:
    memory = MemoryReading(used_bytes=60, used_min_bytes=50, used_max_bytes=80)
    assert _gauge(memory, 100, 10) == "█████▒▒▒░░"
    assert _gauge(memory, 100, 10, ASCII) == "#####===.."


def test_what_nobody_measured_is_not_drawn_as_empty() -> None:
    assert _gauge(MemoryReading(), 100, 10) == "—         "
    assert _gauge(MemoryReading(used_bytes=5), None, 10, ASCII) == "-         "


@pytest.mark.parametrize("width", range(40))
def test_the_width_is_exact(width: int) -> None:
    for used in range(0, 101, 7):
        memory = MemoryReading(used_bytes=used, used_min_bytes=max(0, used - 9), used_max_bytes=used + 13)
        for glyphs in (UNICODE, ASCII):
            assert line_width(draw_gauge(memory, 100, width, glyphs)) == width


def test_a_single_cell_has_a_level() -> None:
    assert [level_glyph(share, UNICODE) for share in (0.0, 0.5, 0.99, 1.0, 7.0, None)] == list("▁▅███—")
    assert level_glyph(0.77, ASCII) == "7"


SPLIT = AllocatorReading(allocated_bytes=50, reserved_bytes=60)


def _split(memory: MemoryReading, allocator: AllocatorReading = SPLIT, glyphs: Glyphs = UNICODE) -> str:
    return line_text(draw_split_gauge(memory, allocator, 100, 10, glyphs))


def test_what_is_used_is_split_into_tensors_cache_and_the_rest_by_glyph() -> None:
    assert _split(MemoryReading(used_bytes=80)) == "█████▓▄▄░░"
    assert _split(MemoryReading(used_bytes=80), glyphs=ASCII) == "#####%::.."
    assert _split(MemoryReading(used_bytes=80, used_min_bytes=70, used_max_bytes=90)) == "█████▓▄▒▒░"


def test_a_split_never_reaches_beyond_what_the_device_says_is_used() -> None:
    assert _split(MemoryReading(used_bytes=55, used_min_bytes=55, used_max_bytes=55)) == "█████▓░░░░"
    assert _split(MemoryReading(used_bytes=300)) == "█████▓▄▄▄▄"
    assert _split(MemoryReading(used_bytes=0)) == "█████░░░░░", "tensors are there whatever the driver says"


def test_nothing_is_split_where_the_allocator_does_not_tell_all() -> None:
    for allocator in (AllocatorReading(), AllocatorReading(50), AllocatorReading(reserved_bytes=60)):
        assert _split(MemoryReading(used_bytes=80), allocator) == "████████░░"
    assert _split(MemoryReading()) == "—" + " " * 9


@given(
    st.lists(st.integers(0, 200), min_size=5, max_size=5),
    st.integers(0, 60),
    st.sampled_from([UNICODE, ASCII]),
)
def test_a_split_gauge_has_its_width_whatever_the_figures(
    figures: list[int], width: int, glyphs: Glyphs
) -> None:
    allocated, reserved, used, low, high = figures
    memory = MemoryReading(100, used, None, low, high)
    allocator = AllocatorReading(allocated_bytes=allocated, reserved_bytes=reserved)
    assert line_width(draw_split_gauge(memory, allocator, 100, width, glyphs)) == width
