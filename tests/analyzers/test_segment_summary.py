"""What the segments of an allocator come to."""

from vramscope.analyzers.segments import find_stranded, summarize_segments
from vramscope.engine.model import Segment, SegmentMap
from vramscope.engine.model.sample import ALLOCATED, AWAITING_FREE, FREE
from vramscope.engine.units import MIB


def segment(*blocks: tuple[int, int], address: int = 0, **changes: object) -> Segment:
    fields: dict[str, object] = {"pool": "large", "stream": 0, **changes}
    total = sum(size for size, _ in blocks)
    return Segment(address=address, total_bytes=total, blocks=blocks, **fields)  # type: ignore[arg-type]  # a test's own


def test_free_blocks_are_stranded_where_a_neighbour_is_in_use() -> None:
    assert find_stranded(segment((4 * MIB, ALLOCATED), (8 * MIB, FREE))) == 8 * MIB
    assert find_stranded(segment((4 * MIB, AWAITING_FREE), (8 * MIB, FREE))) == 8 * MIB
    assert find_stranded(segment((12 * MIB, FREE))) == 0
    assert find_stranded(segment((12 * MIB, ALLOCATED))) == 0


def test_of_an_expandable_segment_only_the_ends_of_free_blocks_that_share_a_page_are_stranded() -> None:
    blocks = ((3 * MIB, ALLOCATED), (8 * MIB, FREE), (MIB, ALLOCATED))
    assert find_stranded(segment(*blocks, pool="small", is_expandable=True)) == 2 * MIB
    assert find_stranded(segment(*blocks, pool="large", is_expandable=True)) == 8 * MIB
    tail = ((4 * MIB, ALLOCATED), (8 * MIB, FREE))
    assert find_stranded(segment(*tail, pool="small", is_expandable=True, address=MIB)) == 0
    pages = ((30 * MIB, ALLOCATED), (35 * MIB, FREE), (5 * MIB, ALLOCATED))
    assert find_stranded(segment(*pages, is_expandable=True)) == 15 * MIB


def test_a_summary_adds_up_and_leaves_private_pools_out_of_what_can_be_used() -> None:
    found = summarize_segments(
        SegmentMap(
            "node03",
            1,
            None,
            0.0,
            (
                segment((20 * MIB, ALLOCATED)),
                segment((5 * MIB, ALLOCATED), (10 * MIB, FREE), (5 * MIB, AWAITING_FREE)),
                segment((2 * MIB, FREE), pool="small"),
                segment((32 * MIB, FREE), (32 * MIB, ALLOCATED), is_private=True),
            ),
        )
    )
    assert (found.large, found.small, found.private) == (2, 1, 1)
    assert found.total_bytes == found.live_bytes + found.awaiting_bytes + found.free_bytes == 106 * MIB
    assert (found.awaiting_bytes, found.free_bytes) == (5 * MIB, 44 * MIB)
    assert (found.stranded_segments, found.stranded_bytes) == (2, 42 * MIB)
    assert found.largest_free_bytes == 10 * MIB


def test_no_segments_come_to_nothing() -> None:
    found = summarize_segments(SegmentMap("node03", 1, None, 0.0, ()))
    assert (found.total_bytes, found.largest_free_bytes, found.large) == (0, 0, 0)
