"""Telling snapshots from flight records by what is in them, and finding the newest record."""

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.flight_record import (
    find_newest_flight_record,
    list_flight_folders,
    read_memory_file,
    recognize_memory_file,
)
from vramscope.engine.model.memory_snapshot import FlightRecord, MemorySnapshot

from .flight_records import record, write_record
from .snapshots import small_snapshot, write_snapshot


def test_the_name_of_a_file_says_nothing(tmp_path: Path) -> None:
    snapshot = write_snapshot(tmp_path, small_snapshot(), name="oom-1.json.gz")
    flight = write_record(tmp_path, record(), "snapshot.pickle")
    assert isinstance(read_memory_file(snapshot), MemorySnapshot)
    assert isinstance(read_memory_file(flight), FlightRecord)


def test_compressed_or_not_both_are_recognized(tmp_path: Path) -> None:
    packed = write_record(tmp_path, record())
    plain = tmp_path / "plain.json"
    plain.write_bytes(b"\xef\xbb\xbf\n " + gzip.decompress(packed.read_bytes()))
    assert recognize_memory_file(plain) == "flight record"
    pickled = write_snapshot(tmp_path, small_snapshot())
    pickled.write_bytes(gzip.compress(pickled.read_bytes()))
    assert recognize_memory_file(pickled) == "snapshot"
    assert isinstance(read_memory_file(pickled), MemorySnapshot)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (gzip.compress(b"", mtime=0), "empty"),
        (b"not a memory file", "not a memory snapshot, flight record"),
        (b"[1, 2]", "not a memory snapshot, flight record"),
        (b"\x1f\x8b\x08garbage that is no gzip at all", "cannot decompress the file"),
    ],
    ids=["empty", "blank", "empty gzip", "text", "another JSON", "damaged gzip"],
)
def test_other_content_is_refused_with_the_name_of_the_file(
    tmp_path: Path, content: bytes, told: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputFileError, match=told) as refusal:
        recognize_memory_file(path)
    assert str(refusal.value).startswith(f"{path}: ")


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(InputFileError, match="cannot be read"):
            recognize_memory_file(path)


@settings(max_examples=200)
@given(content=st.binary(max_size=2000) | st.binary(max_size=200).map(gzip.compress))
def test_any_bytes_are_recognized_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any-{os.getpid()}"
    path.write_bytes(content)
    kind, told = "refused", ""
    try:
        kind = recognize_memory_file(path)
    except InputFileError as refusal:
        told = str(refusal)
    assert kind in {"snapshot", "flight record"} or str(path) in told


def test_the_newest_record_of_all_folders_is_found(tmp_path: Path, private_environment: Path) -> None:
    environ = {"VRAMSCOPE_FLIGHT_DIR": str(tmp_path / "chosen"), "XDG_STATE_HOME": str(tmp_path / "state")}
    folders = list_flight_folders(environ)
    assert folders[:2] == (tmp_path / "chosen", tmp_path / "state/vramscope/flight")
    assert find_newest_flight_record(folders) is None
    for folder, age_s in zip(folders[:2], (50, 10), strict=True):
        folder.mkdir(parents=True)
        path = write_record(folder, record(), "oom-20251009T120000Z-42-1.json.gz")
        os.utime(path, (1_760_000_000 - age_s, 1_760_000_000 - age_s))
    (tmp_path / "chosen" / ".oom-half.partial").write_bytes(b"")
    assert find_newest_flight_record(folders) == folders[1] / "oom-20251009T120000Z-42-1.json.gz"
