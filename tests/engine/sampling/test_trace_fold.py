"""Traces folded into ticks: the same rows as from all samples at once, in bounded memory."""

import errno
import json
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.files.traces import rank_name, require_measured, trace, write_trace
from vramscope.engine.errors import InputFileError, OutputFileError
from vramscope.engine.files.memory_trace.reading import MemoryTrace, read_memory_trace
from vramscope.engine.files.memory_trace.stream import stream_trace
from vramscope.engine.sampling import trace_player as trace_fold
from vramscope.engine.sampling import trace_ticks as trace_rows
from vramscope.engine.sampling.trace_player import TracePlayer, read_run_ticks
from vramscope.engine.sampling.trace_ticks import TickRow, tick_of

ROWS = [(0.05 * at, 2000.0 + at % 7, 1000.0 + at % 5) for at in range(200)]


def expect_rows(found: MemoryTrace, interval_s: float) -> list[TickRow]:
    """Return the rows of a trace from its columns, by looking at every sample of every tick."""
    iterations = [it.index for it in found.iterations for _ in range(it.start, it.stop)]
    ticks = [tick_of(time_s, interval_s) for time_s in found.times_s]
    rows = []
    for tick in dict.fromkeys(ticks):
        own = [at for at, each in enumerate(ticks) if each == tick]
        used = [found.device_used_bytes[at] for at in own]
        allocated = [found.allocated_bytes[at] for at in own]
        newest_s, iteration = found.times_s[own[-1]], iterations[own[-1]]
        rows.append(
            TickRow(tick, newest_s, used[-1], min(used), max(used), allocated[-1], max(allocated), iteration)
        )
    return rows


def fold(path: Path, interval_s: float) -> list[TickRow]:
    run = read_run_ticks(path, interval_s)
    (rank,) = run.ranks
    return list(run.rows.rows(rank.start, rank.stop))


steps = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=12
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps, min_size=1, max_size=4), st.sampled_from([0.01, 0.07, 0.1, 1.0]), st.booleans())
def test_rows_are_those_of_all_samples_at_once(
    tmp_path: Path, iterations: list[list[tuple[int, int, int]]], interval_s: float, is_backwards: bool
) -> None:
    now, content = 0, {}
    for number, each in enumerate(iterations):
        rows = []
        for step, used, allocated in each:
            now += step
            rows.append((now / 100, used / 64, allocated / 1024))
        content[str(number)] = trace(rows)["0"]
    if is_backwards:  # another order than the tracker's is read whole
        content = dict(reversed(content.items()))
    path = write_trace(tmp_path, rank_name(0), content)
    assert fold(path, interval_s) == expect_rows(read_memory_trace(path), interval_s)


def test_measured_ranks_are_folded_as_their_samples_say() -> None:
    for name in ("real_30b_pp4_tp2", "simulated_30b_pp4_tp2"):
        for path in require_measured(name).glob("*rank[06]_*"):
            found = read_memory_trace(path)
            assert fold(path, 0.1) == expect_rows(found, 0.1)
            (rank,) = read_run_ticks(path, 0.1).ranks
            assert rank.is_device_foreign == found.is_device_foreign
            assert (rank.start_s, rank.end_s) == (found.times_s[0], found.times_s[-1])
            assert rank.peak_bytes == max(it.peak_allocated_bytes or 0 for it in found.iterations)
            for at, iteration in enumerate(found.iterations):
                assert rank.iterations.find(iteration.index) == at
                assert rank.iterations.start_s(at) == found.times_s[iteration.start]
                assert rank.iterations.logged(at).static_bytes == iteration.static_bytes


def test_what_is_wrong_is_said_as_of_the_whole_file(tmp_path: Path) -> None:
    content = trace([(0.0, 1.0, 1.0), (14.0, 1.0, 1.0)], [(0.0, 1.0, 1.0)])
    path = write_trace(tmp_path, rank_name(0), content)
    with pytest.raises(InputFileError, match="0 s comes after 14 s; expected times"):
        read_run_ticks(path, 0.1)
    path.write_text(json.dumps(trace(ROWS), indent=4)[:-9])
    with pytest.raises(InputFileError) as caught:
        read_run_ticks(path, 0.1)
    with pytest.raises(InputFileError) as expected:
        read_memory_trace(path)
    assert str(caught.value) == str(expected.value)


def test_too_large_for_memory_is_read_in_pieces_or_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_fold, "SIZE_LIMIT_BYTES", 1000)
    path = write_trace(tmp_path, rank_name(0), trace(ROWS))
    assert fold(path, 0.1) == expect_rows(read_memory_trace(path), 0.1)
    write_trace(tmp_path, rank_name(0), trace(ROWS, [(0.0, 1.0, 1.0)]))
    with pytest.raises(
        InputFileError, match=r'at \$\["1"\].samples\[0\].timestamp_s: 0 s comes after 9.95 s'
    ):
        read_run_ticks(path, 0.1)


def test_memory_does_not_grow_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_rows, "MOST_MEMORY_BYTES", 1 << 14)
    monkeypatch.setattr(
        trace_fold, "stream_trace", lambda path, **keys: stream_trace(path, piece_bytes=1 << 15, **keys)
    )
    samples = [(0.05 * at, 2000.0, 1000.0) for at in range(20_000)]
    path = write_trace(tmp_path, rank_name(0), trace(*(samples[at : at + 50] for at in range(0, 20_000, 50))))
    del samples
    read_run_ticks(path, 0.1)
    tracemalloc.start()
    run = read_run_ticks(path, 0.1)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert run.rows.count == 10_001
    assert most_bytes < path.stat().st_size / 4


def test_rows_in_a_file_play_as_those_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(3):
        rows = ROWS[: 60 + 70 * rank]
        write_trace(tmp_path, rank_name(rank), trace(rows[:20], rows[50:]))
    expected = list(TracePlayer(tmp_path).play_at_once())
    monkeypatch.setattr(trace_rows, "MOST_MEMORY_BYTES", 1000)
    player = TracePlayer(tmp_path)
    assert list(player.play_at_once()) == expected
    for at in (0, 1, 15, 24, 50, 99):
        player.seek(expected[at].time_s)
        assert list(player.play_at_once()) == expected[at:]


def test_full_disk_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(trace_rows, "MOST_MEMORY_BYTES", 1000)
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    path = write_trace(tmp_path, rank_name(0), trace(ROWS))
    with pytest.raises(OutputFileError, match="No space left on device; set TMPDIR to another folder"):
        read_run_ticks(path, 0.1)


def test_reading_can_be_ended_and_says_how_far_it_is(tmp_path: Path) -> None:
    shares: list[float] = []
    for rank in range(2):
        write_trace(tmp_path, rank_name(rank), trace(ROWS))
    read_run_ticks(tmp_path, 0.1, shares.append)
    assert shares == [pytest.approx(0.5, abs=0.01), 1.0]

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_run_ticks(tmp_path, 0.1, interrupt)
