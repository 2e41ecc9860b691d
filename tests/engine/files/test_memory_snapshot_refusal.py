"""What is no snapshot is refused in one line: code, bombs, damage, and what stands where it should not."""

import gzip
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.memory_snapshot import read_memory_snapshot, reader

from .snapshots import BASE, MIB, block, event, frame, segment, small_snapshot, snapshot, write_snapshot

PROTOCOL = b"\x80\x04"


def refusal(path: Path) -> str:
    with pytest.raises(InputFileError) as caught:
        read_memory_snapshot(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert text.isprintable()
    return text.removeprefix(f"{path}: ")


def refusal_of(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(data)
    return refusal(path)


class Command:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("made-by-a-pickle",)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (pickle.dumps({"segments": [], "more": Command()}, protocol=2), "posix.mkdir"),
        (pickle.dumps({"segments": Command()}, protocol=5), "posix.mkdir"),
        (pickle.dumps(Path("/")), "pathlib."),
        (b"\x80\x02cposix\nsystem\n(X\x02\x00\x00\x00idtR.", "posix.system"),
        (gzip.compress(pickle.dumps(Command()), mtime=0), "posix.mkdir"),
    ],
)
def test_no_object_of_python_is_ever_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text = refusal_of(tmp_path, data)
    assert text.startswith(f"it asks for the Python object {name}")
    assert text.endswith("expected only dicts, lists, text and numbers")
    assert not (tmp_path / "made-by-a-pickle").exists()


def test_objects_outside_of_the_file_are_refused(tmp_path: Path) -> None:
    assert refusal_of(tmp_path, PROTOCOL + b"K\x07Q.").startswith(
        "it refers to an object outside of the file (7)"
    )


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(b"]r\xff\xff\xff\xff.", id="memo index"),
        pytest.param(b"]p4294967295\n.", id="memo index as text"),
        pytest.param(b"\x95" + struct.pack("<Q", 2**62) + b"].", id="frame"),
        pytest.param(b"\x8e" + struct.pack("<Q", 2**36) + b"abc.", id="bytes"),
        pytest.param(b"\x8d" + struct.pack("<Q", 2**62) + b"abc.", id="text"),
        pytest.param(b"\x8b" + struct.pack("<i", 2**31 - 1) + b"abc.", id="number"),
        pytest.param(b"\x8f" * 4_000_000 + b".", id="empty sets"),
    ],
)
def test_a_few_bytes_cannot_ask_for_gigabytes(tmp_path: Path, program: bytes) -> None:
    assert refusal_of(tmp_path, PROTOCOL + program).startswith("reading it needs more than ")


def test_a_crash_of_the_unpickler_is_told_and_not_shared(tmp_path: Path) -> None:
    deep_key = b"}N" + b"\x85" * 3_000_000 + b"Ns."
    assert refusal_of(tmp_path, PROTOCOL + deep_key).startswith("Python's unpickler crashed")


def test_lists_that_name_the_same_blocks_again_are_refused(tmp_path: Path) -> None:
    shared = [block(MIB) for _ in range(1000)]
    root = snapshot([{**segment([]), "blocks": shared, "total_size": 1000 * MIB} for _ in range(1000)])
    text = refusal(write_snapshot(tmp_path, root))
    assert text.startswith("at segments[1].blocks: an earlier segment has the same list of blocks")


def test_events_that_stand_at_two_devices_are_refused(tmp_path: Path) -> None:
    events = [event("alloc", BASE, 1, 1)]
    root = {**snapshot([]), "device_traces": [events, events]}
    assert refusal(write_snapshot(tmp_path, root)).startswith(
        "at device_traces[1]: an earlier device has the same list of events"
    )


@pytest.mark.parametrize("kept", [1, 2, 40, 300, -1])
def test_cut_off_file_says_so(tmp_path: Path, kept: int) -> None:
    text = refusal_of(tmp_path, pickle.dumps(small_snapshot(), protocol=4)[:kept])
    assert "the file is cut short" in text or "and is not a pickle" in text


def test_cut_off_gzip_says_so(tmp_path: Path) -> None:
    data = gzip.compress(pickle.dumps(small_snapshot()))
    assert "the file is cut short" in refusal_of(tmp_path, data[: len(data) // 2])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "it is empty"),
        (b'{"schema": 1}', "it is text, perhaps JSON"),
        (b"PK\x03\x04....", "it is a zip archive, such as torch.save writes"),
        (b"\x00\x01\x02\x03", "it begins with 00 01 02 03 and is not a pickle"),
        (b"\x80\x09N.", "it begins with 80 09 4e 2e and is not a pickle"),
        (PROTOCOL + b"h\x07.", "it is damaged (Memo value not found at index 7)"),
        (gzip.compress(b"text", mtime=0), "it begins with 74 65 78 74 and is not a pickle"),
    ],
)
def test_other_files_are_told_from_snapshots(tmp_path: Path, data: bytes, expected: str) -> None:
    text = refusal_of(tmp_path, data)
    assert text.startswith(expected)
    assert "expected a memory snapshot from torch.cuda.memory._dump_snapshot" in text


def changed(**fields: object) -> dict[str, Any]:
    root = small_snapshot()
    root["segments"][0]["blocks"][1].update(fields)
    return root


def changed_segment(**fields: object) -> dict[str, Any]:
    root = small_snapshot()
    root["segments"][1].update(fields)
    return root


def old(**fields: object) -> dict[str, Any]:
    root = changed(**fields)
    del root["segments"][0]["blocks"][1]["frames"]
    return root


def with_event(**fields: object) -> dict[str, Any]:
    return snapshot([], [event("alloc", BASE, 512, 1), {**event("alloc", BASE, 512, 2), **fields}])


def lacking(key: str) -> dict[str, Any]:
    root = small_snapshot()
    del root["segments"][0]["blocks"][2][key]
    return root


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (7, "at the root: expected a dict with `segments` or a list of segments, got an integer"),
        (
            {"model": 1, "step": 2},
            "at the root: expected a memory snapshot, a dict with `segments`; got 'model'",
        ),
        ({"segments": 5}, "at segments: expected a list, got an integer"),
        ({"segments": [5]}, "at segments[0]: expected a dict, got an integer"),
        (changed_segment(blocks=None), "at segments[1].blocks: expected a list, got None"),
        (changed_segment(total_size=-1), "at segments[1].total_size: expected an integer from 0 to"),
        (
            changed_segment(segment_type="huge"),
            'at segments[1].segment_type: expected "large" or "small", got',
        ),
        (
            changed_segment(segment_pool_id=3),
            "at segments[1].segment_pool_id: expected two integers, got an integer",
        ),
        (
            changed_segment(device=-1),
            "at segments[1].device: expected an integer from 0 to 2147483647, got -1",
        ),
        (changed(size="1"), "at segments[0].blocks[1].size: expected an integer, got text"),
        (changed(size=1.5), "at segments[0].blocks[1].size: expected an integer, got a float"),
        (changed(size=-512), "at segments[0].blocks[1].size: expected an integer from 0 to"),
        (changed(size=2**80), "got a number of many digits"),
        (
            changed(requested_size=[]),
            "at segments[0].blocks[1].requested_size: expected an integer, got a list",
        ),
        (changed(address=2**64), "at segments[0].blocks[1].address: expected an integer from"),
        (changed(state="lost"), "at segments[0].blocks[1].state: expected one of active_allocated, "),
        (changed(state=["inactive"]), "at segments[0].blocks[1].state: expected one of active_allocated, "),
        (changed(frames=5), "at segments[0].blocks[1].frames: expected a list, got an integer"),
        (changed(frames=[5]), "at segments[0].blocks[1].frames[0]: expected a dict, got an integer"),
        (changed(frames=[frame("f", line="9")]), "frames[0].line: expected an integer, got text"),  # type: ignore[arg-type]
        (old(history=5), "at segments[0].blocks[1].history: expected a list, got an integer"),
        (lacking("size"), "at segments[0].blocks[2]: the key `size` is missing"),
        (lacking("state"), "at segments[0].blocks[2]: the key `state` is missing"),
        ({"segments": [], "device_traces": 5}, "at device_traces: expected a list, got an integer"),
        ({"segments": [], "device_traces": [5]}, "at device_traces[0]: expected a list, got an integer"),
        (with_event(action=5), "at device_traces[0][1].action: expected text, got an integer"),
        (with_event(size=None), "at device_traces[0][1].size: expected an integer, got None"),
        (with_event(time_us="now"), "at device_traces[0][1].time_us: expected an integer, got text"),
        (with_event(addr="x"), "at device_traces[0][1].addr: expected an integer, got text"),
        (with_event(frames="x"), "at device_traces[0][1].frames: expected a list, got text"),
        ({"segments": [], "allocator_settings": 5}, "at allocator_settings: expected a dict, got an integer"),
        ({"segments": [], "external_annotations": [5]}, "at external_annotations[0]: expected a dict"),
    ],
)
def test_wrong_structure_is_refused_with_its_place(tmp_path: Path, root: object, expected: str) -> None:
    assert expected in refusal(write_snapshot(tmp_path, root))


def test_structures_without_end_are_refused(tmp_path: Path) -> None:
    root: dict[str, Any] = {}
    root["segments"] = root
    assert refusal(write_snapshot(tmp_path, root)) == "at segments: expected a list, got a dict"
    endless: list[Any] = []
    endless.append(endless)
    assert refusal(write_snapshot(tmp_path, endless)) == "at segments[0]: expected a dict, got a list"
    frames: list[Any] = []
    frames.append(frames)
    text = refusal(write_snapshot(tmp_path, changed(frames=frames)))
    assert text.endswith("frames[0]: expected a dict, got a list")


def test_what_is_not_a_file_is_refused_at_once(tmp_path: Path) -> None:
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    assert refusal(tmp_path / "absent") == "cannot be read: no such file or directory"
    assert refusal(folder) == "cannot be read: is a directory"
    assert refusal(pipe).startswith("not a regular file")


def test_too_large_a_file_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "SIZE_LIMIT_BYTES", 100)
    path = write_snapshot(tmp_path, small_snapshot())
    assert "is too large; expected at most 100 B" in refusal(path)
