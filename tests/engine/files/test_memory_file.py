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
from vramscope.engine.units import GIB, MIB

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


@pytest.mark.parametrize(
    "head", [b"", b"PK\x03\x04\0\0", b"\x48\x03\0\0\0\0\0\0{"], ids=["zeros", "checkpoint", "safetensors"]
)
def test_a_large_file_that_is_no_text_is_refused_by_its_beginning(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "large"
    path.write_bytes(head)
    os.truncate(path, 12 * GIB)

    def watch(share: float) -> None:
        assert share < 0.01, "the whole file is searched"

    with pytest.raises(InputFileError, match="not a memory snapshot, flight record"):
        recognize_memory_file(path, watch)


def test_an_error_is_found_in_a_log_with_a_stray_nul(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(b"step \0 7\nCUDA out of memory. Tried to allocate 2.00 GiB\n")
    assert recognize_memory_file(path) == "out-of-memory text"


def test_an_error_is_found_in_a_log_that_was_cut_off_while_a_job_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.touch()
    os.truncate(path, 64 * MIB)
    with path.open("ab") as file:
        file.write(b"step 7\nCUDA out of memory. Tried to allocate 2.00 GiB\n")
    assert recognize_memory_file(path) == "out-of-memory text"


def test_while_a_long_text_is_searched_the_share_read_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(b"loss 0.25\n" * (MIB // 5))
    shares: list[float] = []
    with pytest.raises(InputFileError):
        recognize_memory_file(path, shares.append)
    assert shares == sorted(shares)
    assert any(0.4 < share < 0.6 for share in shares)


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
