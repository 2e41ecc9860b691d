"""Segment maps: packed into parts that the hub can put together, bounded, and never with traces."""

import base64
import zlib
from types import SimpleNamespace
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.probe.stand_in import StandInCuda, make_segment
from vramscope.engine.probe.flight_record import (
    MOST_SEGMENT_BLOCKS,
    bound_segments,
    can_snapshot,
    pack_segments,
    take_snapshot,
)
from vramscope.engine.probe.wire import PART_CHARACTERS
from vramscope.engine.ranks.messages import ProbedSegments

STATES = {"inactive": 0, "active_allocated": 1, "active_awaiting_free": 2, "active_pending_free": 2}


def unpack(pieces: list[str]) -> ProbedSegments:
    """Return a segment map as the hub puts it together."""
    assert all(len(piece) <= PART_CHARACTERS for piece in pieces)
    return msgspec.json.decode(zlib.decompress(base64.b64decode("".join(pieces))), type=ProbedSegments)


@given(
    blocks=st.lists(st.lists(st.tuples(st.integers(1, 2**40), st.sampled_from(sorted(STATES)))), max_size=8),
    private=st.booleans(),
)
def test_every_block_arrives_as_it_was(blocks: list[list[tuple[int, str]]], private: bool) -> None:
    pool = (0, 1) if private else (0, 0)
    segments = [
        make_segment(each, address=number << 40, segment_pool_id=pool, segment_type="small")
        for number, each in enumerate(blocks)
    ]
    found = unpack(pack_segments(segments, 12.5))
    assert found.time_s == 12.5
    assert found.left_out == 0
    assert found.segments == tuple(
        (
            number << 40,
            sum(size for size, _ in each),
            0,
            0,
            False,
            private,
            tuple((size, STATES[state]) for size, state in each),
        )
        for number, each in enumerate(blocks)
    )


def test_older_segments_without_newer_fields_are_large_and_shared() -> None:
    segment = make_segment([(512, "inactive")])
    for name in ("segment_pool_id", "is_expandable", "device"):
        del segment[name]
    assert unpack(pack_segments([segment], 0.0)).segments[0][2:6] == (1, 0, False, False)


def test_the_smallest_segments_are_left_out_where_there_are_too_many_blocks() -> None:
    large = make_segment([(1 << 20, "active_allocated")] * (MOST_SEGMENT_BLOCKS - 1), address=1)
    segments = [make_segment([(512, "inactive")] * 2, address=9), large]
    found = unpack(pack_segments(segments, 0.0))
    assert [segment[0] for segment in found.segments] == [1]
    assert found.left_out == 1
    assert bound_segments(segments, 10**9) == (segments, 0)


def test_live_blocks_are_gathered_by_their_stacks_largest_first() -> None:
    segments = [
        make_segment([(100, "active_allocated"), (7, "inactive"), (900, "active_allocated")], frames=2),
        make_segment([(100, "active_allocated")] * 3, frames=2),
    ]
    stacks = unpack(pack_segments(segments, 0.0)).live_stacks
    assert [(size, count) for size, count, _ in stacks] == [(900, 1), (400, 4)]
    assert stacks[1][2] == (("/code/layer_100.py", 10, "f0"), ("/code/layer_100.py", 11, "f1"))
    assert unpack(pack_segments([make_segment([(100, "active_allocated")])], 0.0)).live_stacks == ()


def test_only_a_snapshot_without_traces_is_ever_taken() -> None:
    cuda = StandInCuda(2)
    cuda.segments = [make_segment([(512, "inactive")]), make_segment([(512, "inactive")], device=1)]
    assert can_snapshot(cuda, is_history_on=True)
    assert take_snapshot(cuda, 1) == [cuda.segments[1]]
    older: Any = SimpleNamespace(memory_snapshot=lambda: cuda.segments)
    assert not can_snapshot(older, is_history_on=True)
    assert can_snapshot(older, is_history_on=False)
    assert take_snapshot(older, None) == cuda.segments
    assert not can_snapshot(None, is_history_on=False)
