"""Garbage and damage in series: samples and a count of what was left out, or one line; never a surprise."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.series_reader import MOST_BYTES
from vramscope.engine.model import Sample
from vramscope.engine.sampling.series_source import open_series

from .series_files import HEADER, LOG_HEADER

fuzz = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
SERIES = "\n".join(
    [HEADER, *(f"{tick}.5,{tick % 3},{tick}000,{tick}500,9,90000,{tick}" for tick in range(9))]
)
LOG = "\n".join([LOG_HEADER, *(f"2025/06/23 10:30:0{tick}.123, 0, {tick} MiB, 90 MiB" for tick in range(9))])
EXPORT = '{"metadata": {}, "snapshots": {"0": [{"timestamp": 1.5, "allocated": 5, "total": 9}]}}'
STREAM = "".join(
    f'{{"schema":"vramscope.status/1","time":{tick}.5,"node":"n","devices":[{{"uuid":"GPU-1","index":0,'
    f'"memory":{{"total_bytes":900,"used_bytes":{tick}}}}}]}}\n'
    for tick in range(4)
)
EVENTS = ",".join(
    f'{{"ph":"i","name":"[memory]","ts":{tick}000,"args":{{"Total Reserved":9,"Total Allocated":{tick},'
    '"Bytes":5,"Device Id":0,"Device Type":1}}'
    for tick in range(5)
)
TRACE = f'{{"schemaVersion":1,"traceEvents":[{EVENTS}],"baseTimeNanoseconds":17}}'
TIMELINE = f"[[1000,2000,3000],[{','.join('[0,5,0,0,0,0,6,0,0]' for _ in range(3))}]]"
CHANGES = "[[-1,1,5,0],[1000000,2,6,4],[2000000,4,-6,4],[3000000,2,7,5]]"
STATES = "".join(
    f"Memory State:\ntime: {tick}.5\n---summary---\ntotal_memory: 12.50 MB\nparams_memory: 7.00 MB\n\n"
    for tick in range(4)
)
REPORT = (
    '{"timestamp":"2025-06-23T10:30:00","devices":{"0":{"current_memory":{"allocated":5,"total":9},'
    '"peak_memory":7},"1":{"gpu_memory":{"end_mb":3.5}}}}'
)
TELEMETRY = "".join(
    f'{{"schema_version":2,"timestamp_ns":17506746{tick}0000000000,"device_id":0,"device_used_bytes":{tick}}}\n'
    for tick in range(4)
)
FRAMEWORK = (
    "[2025-07-26 02:46:53] [Rank 3] (after 2 iterations) memory (MB) | allocated: 10.5 | reserved: 28672.0\n"
    "CUDA out of memory. Tried to allocate 1.22 GiB. GPU 0 has a total capacity of 79.15 GiB of which "
    "17.88 MiB is free. Of the allocated memory 78.30 GiB is allocated by PyTorch, and 301.33 MiB is "
    "reserved by PyTorch but unallocated.\n"
)
GOOD = [SERIES, LOG, EXPORT, STREAM, TRACE, TIMELINE, CHANGES, STATES, REPORT, TELEMETRY, FRAMEWORK]
EDITS = st.lists(st.tuples(st.integers(0, 700), st.binary(max_size=4), st.integers(0, 8)), max_size=5)
CELLS = st.one_of(
    st.sampled_from(
        ["", "0", "1", "nan", "-5", "1e308", "1e400", "9" * 400, "²", "[N/A]", "ERR!", '"', "1_0"]
    ),
    st.text(max_size=6),
    st.integers(-5, 2**70).map(str),
    st.floats().map(repr),
    st.just("2025/06/23 10:30:00.123"),
)
ROWS = st.lists(st.lists(CELLS, min_size=1, max_size=8).map(",".join), max_size=12)


def check_refusal(text: str, path: Path) -> None:
    """Check that an error is one line and names its file."""
    assert text.startswith(str(path))
    assert "\n" not in text


def check_sound(path: Path) -> list[Sample]:
    """Read whatever is there, and check that each figure is one that a device could have."""
    try:
        source = open_series(path)
        samples = list(source.samples())
    except InputFileError as refusal:
        check_refusal(str(refusal), path)
        return []
    assert all(note.isprintable() for note in source.notes)
    times = [sample.time_s for sample in samples]
    assert times == sorted(set(times))
    for device in (device for sample in samples for device in sample.devices):
        reading, memory = device.allocator, device.memory
        figures = [memory.total_bytes, memory.used_bytes, memory.free_bytes]
        figures += [reading.allocated_bytes, reading.reserved_bytes] if reading else []
        assert all(figure is None or 0 <= figure < MOST_BYTES for figure in figures)
        assert (device.state == "ok") == (device.reason is None)
    return samples


@fuzz
@given(st.sampled_from(GOOD), EDITS)
def test_damaged_files_never_surprise(tmp_path: Path, good: str, edits: list[tuple[int, bytes, int]]) -> None:
    data = good.encode()
    for position, new, removed in edits:
        data = data[:position] + new + data[position + removed :]
    path = tmp_path / "input"
    path.write_bytes(data)
    check_sound(path)


@pytest.mark.parametrize("good", GOOD)
def test_what_is_damaged_below_is_good(tmp_path: Path, good: str) -> None:
    path = tmp_path / "input"
    path.write_text(good)
    assert check_sound(path)


@fuzz
@given(st.sampled_from([HEADER, LOG_HEADER, "time_s,device,used_bytes", ""]), ROWS)
@example(HEADER, ["1,0,5,,,,", "1,0,5,,,,x"])
def test_any_cells_under_a_good_header_are_figures_or_counted(
    tmp_path: Path, header: str, rows: list[str]
) -> None:
    path = tmp_path / "input"
    path.write_text("\n".join([header, *rows, ""]), encoding="utf-8", errors="replace")
    check_sound(path)


@fuzz
@given(st.binary(max_size=400))
def test_bytes_of_any_kind_are_no_series(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "input"
    path.write_bytes(data)
    assert check_sound(path) == []


@fuzz
@given(st.lists(st.sampled_from(["1,0,5,,,,", "2,0,x,,,,", "# note", "", "3,0,-1,,,,", "1,0"]), max_size=30))
def test_every_line_is_a_record_or_counted(tmp_path: Path, rows: list[str]) -> None:
    path = tmp_path / "input"
    path.write_text("\n".join([HEADER, "0,0,5,,,,", *rows, ""]))
    source = open_series(path)
    samples = list(source.samples())
    left_out = sum(int(note.split()[0].replace(",", "")) for note in source.notes if "left out" in note)
    bad = sum(row.startswith(("2", "3")) or row == "1,0" for row in rows)
    assert left_out == bad
    assert len(samples) == 1 + ("1,0,5,,,," in rows)
