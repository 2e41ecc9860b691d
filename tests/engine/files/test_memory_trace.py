"""Reader of one memory trace: figures as measured, or one line that says where and what was expected."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.memory_trace import reading as reader
from vramscope.engine.files.memory_trace.reading import MemoryTrace, read_memory_trace
from vramscope.engine.units import MIB

from .traces import rank_name, require_measured, trace, write_trace

GOOD = trace([(0.1, 700.0, 600.5), (0.2, 710.0, 650.0)], [(0.2, 720.0, 640.0)])


def refusal(path: Path) -> str:
    with pytest.raises(InputFileError) as caught:
        read_memory_trace(path)
    text = str(caught.value)
    assert text.startswith(str(path)) or not str(path).isprintable()
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


def test_columns_hold_bytes_and_seconds(tmp_path: Path) -> None:
    found = read_memory_trace(write_trace(tmp_path, rank_name(3), GOOD))
    assert list(found.times_s) == [0.1, 0.2, 0.2]
    assert list(found.device_used_bytes) == [700 * MIB, 710 * MIB, 720 * MIB]
    assert found.allocated_bytes[0] == round(600.5 * MIB)
    assert [(each.index, each.start, each.stop) for each in found.iterations] == [(0, 0, 2), (1, 2, 3)]
    assert (found.coordinates.rank, found.coordinates.tp, found.coordinates.pp) == (3, 1, 1)
    assert found.notes == ()


def test_minus_one_and_absent_are_unmeasured(tmp_path: Path) -> None:
    content: dict[str, dict[str, object]] = {
        "0": {"samples": [], "peak_allocated_MB": 71412.8, "theoretical_memory_MB": -1},
        "1": {"samples": []},
    }
    found = read_memory_trace(write_trace(tmp_path, rank_name(0), content))
    logged, silent = found.iterations
    assert logged.peak_allocated_bytes == round(71412.8 * MIB)
    assert (logged.theoretical_bytes, logged.static_bytes) == (None, None)
    assert silent.peak_allocated_bytes is None
    assert len(found.times_s) == 0
    assert not found.is_device_foreign


def test_iterations_are_ordered_as_numbers(tmp_path: Path) -> None:
    content = {key: trace([(float(key), 1.0, 1.0)])["0"] for key in ("10", "9", "2")}
    found = read_memory_trace(write_trace(tmp_path, rank_name(0), content))
    assert [each.index for each in found.iterations] == [2, 9, 10]
    assert list(found.times_s) == [2.0, 9.0, 10.0]


def test_device_used_below_allocated_is_of_another_device(tmp_path: Path) -> None:
    foreign = read_memory_trace(write_trace(tmp_path, rank_name(0), trace([(0.0, 696.8, 57121.0)])))
    own = read_memory_trace(write_trace(tmp_path, rank_name(1), trace([(0.0, 1.0, 2.0), (0.1, 5.0, 4.0)])))
    assert foreign.is_device_foreign
    assert not own.is_device_foreign


def test_small_step_back_of_the_clock_is_noted(tmp_path: Path) -> None:
    rows = [(0.0, 1.0, 1.0), (0.5, 1.0, 1.0), (0.4, 1.0, 1.0), (0.6, 1.0, 1.0)]
    found = read_memory_trace(write_trace(tmp_path, rank_name(2), trace(rows)))
    assert list(found.times_s) == [0.0, 0.5, 0.5, 0.6]
    assert "rank 2: the clock went back 1 times, at most by 0.100 s" in found.notes[0]


def test_unknown_keys_and_a_byte_order_mark_are_accepted(tmp_path: Path) -> None:
    content: dict[str, Any] = trace([(0.0, 1.0, 1.0)])
    content["0"]["later"] = {"deep": [1, 2]}
    path = tmp_path / rank_name(0)
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(content).encode())
    assert len(read_memory_trace(path).times_s) == 1


def altered(**fields: object) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(GOOD))
    content["1"]["samples"][0].update(fields)
    return content


def without(field: str) -> dict[str, Any]:
    content = altered()
    del content["1"]["samples"][0][field]
    return content


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([], "at $: expected `object`, got `array`; expected a memory trace"),
        ({}, "at $: no iterations; expected at least one"),
        ({"one": {"samples": []}}, 'at $["one"]: expected the number of an iteration as key'),
        ({"1": {"samples": []}, "01": {"samples": []}}, "iteration 1 appears twice"),
        ({"0": []}, 'at $["0"]: expected `object`, got `array`'),
        ({"0": {}}, 'at $["0"]: object missing required field `samples`'),
        ({"0": {"samples": 5}}, 'at $["0"].samples: expected `array`, got `int`'),
        (without("timestamp_s"), 'at $["1"].samples[0]: object missing required field `timestamp_s`'),
        (without("reserved_memory_MB"), "missing required field `reserved_memory_MB`"),
        (altered(timestamp_s="soon"), 'at $["1"].samples[0].timestamp_s: expected `float`, got `str`'),
        (altered(timestamp_s=None), 'at $["1"].samples[0].timestamp_s: expected `float`, got `null`'),
        (altered(timestamp_s=-0.5), 'at $["1"].samples[0].timestamp_s: expected `float` >= 0'),
        (altered(timestamp_s=1e12), 'at $["1"].samples[0].timestamp_s: expected `float` <= '),
        (altered(allocated_memory_MB=-1), 'at $["1"].samples[0].allocated_memory_MB: expected `float` >= 0'),
        (altered(reserved_memory_MB=1e300), 'at $["1"].samples[0].reserved_memory_MB: expected `float` <= '),
        ({"0": {"samples": [], "peak_allocated_MB": -0.5}}, "expected -1 (never logged) or at least 0"),
    ],
)
def test_wrong_content_is_refused_with_its_place(tmp_path: Path, content: object, expected: str) -> None:
    assert expected in refusal(write_trace(tmp_path, rank_name(0), content))


def test_clock_that_starts_again_is_refused(tmp_path: Path) -> None:
    content = trace([(0.0, 1.0, 1.0), (14.0, 1.0, 1.0)], [(0.0, 1.0, 1.0)])
    text = refusal(write_trace(tmp_path, rank_name(0), content))
    assert text.startswith('at $["1"].samples[0].timestamp_s: 0 s comes after 14 s; expected times')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty"),
        (" \n ", "the file is empty"),
        ("{", "line 1, column 2: the file is cut short"),
        ('{"0": {"samples": [\n  {"timestamp_s": NaN}]}}', "line 2, column 19: JSON is malformed"),
        ('{"0": {"samples": [\n  {"timestamp_s": 1e999}]}}', 'at $["0"].samples[0].timestamp_s'),
        ("\n\nnot json", "line 3, column 5: JSON is malformed"),
        ('{"0": {"samples": []}} tail', "line 1, column 25: JSON is malformed"),
        ("[" * 100_000, "expected a memory trace"),
        ('{"0": {"samples": ' + "[" * 100_000, "expected a memory trace"),
        ('{"0": {"samples": [], "x": ' + "[" * 100_000 + "]" * 100_000 + "}}", "expected a memory trace"),
    ],
)
def test_broken_text_is_refused_with_line_and_column(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / rank_name(0)
    path.write_text(text)
    assert expected in refusal(path)


@pytest.mark.parametrize("data", [b"\xff\xfe{\x00}\x00", b'{"\xff": {"samples": []}}'])
def test_other_encodings_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / rank_name(0)
    path.write_bytes(data)
    refusal(path)


def test_name_without_a_rank_says_how_to_name_it(tmp_path: Path) -> None:
    path = write_trace(tmp_path, "trace.json", GOOD)
    assert "rename it to, for example, memory_trace_rank0_wd8_tp2_pp4_l40_bs1.json" in refusal(path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (rank_name(0, "_wd8_tp0_pp4"), "the name says tp0; expected tp of at least 1"),
        (rank_name(8, "_wd8_tp2_pp4"), "rank 8 of a world of 8; expected a rank from 0 to 7"),
    ],
)
def test_impossible_layout_is_refused(tmp_path: Path, name: str, expected: str) -> None:
    assert expected in refusal(write_trace(tmp_path, name, GOOD))


def test_what_is_not_a_file_is_refused_at_once(tmp_path: Path) -> None:
    absent, folder, pipe = (tmp_path / rank_name(rank) for rank in range(3))
    folder.mkdir()
    os.mkfifo(pipe)
    assert refusal(absent) == "cannot be read: no such file or directory"
    assert refusal(folder) == "cannot be read: is a directory"
    assert refusal(pipe).startswith("not a regular file")


def test_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    path = write_trace(tmp_path, "file", GOOD) / rank_name(0)
    assert refusal(path) == "cannot be read: not a directory"


def test_too_large_a_file_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "SIZE_LIMIT_BYTES", 100)
    assert "is too large; expected at most 100 B" in refusal(write_trace(tmp_path, rank_name(0), GOOD))


def test_path_cannot_disturb_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m\nb" / rank_name(0)
    with pytest.raises(InputFileError) as caught:
        read_memory_trace(path)
    assert str(caught.value).isprintable()


def check(path: Path, data: bytes) -> MemoryTrace | None:
    """Read a file that may hold anything: the outcome is a sound trace or one line."""
    path.write_bytes(data)
    try:
        found = read_memory_trace(path)
    except InputFileError as error:
        refused = str(error)
    else:
        check_columns(found)
        return found
    assert "\n" not in refused
    return None


def check_columns(found: MemoryTrace) -> None:
    assert list(found.times_s) == sorted(found.times_s)
    assert len(found.times_s) == len(found.device_used_bytes) == len(found.allocated_bytes)
    assert min((*found.device_used_bytes, *found.allocated_bytes), default=0) >= 0
    assert [each.start for each in found.iterations[1:]] == [each.stop for each in found.iterations[:-1]]


fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["0", "1", "samples", "timestamp_s", "reserved_memory_MB", "allocated_memory_MB", "x"]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@fuzz
@given(st.binary(max_size=200))
def test_random_bytes_never_surprise(tmp_path: Path, data: bytes) -> None:
    check(tmp_path / rank_name(0), data)


@fuzz
@given(JSON)
def test_random_json_never_surprises(tmp_path: Path, content: object) -> None:
    check(tmp_path / rank_name(0), json.dumps(content).encode())


@fuzz
@given(st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=4), st.integers(0, 8)), max_size=4))
def test_mutated_traces_never_surprise(tmp_path: Path, edits: list[tuple[int, bytes, int]]) -> None:
    data = json.dumps(GOOD, indent=4).encode()
    for position, new, removed in edits:
        data = data[:position] + new + data[position + removed :]
    check(tmp_path / rank_name(0), data)


number = st.floats(-2, 1e10, allow_nan=False) | st.integers(-1, 10**6)


@fuzz
@given(st.lists(st.lists(st.tuples(number, number, number), max_size=4), max_size=3))
def test_any_figures_are_read_as_written_or_refused(
    tmp_path: Path, iterations: list[list[tuple[float, float, float]]]
) -> None:
    found = check(tmp_path / rank_name(0), json.dumps(trace(*iterations)).encode())
    if found is not None:
        rows = [row for rows in iterations for row in rows]
        assert list(found.allocated_bytes) == [round(row[2] * MIB) for row in rows]


def test_measured_run_reads_whole() -> None:
    folder = require_measured("real_30b_pp4_tp2")
    found = read_memory_trace(folder / rank_name(6))
    assert [each.index for each in found.iterations] == list(range(10))
    assert (found.coordinates.tp, found.coordinates.pp) == (0, 3)
    assert not found.is_device_foreign
    for iteration in found.iterations:
        assert iteration.peak_allocated_bytes is not None
        assert iteration.peak_allocated_bytes >= max(found.allocated_bytes[iteration.start : iteration.stop])
