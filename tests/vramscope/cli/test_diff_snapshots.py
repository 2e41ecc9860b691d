"""`vramscope diff` of two memory snapshots: what is new, gone or larger, and its exit codes."""

import json
from pathlib import Path

import jsonschema
import pytest

from tests import REPOSITORY
from vramscope.exporters.schema import render_schema

from ...engine.files.snapshots import (
    BASE,
    EMBED,
    MIB,
    Row,
    block,
    event,
    frame,
    free,
    segment,
    snapshot,
    write_snapshot,
)
from .running import call
from .test_diff import write_series

SCHEMA = json.loads(render_schema("snapshot-difference"))


def stack(name: str, line: int, folder: str = "/job") -> list[Row]:
    return [frame(name, f"{folder}/model.py", line), frame("<module>", f"{folder}/train.py", 9)]


def write(
    folder: Path, name: str, needs: list[tuple[list[Row], int]], *, has_history: bool = True, ooms: int = 0
) -> str:
    """Write a snapshot in which the first need, in MiB, lives to the end, and the others end before."""
    events = []
    addresses = [BASE + 256 * MIB * number for number in range(len(needs))]
    for number, (frames, size) in enumerate(needs):
        events.append(event("alloc", addresses[number], size * MIB, 10**6 * (number + 1), frames=frames))
    for number, (frames, size) in list(enumerate(needs))[1:]:
        events.append(event("free_requested", addresses[number], size * MIB, 10**8 + number, frames=frames))
    events += [event("oom", 5, 6 * MIB, 2 * 10**8, frames=EMBED)] * ooms
    frames, size = needs[0]
    blocks = [block(size * MIB, frames=frames), free((200 - size) * MIB)]
    return str(write_snapshot(folder, snapshot([segment(blocks)], events if has_history else []), name=name))


@pytest.fixture
def a(tmp_path: Path) -> str:
    return write(
        tmp_path, "a.pickle", [(stack("embed", 3), 4), (stack("block", 40), 8), (stack("old", 7), 1)]
    )


@pytest.fixture
def b(tmp_path: Path) -> str:
    """`block` moved by a line, and in another folder, and grew; `new` is new, and `old` gone."""
    needs = [(stack("embed", 3), 4), (stack("block", 41, "/ci"), 11), (stack("new", 7), 2)]
    return write(tmp_path, "b.pickle", needs, ooms=1)


def test_what_is_new_gone_and_larger_is_listed(a: str, b: str) -> None:
    told = call("diff", a, b, COLUMNS="100")
    assert told.code == 0, told.stderr
    assert "B has 4 MiB (30.8 %) more allocated at its peak on device 0; +3 MiB in block" in told.stdout
    assert ["allocated", "13", "MiB", "17", "MiB", "+4", "MiB"] in [
        it.split() for it in told.stdout.splitlines()
    ]
    rows = [line.split() for line in told.stdout.splitlines() if "model.py:" in line]
    assert rows[1:] == [
        ["+3", "MiB", "8", "MiB", "11", "MiB", "block", "/ci/model.py:41"],
        ["+2", "MiB", "new", "2", "MiB", "new", "/job/model.py:7"],
        ["-1", "MiB", "1", "MiB", "gone", "old", "/job/model.py:7"],
    ]
    assert "device 0: out-of-memory errors: 0 in A, 1 in B" in told.stdout


def test_errors_of_a_snapshot_without_history_are_unknown_and_not_none(tmp_path: Path, b: str) -> None:
    ends = write(tmp_path, "ends.pickle", [(stack("block", 41, "/ci"), 11)], has_history=False)
    told = call("diff", ends, b, "--fail-on", "1GiB", COLUMNS="120")
    assert told.code == 0, "nobody knows whether only B ran out of memory"
    assert "device 0: out-of-memory errors: unknown in A, 1 in B" in told.stdout
    assert "only B ran out of memory" not in told.stdout
    assert json.loads(call("diff", ends, b, "--json").stdout)["devices"][0]["ooms_a"] is None


def test_from_ten_times_on_the_times_are_said_and_no_percentage(tmp_path: Path) -> None:
    small = write(tmp_path, "small.pickle", [(stack("embed", 3), 2)])
    large = write(tmp_path, "large.pickle", [(stack("embed", 3), 112)])
    sentence = "B has 110 MiB more allocated at its peak on device 0, 56 times as much; +110 MiB in embed"
    assert sentence in call("diff", small, large, COLUMNS="120").stdout
    assert sentence in call("diff", small, large, "--format", "github").stdout


def test_what_does_not_differ_takes_a_line(a: str) -> None:
    told = call("diff", a, a, COLUMNS="100").stdout
    assert "B has as much allocated at its peak as A" in told
    assert told.count("no difference") == told.count("live blocks") > 0


def test_json_has_both_moments_and_fits_its_schema(a: str, b: str) -> None:
    (told,) = call("diff", a, b, "--json", "--top", "1").lines
    jsonschema.Draft202012Validator(SCHEMA).validate(told)
    (device,) = told["devices"]
    assert [device["peak"]["when"], device["end"]["when"]] == ["peak", "end"]
    assert [device["peak"][run]["allocated_bytes"] for run in "ab"] == [13 * MIB, 17 * MIB]
    lines = device["peak"]["changes"][0]
    assert (lines["by"], lines["groups"], len(lines["rows"])) == ("line", 3, 1)
    assert device["end"]["changes"][0]["rows"] == []


def test_the_kept_schema_is_the_one_of_the_struct() -> None:
    path = REPOSITORY / "docs" / "snapshot-difference.schema.json"
    assert path.read_text("utf-8") == render_schema("snapshot-difference")


def test_exit_codes_of_a_limit(a: str, b: str, tmp_path: Path) -> None:
    sound = write(tmp_path, "c.pickle", [(stack("embed", 3), 4), (stack("block", 41), 12)])
    assert call("diff", a, sound, "--fail-on", "+4MiB").code == 0
    assert call("diff", a, sound, "--fail-on", "2MiB").code == 3
    assert call("diff", sound, a, "--fail-on", "+1%").code == 0
    # Only B has an out-of-memory error.
    assert call("diff", a, b, "--fail-on", "1GiB").code == 3
    assert call("diff", b, b, "--fail-on", "0.1%").code == 0


def test_without_a_history_only_the_ends_are_compared(a: str, tmp_path: Path) -> None:
    other = write(tmp_path, "end.pickle", [(stack("embed", 3), 6)], has_history=False)
    told = call("diff", a, other, COLUMNS="100")
    assert "B has 2 MiB (50.0 %) more allocated at the end on device 0" in told.stdout
    assert "when most was allocated" not in told.stdout
    assert "device 0: only the ends are compared, as one has no history" in told.stdout


def test_annotations_name_the_lines_that_grew(a: str, b: str) -> None:
    told = call("diff", a, b, "--format", "github", "--fail-on", "+1MiB")
    assert told.code == 3
    verdict, line, *_ = told.stdout.splitlines()
    assert verdict.startswith("::error title=b.pickle against a.pickle::B has 4 MiB")
    assert line.startswith("::error file=/ci/model.py,line=41,title=device 0%3A grew by 3 MiB::block")


def test_what_does_not_go_together_is_refused(a: str, tmp_path: Path) -> None:
    told = call("diff", a, a, "--figure", str(tmp_path / "f.png"))
    assert (told.code, "two memory snapshots" in told.stderr) == (2, True)
    runs = str(write_series(tmp_path / "a.csv"))
    told = call("diff", runs, runs, "--top", "3")
    assert (told.code, "--top needs two memory snapshots" in told.stderr) == (2, True)


def test_an_empty_snapshot_is_named_and_what_was_expected(a: str, tmp_path: Path) -> None:
    empty = str(write_snapshot(tmp_path, snapshot([]), name="empty.pickle"))
    expected = "without segments and events; expected one that was made while tensors were allocated"
    for files, told in (
        ((a, empty), "Nothing is compared: B is an empty memory snapshot"),
        ((empty, a), "Nothing is compared: A is an empty memory snapshot"),
        ((empty, empty), "Nothing is compared: A and B are empty memory snapshots"),
    ):
        (report,) = call("diff", *files, "--json").lines
        assert report["verdict"] == f"{told}, {expected}"
        assert report["verdict"] in " ".join(call("diff", *files).stdout.split())


def test_snapshots_of_different_devices_are_not_compared(tmp_path: Path) -> None:
    a, b = (
        str(
            write_snapshot(
                tmp_path, snapshot([segment([block(MIB)], device=device)]), name=f"{device}.pickle"
            )
        )
        for device in (0, 3)
    )
    (report,) = call("diff", a, b, "--json").lines
    assert report["verdict"] == (
        "Nothing is compared: no device is in both snapshots; A has device 0, B has device 3"
    )


def test_a_file_without_a_byte_is_named_and_what_was_expected(a: str, tmp_path: Path) -> None:
    (tmp_path / "cut.pickle").touch()
    for files in ((a, str(tmp_path / "cut.pickle")), (str(tmp_path / "cut.pickle"), a)):
        outcome = call("diff", *files)
        assert (outcome.code, outcome.stdout) == (2, "")
        assert "cut.pickle: the file is empty: its writer may not have finished" in outcome.stderr
        assert "expected a recording, a memory snapshot, a memory trace" in outcome.stderr
