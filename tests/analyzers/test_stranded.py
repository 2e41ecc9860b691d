"""Row by row, column by column: the stranded bytes of a segment are the same figure."""

from typing import Literal

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.engine.files.snapshots import BASE, MIB, block, free, segment, snapshot
from vramscope.analyzers.segments import find_stranded
from vramscope.analyzers.snapshot_summary.view import view_device
from vramscope.engine.files.memory_snapshot import convert_tree
from vramscope.engine.model import Segment
from vramscope.engine.model.sample import ALLOCATED, AWAITING_FREE, FREE

Blocks = list[tuple[int, int]]
Shape = tuple[Blocks, Literal["small", "large"], bool]

SPELLED = {FREE: "inactive", ALLOCATED: "active_allocated", AWAITING_FREE: "active_pending_free"}
STEP = MIB // 2

blocks = st.lists(
    st.tuples(st.integers(1, 120), st.sampled_from([FREE, ALLOCATED, AWAITING_FREE])), min_size=1
)
shapes = st.lists(
    st.tuples(blocks, st.sampled_from(["small", "large"]), st.booleans()), min_size=1, max_size=5
)


@settings(deadline=None)
@given(shapes)
@example([([(60, ALLOCATED), (70, FREE), (10, ALLOCATED)], "large", True)])
@example([([(1, ALLOCATED), (4, FREE), (3, FREE)], "small", True)])
def test_the_columns_say_what_the_rows_say(found: list[Shape]) -> None:
    rows, tree = [], []
    address = BASE + STEP  # not at the start of a page: pages are counted from the segment's
    for shape, pool, is_expandable in found:
        laid = tuple((size * STEP, state) for size, state in shape)
        total = sum(size for size, _ in laid)
        rows.append(Segment(address, total, pool, 0, laid, is_expandable))
        spelled = [free(s) if state == FREE else block(s, SPELLED[state]) for s, state in laid]
        tree.append(segment(spelled, address, segment_type=pool, is_expandable=is_expandable))
        address += total + STEP
    view = view_device(convert_tree(snapshot(tree)), 0)
    assert view.stranded_bytes.tolist() == [find_stranded(row) for row in rows]
