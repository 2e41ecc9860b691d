"""What a snapshot says: levels, fullness, fragmentation, stacks and sentences."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.files.snapshots import (
    BASE,
    EMBED,
    LINEAR,
    MIB,
    block,
    frame,
    free,
    segment,
    small_snapshot,
    snapshot,
)
from vramscope.analyzers.snapshot_summary import DeviceSummary, summarize_snapshot
from vramscope.engine.files.memory_snapshot import convert_tree


def summarize(root: object, *, top: int = 20) -> DeviceSummary:
    (device,) = summarize_snapshot(convert_tree(root), top=top).devices
    return device


def test_levels_of_a_half_empty_device() -> None:
    levels = summarize(small_snapshot()).levels
    assert (levels.reserved_bytes, levels.allocated_bytes) == (40 * MIB, 18 * MIB)
    assert (levels.free_bytes, levels.largest_free_bytes) == (22 * MIB, 20 * MIB)
    assert (levels.stranded_bytes, levels.stranded_segments) == (2 * MIB, 1)
    assert levels.releasable_bytes == 20 * MIB
    assert (levels.segments, levels.blocks, levels.live_blocks) == (2, 4, 2)


def test_internal_is_what_nobody_asked_for() -> None:
    levels = summarize(snapshot([segment([block(MIB, requested=MIB - 100), free(MIB)])])).levels
    assert (levels.requested_bytes, levels.internal_bytes) == (MIB - 100, 100)


def test_internal_is_unmeasured_where_one_request_is() -> None:
    unknown = block(MIB)
    del unknown["requested_size"]
    levels = summarize(snapshot([segment([unknown, block(MIB)])])).levels
    assert (levels.requested_bytes, levels.internal_bytes) == (None, None)


def test_pending_blocks_are_active_and_not_allocated() -> None:
    levels = summarize(snapshot([segment([block(MIB, "active_pending_free"), block(2 * MIB)])])).levels
    assert (levels.allocated_bytes, levels.active_bytes) == (2 * MIB, 3 * MIB)


@pytest.mark.parametrize(
    ("kind", "before", "hole", "stranded"),
    [
        ("small", 2 * MIB, 8 * MIB, 0),  # whole pages can be unmapped
        ("small", MIB, 8 * MIB, 2 * MIB),  # a half page on either side
        ("small", MIB, MIB, MIB),  # ends with its page, but begins within
        ("small", 512, MIB, MIB),  # within one page
        ("large", 20 * MIB, 40 * MIB, 0),
        ("large", 2 * MIB, 40 * MIB, 20 * MIB),  # pages are larger there
        ("large", 2 * MIB, 17 * MIB, 17 * MIB),
    ],
)
def test_expandable_segments_strand_only_parts_of_pages(
    kind: str, before: int, hole: int, stranded: int
) -> None:
    blocks = [block(before), free(hole), block(MIB)]
    root = snapshot([segment(blocks, BASE + MIB, is_expandable=True, segment_type=kind)])
    levels = summarize(root).levels
    assert levels.stranded_bytes == stranded
    assert levels.releasable_bytes == hole - stranded


def test_fullness_has_a_band_for_every_kind() -> None:
    shapes: list[list[dict[str, Any]]] = [
        [free(4 * MIB)],
        [block(MIB), free(7 * MIB)],
        [block(MIB), free(3 * MIB)],
        [block(2 * MIB), free(2 * MIB)],
        [block(3 * MIB), free(MIB)],
        [block(4 * MIB)],
    ]
    segments = [segment(shape, BASE + number * 64 * MIB) for number, shape in enumerate(shapes)]
    bands = summarize(snapshot(segments)).fullness
    assert [(band.label, band.segments) for band in bands] == [
        ("empty", 1),
        ("under 25 %", 1),
        ("25 to 50 %", 1),
        ("50 to 75 %", 1),
        ("75 % and more", 1),
        ("full", 1),
    ]
    assert sum(band.free_bytes for band in bands) == 17 * MIB


def test_fragmentation_is_that_of_a_pool_and_stream() -> None:
    segments = [
        segment([free(3 * MIB), block(MIB), free(MIB)]),
        segment([block(MIB), free(MIB)], BASE + 64 * MIB, stream=7),
        segment([block(MIB)], BASE + 128 * MIB, segment_type="small"),
        segment([free(MIB)], BASE + 192 * MIB, segment_pool_id=(0, 1)),
    ]
    pools = {
        (pool.pool_id, pool.stream, pool.kind): pool.external_fragmentation
        for pool in summarize(snapshot(segments)).pools
    }
    assert pools == {
        ((0, 0), 0, "large"): 0.25,
        ((0, 0), 7, "large"): 0.0,
        ((0, 0), 0, "small"): None,
        ((0, 1), 0, "large"): 0.0,
    }


def test_stacks_are_led_by_the_line_of_the_user() -> None:
    device = summarize(small_snapshot())
    embed, linear = device.stacks
    assert (embed.size_bytes, embed.count) == (12 * MIB, 1)
    assert embed.share == pytest.approx(2 / 3)
    assert linear.headline is not None
    assert (linear.headline.filename, linear.headline.line) == ("/job/model.py", 40)
    assert [each.name for each in linear.frames] == ["forward", "block", "<module>"]


def test_stacks_that_differ_only_in_native_frames_are_one() -> None:
    native = [frame(name, "??", 0) for name in ("at::empty", "at::matmul")]
    blocks = [block(MIB, frames=[each, *LINEAR]) for each in native]
    (group,) = summarize(snapshot([segment(blocks)])).stacks
    assert (group.count, len(group.frames)) == (2, 3)


def test_groups_beyond_the_top_are_counted() -> None:
    blocks = [block((line + 1) * MIB, frames=[frame("f", "a.py", line)]) for line in range(5)]
    device = summarize(snapshot([segment(blocks)]), top=2)
    assert [group.size_bytes for group in device.stacks] == [5 * MIB, 4 * MIB]
    assert device.stack_groups == 5


def test_sentences_say_what_is_live_stranded_and_too_large() -> None:
    first, *_, last = summarize(small_snapshot()).sentences
    assert first == (
        "18 MiB of 40 MiB reserved are live; 2 MiB are stranded in 1 segment; "
        "the largest free block is 20 MiB, so a request of 32 MiB would need a new segment"
    )
    assert last == "67 % of the live bytes (12 MiB in 1 block) come from forward at /job/model.py:12"


def test_snapshot_without_history_says_how_to_get_stacks() -> None:
    device = summarize(snapshot([segment([block(MIB)])]))
    assert "_record_memory_history()" in device.sentences[-1]


def test_blocks_from_before_the_history_are_told_apart() -> None:
    device = summarize(snapshot([segment([block(5 * MIB), block(MIB, frames=EMBED)])]))
    assert device.sentences[-2:] == (
        "17 % of the live bytes (1 MiB in 1 block) come from forward at /job/model.py:12",
        "83 % of the live bytes (5 MiB in 1 block) have no stack: "
        "they were allocated before recording started",
    )


def test_each_device_is_summed_up_for_itself() -> None:
    segments = [
        segment([block(MIB, frames=LINEAR)]),
        segment([block(3 * MIB, frames=EMBED)], BASE + 64 * MIB, device=1),
    ]
    summary = summarize_snapshot(convert_tree(snapshot(segments)))
    assert [(each.device, each.levels.allocated_bytes) for each in summary.devices] == [
        (0, MIB),
        (1, 3 * MIB),
    ]


def test_empty_snapshot_has_no_devices() -> None:
    assert summarize_snapshot(convert_tree(snapshot([]))).devices == ()


shapes = st.lists(
    st.lists(
        st.tuples(st.integers(1, 40_000), st.sampled_from(["inactive", "active_allocated"])), max_size=6
    ),
    max_size=5,
)


@settings(deadline=None)
@given(shapes, st.booleans())
def test_bytes_are_conserved(shape: list[list[tuple[int, str]]], is_expandable: bool) -> None:
    segments = [
        segment(
            [block(512 * size, state) for size, state in rows],
            BASE + number * 1024 * MIB,
            is_expandable=is_expandable,
        )
        for number, rows in enumerate(shape)
    ]
    for device in summarize_snapshot(convert_tree(snapshot(segments))).devices:
        levels = device.levels
        assert levels.active_bytes + levels.free_bytes == levels.reserved_bytes
        assert levels.stranded_bytes + levels.releasable_bytes == levels.free_bytes
        assert sum(group.size_bytes for group in device.stacks) == levels.active_bytes
        assert sum(band.total_bytes for band in device.fullness) == levels.reserved_bytes
        assert sum(pool.free_bytes for pool in device.pools) == levels.free_bytes
        assert sum(pool.stranded_bytes for pool in device.pools) == levels.stranded_bytes


# As `record_memory_history(stacks="all")` writes them.
RECORDER = [
    frame("torch::unwind::unwind()", "??", 0),
    frame("torch::CapturedTraceback::gather(bool, bool, bool)", "??", 0),
    frame("torch::cuda::(anonymous namespace)::gather_with_cpp()", "Module.cpp", 0),
    frame(
        "c10::cuda::CUDACachingAllocator::Native::(anonymous namespace)::DeviceCachingAllocator::malloc("
        "unsigned long, CUstream_st*)",
        "??",
        0,
    ),
    frame(
        "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)", "??", 0
    ),
]


def test_memory_of_the_backward_pass_belongs_to_its_operation_not_to_what_makes_tensors() -> None:
    making = frame("at::TensorBase at::detail::_empty_generic<long>(c10::ArrayRef<long>)", "", 0)
    node = frame("torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>&&)", "??", 0)
    engine = frame(
        "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask>)", "??", 0
    )
    (device,) = summarize_snapshot(
        convert_tree(snapshot([segment([block(4 * MIB, frames=[*RECORDER, making, node, engine])])]))
    ).devices
    (stack,) = device.stacks
    assert stack.headline is not None
    assert stack.headline.name.startswith("torch::autograd::generated::BmmBackward0")


def test_what_records_a_stack_never_owns_the_memory() -> None:
    asker = frame("at::native::cudnn_convolution(at::Tensor const&)", "Conv_v8.cpp", 0)
    device = summarize(
        snapshot(
            [
                segment(
                    [
                        block(4 * MIB, frames=[*RECORDER, asker]),
                        block(3 * MIB, frames=RECORDER),
                        block(2 * MIB),
                        block(MIB, frames=[*RECORDER, *EMBED]),
                    ]
                )
            ]
        )
    )
    without, native, python = device.stacks
    assert native.headline is not None
    assert native.headline.name.startswith("at::native::cudnn_convolution")
    assert python.headline is not None
    assert python.headline.filename == "/job/model.py"
    assert (without.headline, without.frames, without.count) == (None, (), 2)
    assert without.size_bytes == 5 * MIB, "as blocks without a stack"
    assert not [sentence for sentence in device.sentences if "unwind" in sentence or "gather" in sentence]
