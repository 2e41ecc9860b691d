"""Segment maps: external fragmentation by pool and stream, and which sizes can still be served."""

import pytest

from vramscope.analyzers.fragmentation import (
    FragmentationAnalyzer,
    describe_pattern,
    judge_usability,
    measure_map,
)
from vramscope.analyzers.fragmentation.segment_maps import find_segment_size
from vramscope.engine.model import Segment, SegmentMap
from vramscope.engine.model.sample import ALLOCATED, AWAITING_FREE, FREE
from vramscope.engine.units import GIB, MIB

from .jobs import Job, vary

A, W, F = ALLOCATED, AWAITING_FREE, FREE


def segment(*blocks: tuple[int, int], stream: int = 0, **facts: bool) -> Segment:
    sized = tuple((size * MIB, state) for size, state in blocks)
    return Segment(0, sum(size for size, _ in sized), "large", stream, sized, **facts)


def map_of(*segments: Segment, time_s: float = 5.0) -> SegmentMap:
    return SegmentMap("n", 7, "GPU-0", time_s, segments)


def test_external_fragmentation_is_of_one_pool_and_stream() -> None:
    found = measure_map(
        map_of(
            segment((10, F), (10, A), (30, F)),
            segment((40, F), (20, W), stream=3),
            segment((90, F), (10, A), is_private=True),
        )
    )
    assert [(pool.stream, pool.is_private, pool.external) for pool in found.pools] == [
        (0, True, 0.0),
        (0, False, 0.25),
        (3, False, 0.0),
    ]
    assert (found.external, found.largest_free_bytes) == (0.25, 40 * MIB)
    assert (found.free_bytes, found.free_blocks, found.stranded_bytes) == (170 * MIB, 4, 170 * MIB)


def test_a_whole_free_segment_is_cache_and_expandable_ones_strand_only_parts_of_pages() -> None:
    assert measure_map(map_of(segment((50, F)))).stranded_bytes == 0
    expandable = segment((30, A), (35, F), (15, A), is_expandable=True)
    assert measure_map(map_of(expandable)).stranded_bytes == 15 * MIB
    assert measure_map(map_of(segment((30, A), (35, F), (15, A)))).stranded_bytes == 35 * MIB


def test_nothing_free_is_no_ratio() -> None:
    assert measure_map(map_of(segment((10, A)))).external is None
    assert measure_map(map_of()).external is None


def test_sizes_of_the_job_and_whether_one_more_can_be_had() -> None:
    fragmented = map_of(segment((40, A), (30, F), (40, A), (30, F)), segment((2, A)))
    large, small = judge_usability(fragmented, 50 * MIB)
    assert (large.size_bytes, large.count, large.servable, large.is_servable) == (40 * MIB, 2, 0, True)
    assert (small.servable, small.is_servable) == (30, True)
    assert judge_usability(fragmented, 20 * MIB)[0].is_servable is False
    assert judge_usability(fragmented, None)[0].is_servable is None


def test_free_blocks_of_another_stream_or_of_a_private_pool_serve_nobody() -> None:
    elsewhere = map_of(
        segment((10, A)), segment((100, F), stream=1), segment((10, A), (100, F), is_private=True)
    )
    (size,) = judge_usability(elsewhere, 0)
    assert (size.count, size.servable, size.is_servable) == (1, 0, False)


@pytest.mark.parametrize(
    ("size_mib", "fixed_mib", "grown_mib"), [(0.5, 2, 2), (5, 20, 20), (15, 16, 20), (45, 46, 60)]
)
def test_what_the_device_must_give_for_a_size(size_mib: float, fixed_mib: int, grown_mib: int) -> None:
    size = round(size_mib * MIB)
    assert find_segment_size(size) == fixed_mib * MIB
    assert find_segment_size(size, is_expandable=True) == grown_mib * MIB


def test_requests_may_be_given() -> None:
    (size,) = judge_usability(map_of(segment((100, F))), None, [(30 * MIB, 0, 5)])
    assert (size.servable, size.count) == (3, 5)


def test_live_blocks_by_class_of_size() -> None:
    pattern = describe_pattern(map_of(segment((10, A), (64, A), (300, A), (2048, A), (500, F))))
    assert list(pattern.sizes.values()) == [1, 1, 1, 1]
    assert pattern.average_bytes == (10 + 64 + 300 + 2048) * MIB / 4
    assert pattern.allocations_per_s is None
    assert describe_pattern(map_of()).average_bytes is None


def test_a_map_enriches_the_readings_of_its_process_and_decides_nothing() -> None:
    analyzer = FragmentationAnalyzer()
    for sample in Job(4 * GIB, vary(1, 4000, 12000)).run(20):
        analyzer.observe(sample)
    (before,) = analyzer.readings()
    analyzer.take_map(map_of(segment((10, A), (30, F), (10, A), (10, F))))
    (after,) = analyzer.readings()
    assert (before.measure, before.external) == ("stranded", None)
    assert (after.measure, after.external, after.ratio) == ("external", 0.25, 0.25)
    assert (after.free_blocks, after.map_s, after.stranded_source) == (2, 5.0, "counter")
    assert after.internal == before.internal
