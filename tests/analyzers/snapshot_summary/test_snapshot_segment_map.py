"""Segments as a screen draws them."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.files.snapshots import BASE, MIB, block, free, segment, snapshot
from vramscope.analyzers.snapshot_summary import map_segments
from vramscope.analyzers.snapshot_summary.view import join_runs
from vramscope.engine.files.memory_snapshot import convert_tree
from vramscope.engine.model.sample import ALLOCATED, AWAITING_FREE, FREE


def test_row_has_runs_and_figures() -> None:
    blocks = [block(MIB), block(2 * MIB), free(3 * MIB), block(MIB, "active_pending_free"), free(MIB)]
    (row,) = map_segments(convert_tree(snapshot([segment(blocks, stream=5)])), 0)
    assert row.segment.blocks == (
        (3 * MIB, ALLOCATED),
        (3 * MIB, FREE),
        (MIB, AWAITING_FREE),
        (MIB, FREE),
    )
    assert (row.segment.address, row.segment.total_bytes, row.segment.stream) == (BASE, 8 * MIB, 5)
    assert (row.active_bytes, row.largest_free_bytes, row.stranded_bytes) == (4 * MIB, 3 * MIB, 4 * MIB)
    assert (row.block_count, row.segment.pool, row.segment.is_private) == (5, "large", False)


def test_order_and_number_are_as_asked() -> None:
    segments = [
        segment([block(MIB), free(MIB)], BASE + 64 * MIB),
        segment([block(9 * MIB)], BASE),
        segment([block(MIB), free(3 * MIB)], BASE + 128 * MIB),
        segment([block(MIB)], BASE + 192 * MIB, device=1),
    ]
    found = convert_tree(snapshot(segments))
    assert [row.segment.address for row in map_segments(found, 0)] == [
        BASE,
        BASE + 64 * MIB,
        BASE + 128 * MIB,
    ]
    assert map_segments(found, 0, order="size", most=1)[0].segment.total_bytes == 9 * MIB
    assert map_segments(found, 0, order="stranded", most=1)[0].stranded_bytes == 3 * MIB
    assert [row.device for row in map_segments(found, 1)] == [1]


def test_private_pools_are_marked() -> None:
    (row,) = map_segments(convert_tree(snapshot([segment([free(MIB)], segment_pool_id=(0, 3))])), 0)
    assert row.segment.is_private
    assert row.pool_id == (0, 3)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2)), max_size=20))
def test_runs_keep_every_byte_and_have_no_equal_neighbours(blocks: list[tuple[int, int]]) -> None:
    runs = join_runs([size for size, _ in blocks], [state for _, state in blocks])
    spelled = [state for size, state in blocks for _ in range(size)]
    assert [state for size, state in runs for _ in range(size)] == spelled
    assert all(first[1] != second[1] for first, second in pairwise(runs))
