"""Reading a trace piece by piece: as the whole file says, wherever the pieces end, or refused."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.memory_trace.reading import TraceBatch, read_whole
from vramscope.engine.files.memory_trace.stream import stream_trace

from .traces import rank_name, require_measured, trace, write_trace

ROWS = [(0.1 * at, 700.0 + at, 600.5) for at in range(40)]
GOOD = trace(ROWS[:25], [], ROWS[25:])

fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
figure = st.floats(0, 1e6, allow_nan=False) | st.integers(0, 10**6)
rows = st.lists(st.tuples(figure, figure, figure), max_size=6)
pieces = st.sampled_from([1, 2, 7, 64, 1000, 1 << 20])


def join(batches: list[TraceBatch]) -> list[tuple[object, ...]]:
    """Return iterations as they are, however many batches each came in."""
    found: dict[str, list[object]] = {}
    ended: dict[str, tuple[object, ...]] = {}
    for batch in batches:
        samples = found.setdefault(batch.key, [])
        assert (batch.position, batch.key not in ended) == (len(samples), True)
        samples += [(it.timestamp_s, it.reserved_memory_MB, it.allocated_memory_MB) for it in batch.samples]
        if batch.logged is not None:
            logged = batch.logged
            ended[batch.key] = (
                batch.index,
                logged.peak_allocated_MB,
                logged.theoretical_memory_MB,
                logged.static_memory_MB,
            )
    return [(key, *ended[key], *samples) for key, samples in found.items()]


@fuzz
@given(
    st.lists(st.tuples(rows, st.sampled_from([-1, 0.5, 71408.03])), min_size=1, max_size=4),
    st.sampled_from([None, 0, 1, 4]),
    st.booleans(),
    pieces,
)
def test_what_the_tracker_writes_is_read_as_the_whole_wherever_pieces_end(
    tmp_path: Path,
    iterations: list[tuple[list[tuple[float, float, float]], float]],
    indent: int | None,
    is_peak_first: bool,
    piece_bytes: int,
) -> None:
    content: dict[str, dict[str, object]] = {}
    for number, (each, peak) in enumerate(iterations):
        logged = {"peak_allocated_MB": peak, "later_than_us": 7}
        samples = trace(each)["0"]["samples"]
        content[str(3 * number)] = (
            {**logged, "samples": samples} if is_peak_first else {"samples": samples, **logged}
        )
    path = tmp_path / rank_name(0)
    path.write_text(json.dumps(content, indent=indent) + "\n")
    read: list[int] = []
    streamed = list(stream_trace(path, piece_bytes=piece_bytes, on_read=read.append))
    assert join(streamed) == join(list(read_whole(path)))
    assert sum(read) == path.stat().st_size


@fuzz
@given(
    st.lists(st.tuples(st.integers(0, 3000), st.binary(max_size=4), st.integers(0, 40)), max_size=3), pieces
)
def test_what_is_taken_piece_by_piece_is_what_the_whole_says(
    tmp_path: Path, edits: list[tuple[int, bytes, int]], piece_bytes: int
) -> None:
    data = json.dumps(trace(ROWS[:5], [], ROWS[5:9]), indent=4).encode()
    for position, new, removed in edits:
        data = data[:position] + new + data[position + removed :]
    path = tmp_path / rank_name(0)
    path.write_bytes(data)
    try:
        streamed = list(stream_trace(path, piece_bytes=piece_bytes))
    except InputFileError:
        return  # then the file is read whole
    assert join(streamed) == join(list(read_whole(path)))


TEXT = json.dumps(GOOD, indent=4)
SECOND = '"timestamp_s": 2.5,'
"""Of the first sample of iteration 2."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TEXT[:-40], "the file is cut short"),
        (TEXT[: TEXT.index(SECOND) + 5], "the file is cut short"),
        (
            TEXT.replace(SECOND, '"timestamp_s": "soon",'),
            'at $["2"].samples[0].timestamp_s: expected `float`',
        ),
        (TEXT.replace(SECOND, ""), 'at $["2"].samples[0]: object missing required field `timestamp_s`'),
        (TEXT.replace(SECOND, '"timestamp_s": NaN,'), "column 32: JSON is malformed"),
        (TEXT.replace('"1": {', '"x": {'), 'expected an iteration: "0": {"samples": [...], ...}'),
        (TEXT.replace('"2": {', '"0": {'), "expected iterations in ascending order"),
        (TEXT + "{", "expected nothing after the last iteration"),
        (TEXT.replace("},", "} ,,", 1), "JSON is malformed"),
        ("", "the file is cut short"),
        ("[]", "line 1, column 1: expected an object of iterations"),
        ('{"0": {"samples": [' + "[" * 10_000, "the file is cut short"),
    ],
    ids=range(12),
)
@pytest.mark.parametrize("piece_bytes", [100, 1 << 20])
def test_refusal_names_the_place_in_the_file(
    tmp_path: Path, text: str, expected: str, piece_bytes: int
) -> None:
    path = tmp_path / rank_name(0)
    path.write_text(text)
    with pytest.raises(InputFileError) as caught:
        list(stream_trace(path, piece_bytes=piece_bytes))
    assert str(caught.value).startswith(f"{path}: ")
    assert expected in str(caught.value)


def test_line_and_column_count_from_the_beginning_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / rank_name(0)
    path.write_text(TEXT.replace(SECOND, '"timestamp_s": NaN,'))
    line = path.read_text().split("NaN")[0].count("\n") + 1
    with pytest.raises(InputFileError, match=f"line {line}, column 32: JSON is malformed"):
        list(stream_trace(path, piece_bytes=300))


def test_sample_without_an_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / rank_name(0)
    with path.open("wb") as file:
        file.write(b'{"0": {"samples": [{"x": "')
        file.truncate(1 << 30)
    read: list[int] = []
    with pytest.raises(InputFileError, match="expected a sample within 8,388,608 bytes"):
        list(stream_trace(path, on_read=read.append))
    assert sum(read) < 32 << 20


def test_measured_files_are_read_as_the_whole(tmp_path: Path) -> None:
    for run in ("real_30b_pp4_tp2", "simulated_30b_pp4_tp2"):
        for path in sorted(require_measured(run).iterdir()):
            assert join(list(stream_trace(path, piece_bytes=4096))) == join(list(read_whole(path)))


def test_figures_are_those_of_the_example(tmp_path: Path) -> None:
    path = write_trace(tmp_path, rank_name(0), GOOD)
    batches = list(stream_trace(path, piece_bytes=512))
    assert [batch.logged is not None for batch in batches].count(True) == 3
    assert sum(len(batch.samples) for batch in batches) == 40


@pytest.mark.parametrize("between", ["};", "} ", "},,"])
def test_samples_in_two_pieces_need_one_comma_between_them(tmp_path: Path, between: str) -> None:
    path = tmp_path / rank_name(0)
    path.write_text(TEXT.replace("},", between, 1))
    for piece_bytes in range(60, 300, 7):
        with pytest.raises(InputFileError):
            list(stream_trace(path, piece_bytes=piece_bytes))
