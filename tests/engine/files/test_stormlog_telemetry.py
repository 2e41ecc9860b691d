"""Telemetry of stormlog: lines or a list, of ranks or of single processes, unknown figures left unknown."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.series_reader import MOST_BYTES
from vramscope.engine.files.series.stormlog_telemetry import StormlogTelemetry
from vramscope.engine.sampling.series_source import open_series

from .series_files import allocated, play

GIB = 1 << 30
START_NS = 1_750_674_600_000_000_000


def make_event(second: int, **fields: Any) -> dict[str, Any]:
    """Return an event of a process on device 0."""
    return {
        "schema_version": 2,
        "timestamp_ns": START_NS + second * 10**9,
        "event_type": "sample",
        "collector": "stormlog.cuda_tracker",
        "sampling_interval_ms": 1000,
        "pid": 7,
        "host": "node1",
        "device_id": 0,
        "allocator_allocated_bytes": second * GIB,
        "allocator_reserved_bytes": 5 * GIB,
        "allocator_active_bytes": None,
        "allocator_inactive_bytes": None,
        "allocator_change_bytes": 0,
        "device_used_bytes": 6 * GIB,
        "device_free_bytes": 18 * GIB,
        "device_total_bytes": 24 * GIB,
        "context": None,
        "metadata": {"a": {}},
        **fields,
    }


def write_events(path: Path, events: list[Any], *, is_list: bool) -> Path:
    """Write events as a list, or one a line."""
    path.write_text(json.dumps(events, indent=2) if is_list else "\n".join(map(json.dumps, events)) + "\n")
    return path


@pytest.mark.parametrize("is_list", [True, False])
def test_events_are_readings_of_ranks(tmp_path: Path, is_list: bool) -> None:
    told = {"job_id": "j1", "world_size": 4, "local_rank": 1}
    events = [
        make_event(0, rank=1, **told),
        make_event(0, rank=3, device_used_bytes=None, **told),
        make_event(1, rank=1, **told),
        make_event(1, rank=3, device_id=-1, **told),
        make_event(1, rank=3, allocator_allocated_bytes=-1, **told),
        {"schema_version": 1},
    ]
    source, samples = play(write_events(tmp_path / "t.json", events, is_list=is_list))
    assert (source.format, source.clock, source.interval_s) == ("stormlog telemetry", "wall", 1.0)
    assert [size for _, size in allocated(samples, 1)] == [0, GIB]
    first = {device.index: device for device in samples[0].devices}
    assert (first[1].memory.used_bytes, first[3].memory.used_bytes) == (6 * GIB, None)
    assert (first[1].memory.total_bytes, first[1].memory.free_bytes) == (24 * GIB, 18 * GIB)
    assert first[1].rank is not None
    assert (first[1].rank.rank, first[1].rank.world_size, first[1].rank.local_rank) == (1, 4, 1)
    notes = "\n".join(source.notes)
    assert "jobs in it: 'j1'" in notes
    assert "events of processes without a GPU were left out: 1" in notes
    place = "$[4]" if is_list else "line 5"
    assert f"2 records were left out, the first at {place}: expected `int` >= 0" in notes


def test_keys_in_another_order_and_a_cut_off_line_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    lines = [json.dumps(make_event(second), sort_keys=True) for second in range(3)]
    path.write_text("\n".join(lines)[:-9])
    source, samples = play(path)
    assert [size for _, size in allocated(samples)] == [0, GIB]
    assert any("line 3" in note for note in source.notes)


def test_hosts_that_number_their_devices_alike_are_told_apart(tmp_path: Path) -> None:
    events = [make_event(0), make_event(0, host="node2"), make_event(0, device_id=2)]
    source, samples = play(write_events(tmp_path / "t.json", events, is_list=True))
    assert sorted(source.label(device.uuid) for device in samples[0].devices) == ["0", "2", "node2/0"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (json.dumps(make_event(0, device_id=-1)), "all events are of processes without a GPU"),
        (json.dumps(make_event(0, timestamp_ns=-5)), "line 1: expected `int` >= 0 - at `$.timestamp_ns`"),
        (json.dumps([make_event(0)])[:-1], "input data was truncated"),
    ],
)
def test_a_file_without_a_reading_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InputFileError) as caught:
        open_series(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert why in str(caught.value)


@given(
    fields=st.lists(
        st.dictionaries(
            st.sampled_from(list(make_event(0))),
            st.one_of(st.none(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5)),
            max_size=3,
        ),
        max_size=5,
    )
)
def test_any_event_is_a_reading_or_counted(
    fields: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    write_events(path, [make_event(second, **each) for second, each in enumerate(fields)], is_list=False)
    reader = StormlogTelemetry(path)
    for record in reader.records():
        sizes = (record.allocated_bytes, record.reserved_bytes, record.used_bytes, record.total_bytes)
        assert all(size is None or 0 <= size < MOST_BYTES for size in sizes)
    assert all(note.isprintable() for note in (*reader.notes, reader.explain_absence()))
