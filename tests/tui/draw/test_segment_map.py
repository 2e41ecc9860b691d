"""The segment map: as long as segments are large, as dense as they are full, stranded blocks marked."""

from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.model import Segment, SegmentMap
from vramscope.engine.units import MIB
from vramscope.tui.draw.blocks import LABEL_CELLS, draw_segment_map
from vramscope.tui.draw.glyphs import ASCII, UNICODE, Glyphs
from vramscope.tui.draw.spans import Span, line_text, line_width


def _segment(*blocks_mib: tuple[int, int], **changes: object) -> Segment:
    blocks = tuple((size * MIB, state) for size, state in blocks_mib)
    fields: dict[str, object] = {"address": 0, "pool": "large", "stream": 0, **changes}
    return Segment(total_bytes=sum(size for size, _ in blocks), blocks=blocks, **fields)  # type: ignore[arg-type]  # a test's own


def _map(*segments: Segment) -> SegmentMap:
    return SegmentMap("node03", 1, None, 0.0, segments)


def _draw(*segments: Segment, width: int = 40, rows: int = 4, glyphs: Glyphs = UNICODE) -> list[str]:
    lines, _ = draw_segment_map(_map(*segments), LABEL_CELLS + width, rows, glyphs)
    return [line_text(line) for line in lines]


FULL, HALF, EMPTY = _segment((8, 1)), _segment((2, 1), (4, 0), (2, 1)), _segment((8, 0))


def test_a_segment_is_a_run_of_cells_and_free_blocks_beside_live_ones_are_stranded() -> None:
    assert _draw(FULL, HALF, EMPTY, width=26, rows=1) == [" large        ████████ ██░░░░██ ········"]
    assert _draw(FULL, HALF, EMPTY, width=26, rows=1, glyphs=ASCII) == [
        " large        ######## ##oooo## ........"
    ]


def test_what_is_stranded_stands_out_by_more_than_its_glyph() -> None:
    lines, cell_bytes = draw_segment_map(_map(HALF, EMPTY), LABEL_CELLS + 17, 1, UNICODE)
    assert cell_bytes == MIB
    assert {span.role for span in lines[0] if "░" in span.text} == {"medium"}
    assert {span.role for span in lines[0] if "·" in span.text} == {"faint"}


def test_partly_used_cells_are_lighter_the_less_they_hold() -> None:
    mostly, little = _segment((3, 1), (1, 0)), _segment((1, 1), (3, 0))
    assert _draw(mostly, little, width=2, rows=1) == [" large        ▓▒"]


def test_a_cell_that_is_half_stranded_stands_out_and_one_of_an_expandable_segment_does_not() -> None:
    half, expandable = _segment((2, 1), (2, 0)), _segment((2, 1), (2, 0), is_expandable=True)
    lines, _ = draw_segment_map(_map(half, expandable), LABEL_CELLS + 1, 2, UNICODE)
    assert [line[-1] for line in lines] == [Span("▒", "medium"), Span("▒", "fill")]


def test_an_expandable_segment_strands_nothing_that_is_a_whole_cell() -> None:
    assert _draw(_segment((2, 1), (2, 0), is_expandable=True), width=4, rows=1) == [" expandable   ██··"]


def test_pools_are_drawn_by_themselves() -> None:
    lines = _draw(
        FULL,
        _segment((1, 1), (1, 0), pool="small"),
        _segment((4, 2), is_private=True),
        _segment((4, 1), is_expandable=True),
    )
    assert [line.split()[0] for line in lines] == ["large", "expandable", "small", "private"]


def test_cells_grow_until_the_map_fits_and_many_segments_take_a_cell_each() -> None:
    small = [_segment((3, 1), (1, 0), pool="small") for _ in range(100)]
    assert _draw(*small, width=50, rows=2) == [" small        " + "▓" * 50, " " * 14 + "▓" * 50]
    assert len(_draw(*small, width=10, rows=2)) == 10, "a segment has a cell at least, so the map is longer"
    assert draw_segment_map(_map(_segment((64, 1))), LABEL_CELLS + 8, 1, UNICODE)[1] == 8 * MIB
    assert draw_segment_map(_map(_segment((64, 1))), LABEL_CELLS + 8, 2, UNICODE)[1] == 4 * MIB


def test_a_long_segment_goes_on_in_the_next_row() -> None:
    assert _draw(_segment((16, 1)), width=8, rows=2) == [" large        ████████", " " * 14 + "████████"]


blocks = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 2)), min_size=1, max_size=6)


@given(
    st.lists(
        st.builds(
            lambda found, pool: _segment(*found, pool=pool), blocks, st.sampled_from(["small", "large"])
        ),
        max_size=30,
    ),
    st.integers(1, 60),
    st.integers(1, 8),
)
def test_every_segment_is_drawn_and_no_row_is_too_wide(
    segments: list[Segment], width: int, rows: int
) -> None:
    lines, cell_bytes = draw_segment_map(_map(*segments), LABEL_CELLS + width, rows, ASCII)
    assert all(line_width(line) <= LABEL_CELLS + width for line in lines)
    drawn = sum(len(line_text(line)[LABEL_CELLS:].replace(" ", "")) for line in lines)
    assert drawn == sum(max(1, round(segment.total_bytes / cell_bytes)) for segment in segments)
