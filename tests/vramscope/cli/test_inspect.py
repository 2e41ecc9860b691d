"""`vramscope inspect` without a screen: text, JSON, and what is told of files that are none."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from ...engine.files import flight_records
from ...engine.files.snapshots import MIB, block, free, segment, small_snapshot, snapshot, write_snapshot
from ...engine.files.test_serving_log import ENGINE, RANKS, ROOM
from ...tui.inspect_files import advised_snapshot
from .running import call, run

OLDEST = [
    {
        "device": 0,
        "address": 4096,
        "total_size": 20 * MIB,
        "allocated_size": 12 * MIB,
        "active_size": 12 * MIB,
        "stream": 0,
        "segment_type": "large",
        "blocks": [
            {
                "size": 12 * MIB,
                "state": "active_allocated",
                "history": [
                    {
                        "addr": 4096,
                        "real_size": 11 * MIB,
                        "frames": [{"filename": "/job/old.py", "line": 3, "name": "build"}],
                    }
                ],
            },
            {"size": 8 * MIB, "state": "inactive"},
        ],
    }
]
"""As PyTorch 2.0 and older gave it: a bare list of segments, frames in the history of blocks."""


def two_devices() -> dict[str, object]:
    return snapshot(
        [
            segment([block(6 * MIB), free(14 * MIB)]),
            segment([block(9 * MIB), free(11 * MIB)], 1 << 40, device=1),
        ]
    )


def test_a_snapshot_is_told_in_text_within_80_cells(tmp_path: Path) -> None:
    outcome = call("inspect", str(write_snapshot(tmp_path, small_snapshot())))
    assert outcome.code == 0, outcome.stderr
    assert outcome.stderr == ""
    assert "18 MiB of 40 MiB reserved are live" in outcome.stdout
    assert "/job/model.py:12" in outcome.stdout
    assert max(map(len, outcome.stdout.splitlines())) <= 80


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_pickle_protocol_says_the_same(tmp_path: Path, protocol: int) -> None:
    path = write_snapshot(tmp_path, small_snapshot(), protocol=protocol)
    (line,) = call("inspect", str(path), "--json").lines
    assert line["schema"] == "vramscope.snapshot/1"
    assert line["devices"][0]["levels"]["reserved_bytes"] == 40 * MIB


def test_the_dialect_of_pytorch_2_0_names_the_line_too(tmp_path: Path) -> None:
    outcome = call("inspect", str(write_snapshot(tmp_path, OLDEST)), "--format", "text")
    assert outcome.code == 0, outcome.stderr
    assert "build  /job/old.py:3" in outcome.stdout
    assert "12 MiB" in outcome.stdout


def test_a_flight_record_is_told_in_text_and_as_json(tmp_path: Path) -> None:
    path = flight_records.write_record(tmp_path, flight_records.record())
    told = call("inspect", str(path)).stdout
    assert "a request of 2.0 GiB failed" in told
    assert "rank 1" in told
    (line,) = call("inspect", str(path), "--json", "--top", "1").lines
    assert line["schema"] == "vramscope.flight_summary/1"
    assert line["size_bytes"] == 2 << 30
    assert [stack["size_bytes"] for stack in line["stacks"]] == [9 << 30]


def test_one_device_can_be_asked_for(tmp_path: Path) -> None:
    path = str(write_snapshot(tmp_path, two_devices()))
    (line,) = call("inspect", path, "--json", "--devices", "1").lines
    assert [device["device"] for device in line["devices"]] == [1]
    outcome = call("inspect", path, "--devices", "7")
    assert outcome.code == 2
    assert "--devices 7: the devices in the file are 0, 1" in outcome.stderr


def test_json_says_what_other_settings_would_save_and_that_it_is_simulated(tmp_path: Path) -> None:
    (line,) = call("inspect", str(write_snapshot(tmp_path, advised_snapshot())), "--json").lines
    (advice,) = line["settings_advice"]
    best = advice["candidates"][0]
    assert (advice["device"], advice["reason"], advice["is_simulated"]) == (0, None, True)
    assert best["settings"] == "expandable_segments:True"
    assert best["least_card_bytes"] == advice["least_card_bytes"] - best["saved_bytes"]
    assert best["saved_bytes"] > 0.02 * advice["least_card_bytes"]
    assert best["peak_reserved_bytes"] < 0.8 * advice["peak_reserved_bytes"], "on a card with room"
    (bare,) = call("inspect", str(write_snapshot(tmp_path, small_snapshot())), "--json").lines
    assert [each["candidates"] for each in bare["settings_advice"]] == [[]]
    assert bare["settings_advice"][0]["reason"] is not None


def test_a_capacity_says_what_the_trace_would_do_on_such_a_card(tmp_path: Path) -> None:
    path = str(write_snapshot(tmp_path, advised_snapshot()))
    (line,) = call("inspect", path, "--json", "--capacity", "1126MiB").lines
    (advice,) = line["settings_advice"]
    assert (advice["capacity_bytes"], advice["capacity_source"]) == (1126 * MIB, "given")
    assert advice["card"]["does_run"] is False
    best = advice["candidates"][0]
    assert (best["settings"], best["card"]["does_run"]) == ("expandable_segments:True", True)
    text = " ".join(call("inspect", path, "--capacity", "1126MiB").stdout.split())
    assert "simulated: with 1.1 GiB for the allocator (as given) and its own settings it does not run" in text


def test_a_capacity_is_refused_where_there_is_no_trace_to_replay(tmp_path: Path) -> None:
    record = flight_records.write_record(tmp_path, flight_records.record())
    log = tmp_path / "server.log"
    log.write_text(f"{ENGINE}{RANKS}{ROOM}")
    for path in (record, log):
        outcome = call("inspect", str(path), "--capacity", "80GiB")
        assert outcome.code == 2
        assert "--capacity needs a memory snapshot with recorded history" in outcome.stderr
        assert outcome.stdout == ""


def test_top_limits_the_stacks(tmp_path: Path) -> None:
    path = str(write_snapshot(tmp_path, small_snapshot()))
    assert len(call("inspect", path, "--json").lines[0]["devices"][0]["stacks"]) == 2
    assert len(call("inspect", path, "--json", "--top", "1").lines[0]["devices"][0]["stacks"]) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--top", "0"), "--top 0: expected a whole number from 1"),
        (("--top", "many"), "--top many: expected a whole number"),
        (("--device", "-1"), "--device"),
        (("--capacity", "0"), "--capacity 0: expected a size above zero"),
        (("--at", "end", "--capacity", "8GiB"), "--capacity does not go with --at"),
        (("--format", "text", "--json"), "--json does not go with --format text"),
    ],
)
def test_flags_that_mean_nothing_are_refused(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    outcome = call("inspect", str(write_snapshot(tmp_path, small_snapshot())), *words)
    assert outcome.code == 2
    assert told in outcome.stderr
    assert outcome.stdout == ""


@pytest.mark.parametrize("flag", ["--format=text", "--json"])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "the file is empty"),
        (b"some log\n", "not a memory snapshot, flight record"),
        (pickle.dumps({"weights": [1, 2]}), "segments"),
        (pickle.dumps(Path("/tmp")), "which is not loaded"),
        (pickle.dumps(small_snapshot())[:200], "expected"),
        (b'{"schema": "vramscope.flight/9"}', "newer vramscope"),
        (b'{"half": ', "expected a flight record"),
    ],
    ids=["empty", "text", "another pickle", "an object", "cut off", "newer", "half"],
)
def test_a_file_that_is_none_is_told_in_one_line(
    tmp_path: Path, content: bytes, told: str, flag: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    outcome = call("inspect", str(path), flag)
    assert outcome.code == 2
    assert outcome.stdout == ""
    (line,) = outcome.stderr.splitlines()
    assert line.startswith(f"vramscope: {path}: ")
    assert told in line


def test_a_missing_file_and_a_folder_are_told_in_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.pickle", tmp_path):
        outcome = call("inspect", str(path))
        assert outcome.code == 2
        assert len(outcome.stderr.splitlines()) == 1
        assert f"{path}: cannot be read" in outcome.stderr


def test_without_a_file_the_newest_flight_record_is_told(private_environment: Path) -> None:
    folder = private_environment / "home/.local/state/vramscope/flight"
    outcome = call("inspect")
    assert outcome.code == 2
    assert f"no flight record in {folder} or " in outcome.stderr
    assert "vramscope run" in outcome.stderr
    folder.mkdir(parents=True)
    for number in (1, 2):
        size = {"size_bytes": number << 30}
        path = flight_records.write_record(
            folder, flight_records.record(failure=size), f"oom-20251009T12000{number}Z-7-1.json.gz"
        )
        os.utime(path, (1_760_000_000 + number, 1_760_000_000 + number))
    outcome = call("inspect", "--json")
    assert outcome.lines[0]["size_bytes"] == 2 << 30
    assert f"newest flight record: {folder}/oom-20251009T120002Z-7-1.json.gz" in outcome.stderr


def test_where_there_is_only_ascii_the_text_is_ascii(tmp_path: Path) -> None:
    path = flight_records.write_record(tmp_path, flight_records.record())
    outcome = call("inspect", str(path), "--ascii")
    assert outcome.code == 0
    assert outcome.stdout.isascii()
    poor = run("inspect", str(path), PYTHONIOENCODING="ascii")
    assert poor.code == 0, poor.stderr
    assert poor.stdout.isascii()


@pytest.mark.parametrize("words", [(), ("--format=text",), ("--json",)], ids=["into a pipe", "text", "JSON"])
def test_neither_text_nor_json_loads_a_screen(tmp_path: Path, words: tuple[str, ...]) -> None:
    command = ["inspect", str(write_snapshot(tmp_path, small_snapshot())), *words]
    code = (
        "import json, sys\n"
        "from vramscope.cli.application import run\n"
        f"assert run({command!r}) == 0\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    loaded = set(json.loads(done.stderr))
    forbidden = {"textual", "torch", "matplotlib", "networkx", "zmq"}
    assert not loaded & (forbidden | ({"rich"} if "--json" in words else set()))


def test_without_numpy_a_terminal_gets_a_flight_record_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vramscope.cli.verbs.inspect.can_draw", lambda _settings: True)
    monkeypatch.setitem(sys.modules, "numpy", None)
    outcome = call("inspect", str(flight_records.write_record(tmp_path, flight_records.record())))
    assert outcome.code == 0
    assert "out of memory" in outcome.stdout
    assert "the screen needs numpy: pip install 'vramscope[figures]'" in outcome.stderr
    outcome = call("inspect", str(write_snapshot(tmp_path, small_snapshot())))
    assert (outcome.code, outcome.stdout) == (4, "")
    assert "pip install 'vramscope[figures]'" in outcome.stderr
