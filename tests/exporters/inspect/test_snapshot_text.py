"""The text of a snapshot: fits its width, says what matters first, disturbs no terminal."""

import json

import pytest

from tests.engine.files.snapshots import MIB, block, frame, segment, small_snapshot, snapshot
from vramscope.analyzers.sentence import count_cells
from vramscope.analyzers.snapshot_summary import summarize_snapshot
from vramscope.engine.files.memory_snapshot import convert_tree
from vramscope.exporters.inspect.text import describe_snapshot
from vramscope.exporters.json_lines import encode_line


def describe(root: object, width: int = 80, top: int = 10) -> str:
    return describe_snapshot(convert_tree(root), width=width, top=top)


def test_report_of_a_small_snapshot() -> None:
    text = describe(small_snapshot())
    assert text.startswith("device 0\n  18 MiB of 40 MiB reserved are live; 2 MiB are stranded in 1 segment;")
    assert "\n  reserved    40 MiB  2 segments, 4 blocks\n" in text
    assert "\nlive blocks by stack (all of them)\n" in text
    assert "\n  12 MiB  66.7 %  1 block  forward\n    > forward  /job/model.py:12\n" in text
    assert "\n    > block  /job/model.py:40\n" in text


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_asked(width: int) -> None:
    long = [frame("a_function_with_a_very_long_name_" * 3, "/deep/" * 30 + "内存.py", 1234567)] * 40
    text = describe(snapshot([segment([block(MIB, frames=long)])]), width)
    assert max(map(count_cells, text.splitlines())) <= width
    assert "28 more" in text


def test_control_characters_of_a_file_do_not_reach_the_terminal() -> None:
    evil = [frame("f\x1b[31m", "a\nb.py")]
    text = describe(snapshot([segment([block(MIB, frames=evil)])], allocator_settings={"x\x07": "\x1b]0;"}))
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("1:0,2:0,4:0,32768:0", "roundup=0"),
        ("1:0,2:4,4:4", "roundup=1:0,2:4,4:4"),
        ("a,b", "roundup=a,b"),
        ("0.8", "roundup=0.8"),
    ],
)
def test_a_setting_of_all_sizes_is_shown_as_it_can_be_written(recorded: str, shown: str) -> None:
    assert describe(snapshot([], allocator_settings={"roundup": recorded})).endswith(f"settings: {shown}\n")


def test_an_error_at_a_time_that_no_calendar_has_is_told_all_the_same() -> None:
    events = [[{"action": "oom", "addr": 0, "size": MIB, "stream": 0, "time_us": 2**62, "frames": []}]]
    assert "out of memory at an unknown time: 1 MiB requested" in describe(snapshot([], device_traces=events))


def test_top_bounds_the_stacks() -> None:
    blocks = [block(MIB, frames=[frame("f", "a.py", line)]) for line in range(5)]
    assert "(2 of 5 stacks)" in describe(snapshot([segment(blocks)]), top=2)


def test_empty_snapshot_says_so() -> None:
    assert describe([]).startswith("no segments and no events")


def test_json_form_carries_its_schema_and_numbers() -> None:
    content = json.loads(encode_line(summarize_snapshot(convert_tree(small_snapshot()))))
    assert content["schema"] == "vramscope.snapshot/1"
    (device,) = content["devices"]
    assert device["levels"]["reserved_bytes"] == 40 * MIB
    assert device["stacks"][0]["headline"] == {"filename": "/job/model.py", "line": 12, "name": "forward"}


@pytest.mark.parametrize(
    ("marker", "head", "told"),
    [
        (
            {"total_bytes": 24 << 30, "name": "Modelled"},
            "simulated device of 24.0 GiB, Modelled: values",
            {"total_bytes": 24 << 30, "name": "Modelled"},
        ),
        (
            {"total_bytes": "x", "name": 3},
            "simulated device: values",
            {"total_bytes": None, "name": None},
        ),
        (True, "simulated device: values", {"total_bytes": None, "name": None}),
        (None, "device 0", None),
    ],
)
def test_snapshot_of_a_simulated_device_says_so_first(marker: object, head: str, told: object) -> None:
    root = snapshot([segment([block(MIB)])], allocator_settings={"a": "1", "vramscope_simulated": marker})
    text = describe(root)
    assert text.startswith(head)
    assert "vramscope_simulated" not in text
    content = json.loads(encode_line(summarize_snapshot(convert_tree(root))))
    assert content["simulated"] == told
    assert content["settings"] == [["a", "1"]]
