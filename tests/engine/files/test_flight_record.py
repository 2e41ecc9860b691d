"""Reader of flight records: what is there is kept, what is missing is unmeasured, garbage is one line."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.files import flight_record as reader
from vramscope.engine.files.flight_record import read_flight_record
from vramscope.engine.model.memory_snapshot import FlightRecord
from vramscope.engine.model.sample import ALLOCATED, FREE
from vramscope.engine.probe.flight_record import encode_record, fill_record

from .flight_records import GIB, MIB, record, write_record


def refusal(path: Path) -> str:
    with pytest.raises(InputFileError) as caught:
        read_flight_record(path)
    text = str(caught.value)
    assert text.startswith(f"{path}:")
    assert "\n" not in text
    return text.removeprefix(f"{path}:")


def test_record_is_read_as_written(tmp_path: Path) -> None:
    found = read_flight_record(write_record(tmp_path, record()))
    assert (found.reason, found.process.pid, found.process.is_simulated) == ("oom", 4242, True)
    assert found.process.coordinates is not None
    assert (found.process.coordinates.rank, found.process.coordinates.tp) == (1, 0)
    assert found.device.total_bytes == 24 * GIB
    assert (found.failure.size_bytes, found.failure.device_free_bytes) == (2 * GIB, 512 * MIB)
    assert found.failure.stack[1] == ("/job/model.py", 40, "block")
    assert len(found.samples) == 100
    assert (found.samples[-1].allocated_bytes, found.samples[-1].step) == (19 * GIB, 99)
    assert found.samples[-1].active_bytes is None
    assert (found.steps[0].index, found.steps[0].is_peak_exact) == (1, True)
    assert found.model_state is not None
    assert found.model_state.grad_sample_bytes is None
    assert found.stats["num_alloc_retries"] == 3
    assert found.segments[0].blocks == ((12 * MIB, ALLOCATED), (8 * MIB, FREE))
    assert found.live_stacks[0].count == 48
    assert found.truncated.segments == 7
    assert found.file == "flight.json.gz"


def test_schema_alone_is_a_record_of_which_nothing_is_known(tmp_path: Path) -> None:
    found = read_flight_record(write_record(tmp_path, {"schema": "vramscope.flight/1"}))
    assert found == FlightRecord(file="flight.json.gz")


@pytest.mark.parametrize("key", [key for key in record() if key != "schema"])
def test_any_field_may_be_missing_or_null(tmp_path: Path, key: str) -> None:
    content = record()
    del content[key]
    missing = read_flight_record(write_record(tmp_path, content))
    null = read_flight_record(write_record(tmp_path, record(**{key: None})))
    assert missing == null


def test_null_within_a_part_is_unmeasured(tmp_path: Path) -> None:
    content = record(failure={"size_bytes": None, "stack": None, "message": None}, stats={"x": None, "y": 1})
    found = read_flight_record(write_record(tmp_path, content))
    assert (found.failure.size_bytes, found.failure.stack, found.failure.message) == (None, (), "")
    assert found.stats == {"y": 1}


def test_newer_fields_and_columns_are_ignored(tmp_path: Path) -> None:
    content = record(later={"deep": [1]}, columns=["later", "time_s"], samples=[[True, 5.0], [None], []])
    found = read_flight_record(write_record(tmp_path, content))
    assert [sample.time_s for sample in found.samples] == [5.0, None, None]


def test_plain_json_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "flight.json"
    path.write_text(json.dumps(record()))
    assert read_flight_record(path).reason == "oom"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"schema": "vramscope.flight/2"}, "written by a newer vramscope (vramscope.flight/2)"),
        ({"schema": "other/1"}, "the schema is 'other/1'; expected a flight record"),
        ({}, "missing required field `schema`"),
        ([], "expected `object`, got `array`"),
        (record(written_s="now"), "at $.written_s expected `float | null`, got `str`"),
        (record(failure={"size_bytes": "2 GiB"}), "at $.failure.size_bytes expected `int | null`"),
        (record(steps=[{}]), "at $.steps[0] expected `array`, got `object`"),
        (record(segments=[{"address": 1}]), "at $.segments[0] object missing required field `total_size`"),
        (record(samples=[["a"]]), "at $.samples[0][0] expected"),
    ],
)
def test_wrong_content_is_refused_with_its_place(tmp_path: Path, content: object, expected: str) -> None:
    assert expected in refusal(write_record(tmp_path, content))


def test_cut_off_file_says_so(tmp_path: Path) -> None:
    path = write_record(tmp_path, record())
    path.write_bytes(path.read_bytes()[:-40])
    assert "the compressed file is cut short" in refusal(path)


def test_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "CONTENT_LIMIT_BYTES", 1000)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b" " * 1_000_000))
    assert "more than 1,000 B of text" in refusal(path)


def check(path: Path, data: bytes) -> None:
    """Read a file that may hold anything: the outcome is a record or one line."""
    path.write_bytes(data)
    refused = ""
    try:
        read_flight_record(path)
    except InputFileError as error:
        refused = str(error)
    assert "\n" not in refused


fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
PLAIN = json.dumps(record(samples=record()["samples"][:3], steps=record()["steps"][:3])).encode()
edits = st.lists(st.tuples(st.integers(0, len(PLAIN)), st.binary(max_size=4), st.integers(0, 8)), max_size=4)


def edit(data: bytes, changes: list[tuple[int, bytes, int]]) -> bytes:
    for position, new, removed in changes:
        data = data[:position] + new + data[position + removed :]
    return data


@fuzz
@given(edits)
def test_mutated_json_never_surprises(tmp_path: Path, changes: list[tuple[int, bytes, int]]) -> None:
    check(tmp_path / "flight", edit(PLAIN, changes))


@fuzz
@given(edits)
def test_mutated_gzip_never_surprises(tmp_path: Path, changes: list[tuple[int, bytes, int]]) -> None:
    check(tmp_path / "flight", edit(gzip.compress(PLAIN), changes))


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@fuzz
@given(st.sampled_from([key for key in record() if key != "schema"]), values)
def test_any_value_in_any_field_never_surprises(tmp_path: Path, key: str, value: object) -> None:
    check(tmp_path / "flight", json.dumps(record(**{key: value})).encode())


def test_settings_of_the_allocator_are_read_as_the_probe_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("written_s", "process", "device", "steps", "model", "stats", "notes")
    about = {name: record()[name] for name in names} | {"failure": record()["failure"]}
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    path = tmp_path / "oom.json.gz"
    path.write_bytes(encode_record(fill_record(about, [], [])))
    assert read_flight_record(path).allocator_settings == "expandable_segments:True"
