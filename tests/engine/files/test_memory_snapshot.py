"""Reader of memory snapshots: every dialect comes to the same columns."""

import gzip
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.components import require_package
from tests.warm.starter import run_warm
from vramscope.engine.files.memory_snapshot import (
    UNMEASURED,
    BlockState,
    Frame,
    MemorySnapshot,
    TraceAction,
    read_memory_snapshot,
)

from .snapshots import (
    BASE,
    EMBED,
    LINEAR,
    MIB,
    block,
    event,
    free,
    segment,
    small_snapshot,
    snapshot,
    write_snapshot,
)


def read(tmp_path: Path, root: object, protocol: int = 4) -> MemorySnapshot:
    return read_memory_snapshot(write_snapshot(tmp_path, root, protocol=protocol))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_columns_hold_what_the_file_says(tmp_path: Path, protocol: int) -> None:
    found = read(tmp_path, small_snapshot(), protocol)
    assert list(found.segments.address) == [BASE, BASE + 64 * MIB]
    assert list(found.segments.total_bytes) == [20 * MIB, 20 * MIB]
    assert list(found.segments.first_block) == [0, 3, 4]
    assert list(found.blocks.address) == [BASE, BASE + 6 * MIB, BASE + 8 * MIB, BASE + 64 * MIB]
    assert list(found.blocks.size_bytes) == [6 * MIB, 2 * MIB, 12 * MIB, 20 * MIB]
    assert list(found.blocks.requested_bytes) == [6 * MIB, 0, 12 * MIB, 0]
    assert [BlockState(code).name for code in found.blocks.state] == [
        "ALLOCATED",
        "INACTIVE",
        "ALLOCATED",
        "INACTIVE",
    ]
    assert found.path == tmp_path / "snapshot.pickle"
    assert found.notes == ()


def test_stacks_are_kept_once_and_innermost_first(tmp_path: Path) -> None:
    blocks = [block(MIB, frames=[dict(each) for each in LINEAR]) for _ in range(5)]
    found = read(tmp_path, snapshot([segment([*blocks, block(MIB, frames=EMBED), free(MIB)])]))
    assert len(found.stacks) == 2
    assert len(found.stacks.frames) == 4
    assert set(found.blocks.stack[:5]) == {found.blocks.stack[0]}
    assert [each.name for each in found.stacks.frames_of(found.blocks.stack[0])] == [
        "forward",
        "block",
        "<module>",
    ]
    assert found.stacks.frames_of(found.blocks.stack[5])[0] == Frame("/job/model.py", 12, "forward")
    assert found.blocks.stack[6] == UNMEASURED
    assert found.stacks.frames_of(UNMEASURED) == ()


def test_many_stacks_that_differ_in_one_frame_stay_apart(tmp_path: Path) -> None:
    frames = [{"filename": "a.py", "line": line, "name": "f"} for line in range(300)]
    common = frames[:10]
    stacks = [[*common[:3], frames[50 + number], *common[3:], *common] for number in range(60)]
    blocks = [block(MIB, frames=list(stacks[number % 60])) for number in range(120)]
    found = read(tmp_path, snapshot([segment(blocks)]))
    assert len(found.stacks) == 60
    assert [found.stacks.frames_of(row)[3].line for row in found.blocks.stack] == [
        50 + number % 60 for number in range(120)
    ]
    assert list(found.blocks.stack[:60]) == list(found.blocks.stack[60:])


def test_gzip_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle.gz"
    path.write_bytes(gzip.compress(pickle.dumps(small_snapshot())))
    assert len(read_memory_snapshot(path).blocks) == 4


def test_bare_list_of_segments_is_a_snapshot(tmp_path: Path) -> None:
    found = read(tmp_path, small_snapshot()["segments"])
    assert len(found.segments) == 2
    assert (found.traces, found.settings) == ((), ())


def test_both_spellings_of_pending_free(tmp_path: Path) -> None:
    blocks = [block(MIB, "active_pending_free"), block(MIB, "active_awaiting_free")]
    found = read(tmp_path, snapshot([segment(blocks)]))
    assert list(found.blocks.state) == [BlockState.PENDING_FREE] * 2


def test_history_of_old_files_gives_stack_and_request(tmp_path: Path) -> None:
    old: list[dict[str, Any]] = [
        {
            "size": 4 * MIB,
            "state": "active_allocated",
            "history": [
                {"addr": BASE, "real_size": 4 * MIB - 100, "frames": LINEAR},
                {"addr": BASE, "real_size": 9, "frames": EMBED},
            ],
        },
        {"size": 2 * MIB, "state": "inactive"},
        {"size": 2 * MIB, "state": "active_allocated", "history": []},
    ]
    fields = {"address": BASE, "total_size": 8 * MIB, "segment_type": "large", "blocks": old}
    found = read(tmp_path, {"segments": [fields]}, protocol=2)
    assert list(found.blocks.address) == [BASE, BASE + 4 * MIB, BASE + 6 * MIB]
    assert list(found.blocks.requested_bytes) == [4 * MIB - 100, 0, UNMEASURED]
    assert found.stacks.frames_of(found.blocks.stack[0])[0].filename.endswith("linear.py")
    assert list(found.segments.device) == [0]
    assert (found.segments.pool_owner[0], found.segments.pool_number[0]) == (0, 0)


def test_events_of_each_device_are_columns(tmp_path: Path) -> None:
    events = [
        event("alloc", BASE, 100, 1_000, frames=LINEAR, pool_id=(0, 0), compile_context="N/A"),
        event("free_requested", BASE, 100, 2_000, frames=LINEAR),
        event("free_completed", BASE, 100, 2_001),
        event("segment_map", BASE, 2 * MIB, 2_500),
        event("snapshot", 0, 0, 3_000),
        event("something_new", 0, 0, 3_001),
    ]
    found = read(tmp_path, snapshot([], [], events, trace_alloc_overflowed=[False, True]))
    (trace,) = found.traces
    assert (trace.device, trace.is_overflowed) == (1, True)
    assert [TraceAction(code).name.lower() for code in trace.action] == [
        "alloc",
        "free_requested",
        "free_completed",
        "segment_map",
        "snapshot",
        "other",
    ]
    assert list(trace.time_us) == [1_000, 2_000, 2_001, 2_500, 3_000, 3_001]
    assert trace.stack[0] == trace.stack[1] != UNMEASURED
    assert trace.stack[2] == UNMEASURED
    assert found.devices == (1,)


def test_oom_event_tells_what_was_free(tmp_path: Path) -> None:
    events = [event("oom", 5 * MIB, 64 * MIB, 7, frames=EMBED), {"action": "alloc", "addr": 1, "size": 2}]
    (trace,) = read(tmp_path, snapshot([], events)).traces
    assert (trace.address[0], trace.size_bytes[0]) == (5 * MIB, 64 * MIB)
    assert (trace.stream[1], trace.time_us[1]) == (0, UNMEASURED)
    assert trace.is_overflowed is None


def test_addresses_take_all_64_bits(tmp_path: Path) -> None:
    high = 0xFF00_0000_0020_0000
    signed = event("alloc", high - 2**64, 512, 1)
    found = read(tmp_path, snapshot([segment([block(MIB)], high)], [signed]))
    assert found.blocks.address[0] == found.segments.address[0] == found.traces[0].address[0] == high


def test_settings_and_annotations_are_text(tmp_path: Path) -> None:
    marks = [{"device": 0, "time_us": 5, "name": "ProfilerStep#3", "stage": "START", "extra": None}]
    found = read(tmp_path, snapshot([], external_annotations=marks, trace_alloc_max_entries=[100]))
    assert dict(found.settings)["roundup_power2_divisions"] == "1:0,2:0"
    assert dict(found.settings)["max_split_size"] == "-1"
    (mark,) = found.annotations
    assert (mark.name, mark.stage, mark.time_us) == ("ProfilerStep#3", "START", 5)


def test_blocks_that_do_not_add_up_are_noted(tmp_path: Path) -> None:
    found = read(tmp_path, snapshot([segment([block(MIB)], total_size=3 * MIB)]))
    assert found.notes == ("1 segment has blocks that do not add up to their size",)


PROFILE = """
import pickle, sys, torch
from torch.cuda._memory_viz import _profile_to_snapshot
from torch.profiler import profile

model = torch.nn.Linear(64, 128)
with profile(profile_memory=True, record_shapes=True, with_stack=True) as profiler:
    kept = model(torch.randn(32, 64))
with open(sys.argv[1], "wb") as file:
    pickle.dump(_profile_to_snapshot(profiler), file)
"""


def test_snapshot_that_pytorch_makes_of_a_profile_is_read(tmp_path: Path) -> None:
    require_package("torch")
    path = tmp_path / "profile.pickle"
    script = tmp_path / "train_step.py"
    script.write_text(PROFILE)
    result = run_warm((str(script), str(path)), tmp_path, os.environ, 110.0)
    assert result.returncode == 0, result.stderr
    found = read_memory_snapshot(path)
    live = sum(
        size
        for size, state in zip(found.blocks.size_bytes, found.blocks.state, strict=True)
        if state == BlockState.ALLOCATED
    )
    assert live >= 4 * 32 * 128
    assert any("made from a profile" in note for note in found.notes)
    assert any(each.filename.endswith("train_step.py") and each.line > 0 for each in found.stacks.frames)
    assert TraceAction.ALLOC in found.traces[0].action
