"""The trace player: recorded figures, in the recording's own time, as fast as asked."""

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.clocks import HandClock
from tests.engine.files.traces import Row, rank_name, require_measured, trace, write_trace
from vramscope.analyzers.pressure import PressureAnalyzer
from vramscope.analyzers.replay_capacity import CapacityAnalyzer
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.model import Sample
from vramscope.engine.sampling.trace_player import IDLE_S, TAKE_LIMIT, TracePlayer
from vramscope.engine.units import GIB, MIB


def play(player: TracePlayer, clock: HandClock) -> list[Sample]:
    """Return all samples, moving the clock exactly as far as the player asks."""
    samples = []
    player.start()
    while not player.is_ended:
        clock.now_s += player.wait_s()
        samples += player.take()
    return samples


def make_run(folder: Path, *ranks: list[list[Row]], layout: str = "_wd2_tp2_pp1") -> Path:
    for rank, iterations in enumerate(ranks):
        write_trace(folder, rank_name(rank, layout), trace(*iterations))
    return folder


FIRST = [[(0.05, 700.0, 600.0), (0.08, 720.0, 610.0), (0.1, 690.0, 580.0)], [(0.35, 800.0, 500.0)]]
SECOND = [[(0.15, 900.0, 10.0)], [(0.36, 910.0, 20.0)]]


def test_ticks_carry_last_least_and_most_of_each_rank(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    first, second, third, last = play(TracePlayer(make_run(tmp_path, FIRST, SECOND), clock=clock), clock)
    assert [each.time_s for each in (first, second, third, last)] == [0.1, 0.2, 0.3, 0.4]
    assert [each.seq for each in (first, second, third, last)] == [0, 1, 2, 3]
    assert {each.clock for each in (first, last)} == {"trace"}
    assert first.interval_s == 0.1
    rank = first.devices[0]
    assert (rank.memory.used_bytes, rank.memory.used_min_bytes, rank.memory.used_max_bytes) == (
        690 * MIB,
        690 * MIB,
        720 * MIB,
    )
    assert rank.allocator is not None
    assert (rank.allocator.allocated_bytes, rank.allocator.allocated_max_bytes) == (580 * MIB, 610 * MIB)
    assert rank.allocator.reserved_bytes is None
    assert (rank.memory.total_bytes, rank.memory.free_bytes) == (None, None)


def test_rank_before_its_first_sample_is_unmeasured(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    rank = play(TracePlayer(make_run(tmp_path, FIRST, SECOND), clock=clock), clock)[0].devices[1]
    assert (rank.memory.used_bytes, rank.allocator, rank.age_s, rank.step) == (None, None, None, None)
    assert rank.state == "ok"


def test_tick_without_a_sample_keeps_the_last_value_and_says_how_old_it_is(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    rank = play(TracePlayer(make_run(tmp_path, FIRST, SECOND), clock=clock), clock)[2].devices[0]
    assert (rank.memory.used_bytes, rank.memory.used_min_bytes, rank.memory.used_max_bytes) == (
        690 * MIB,
        None,
        None,
    )
    assert rank.age_s == pytest.approx(0.2)


def test_devices_are_ranks_with_coordinates_and_steps(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    last = play(TracePlayer(make_run(tmp_path / "run-7", FIRST, SECOND), clock=clock), clock)[-1]
    assert last.node == "run-7"
    assert [(each.index, each.kind, each.name) for each in last.devices] == [
        (0, "trace", "recorded"),
        (1, "trace", "recorded"),
    ]
    assert [each.step for each in last.devices] == [1, 1]
    coordinates = last.devices[1].rank
    assert coordinates is not None
    assert (coordinates.rank, coordinates.world_size, coordinates.tp, coordinates.pp) == (1, 2, 1, 0)


def test_uuid_is_of_the_run_and_the_rank_wherever_it_lies(tmp_path: Path) -> None:
    def uuids(folder: Path) -> list[str]:
        clock = HandClock(1000.0)
        return [each.uuid for each in play(TracePlayer(folder, clock=clock), clock)[0].devices]

    here, moved = uuids(make_run(tmp_path / "a", FIRST)), uuids(make_run(tmp_path / "b", FIRST))
    other = uuids(make_run(tmp_path / "c", SECOND))
    assert here == moved != other
    assert here[0].startswith("trace-")
    assert here[0].endswith("-rank0")


def test_notes_say_what_the_figures_are_and_where_the_trace_ended(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    samples = play(TracePlayer(make_run(tmp_path / "run", FIRST), speed=10, clock=clock), clock)
    assert samples[0].notes == (
        "1 of 2 ranks are recorded here",
        "recorded values of 1 rank from run, played 10 times as fast",
        "used is device used (NVML), everything on the device; allocated is the rank's own; "
        "capacity was not recorded",
    )
    assert samples[-1].notes == ("trace ended at 0.3 s", *samples[0].notes)
    assert [sample.is_last for sample in samples] == [False] * (len(samples) - 1) + [True]


def test_capacity_is_shown_only_when_it_was_given(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    player = TracePlayer(make_run(tmp_path, FIRST), capacity_bytes=GIB, clock=clock)
    first = play(player, clock)[0]
    memory = first.devices[0].memory
    assert (memory.total_bytes, memory.free_bytes) == (GIB, GIB - 690 * MIB)
    assert "capacity 1.0 GiB is given, not recorded" in first.notes[-1]


def test_capacity_below_what_was_used_leaves_nothing_free(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    player = TracePlayer(make_run(tmp_path, FIRST), capacity_bytes=500 * MIB, clock=clock)
    assert play(player, clock)[0].devices[0].memory.free_bytes == 0


def test_device_used_of_another_gpu_is_left_out_and_noted(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    sample = play(TracePlayer(make_run(tmp_path, [[(0.0, 697.0, 57000.0)]]), clock=clock), clock)[0]
    assert sample.devices[0].memory.used_bytes is None
    assert sample.devices[0].allocator is not None
    assert sample.devices[0].allocator.allocated_bytes == 57000 * MIB
    assert any("another GPU" in note for note in sample.notes)


def test_rank_that_ended_long_before_the_others_is_stale(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    run = make_run(tmp_path, [[(0.1, 2.0, 1.0)]], [[(0.1, 2.0, 1.0), (3.0, 2.0, 1.0)]])
    samples = play(TracePlayer(run, clock=clock), clock)
    assert samples[8].devices[0].state == "ok"
    ended = samples[-1].devices[0]
    assert (ended.state, ended.reason) == ("stale", "the trace of this rank ended at 0.1 s")
    assert ended.memory.used_bytes == 2 * MIB
    assert samples[-1].devices[1].state == "ok"


def test_last_tick_of_a_rank_is_measured_however_long_it_is(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    run = make_run(tmp_path, [[(2.1, 900.0, 1.0), (3.0, 2.0, 1.0)]])
    (only,) = play(TracePlayer(run, interval_s=10.0, clock=clock), clock)
    rank = only.devices[0]
    assert (rank.state, rank.memory.used_max_bytes) == ("ok", 900 * MIB)


def test_rank_without_samples_is_stale_and_a_run_without_is_refused(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    run = make_run(tmp_path / "one", FIRST, [[]])
    silent = play(TracePlayer(run, clock=clock), clock)[0].devices[1]
    assert (silent.state, silent.memory.used_bytes) == ("stale", None)
    with pytest.raises(InputFileError, match="no samples in it"):
        TracePlayer(make_run(tmp_path / "none", [[]]))


@pytest.mark.parametrize("speed", [0.5, 1.0, 10.0])
def test_speed_scales_the_waiting_and_not_the_figures(tmp_path: Path, speed: float) -> None:
    clock = HandClock(1000.0)
    player = TracePlayer(make_run(tmp_path, FIRST, SECOND), speed=speed, clock=clock)
    assert player.take() == []
    player.start()
    began_s = clock.now_s
    assert player.wait_s() == 0.0
    assert len(player.take()) == 1
    assert player.wait_s() == pytest.approx(0.1 / speed)
    assert player.take() == []
    samples = play(player, clock)
    assert [each.time_s for each in samples] == [0.2, 0.3, 0.4]
    assert clock.now_s - began_s == pytest.approx(0.3 / speed)


def test_late_player_returns_what_is_due_in_order_and_in_chunks(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    rows = [(tick / 10, 2.0, 1.0) for tick in range(1, 201)]
    player = TracePlayer(make_run(tmp_path, [rows]), clock=clock)
    player.start()
    clock.now_s += 15.05
    chunks = [player.take(), player.take(), player.take(), player.take()]
    assert [len(chunk) for chunk in chunks] == [TAKE_LIMIT, TAKE_LIMIT, 151 - 2 * TAKE_LIMIT, 0]
    assert [each.seq for chunk in chunks for each in chunk] == list(range(151))


def test_after_the_end_nothing_is_due_and_nobody_spins(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    player = TracePlayer(make_run(tmp_path, FIRST), clock=clock)
    play(player, clock)
    clock.now_s += 100
    assert (player.take(), player.wait_s()) == ([], IDLE_S)


def test_stopped_player_gives_nothing(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    player = TracePlayer(make_run(tmp_path, FIRST), clock=clock)
    player.start()
    player.stop()
    assert (player.take(), player.wait_s()) == ([], IDLE_S)


def test_starting_again_does_not_rewind(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    player = TracePlayer(make_run(tmp_path, FIRST), clock=clock)
    player.start()
    player.take()
    clock.now_s += 0.1
    player.start()
    assert [each.time_s for each in player.take()] == [0.2]


def test_trace_that_begins_late_plays_at_once(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    player = TracePlayer(make_run(tmp_path, [[(5000.02, 2.0, 1.0), (5000.2, 2.0, 1.0)]]), clock=clock)
    player.start()
    assert [each.time_s for each in player.take()] == [5000.1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("speed", 0.0),
        ("speed", -1.0),
        ("speed", float("nan")),
        ("speed", float("inf")),
        ("interval_s", 0.0),
        ("interval_s", float("nan")),
        ("capacity_bytes", 0),
    ],
)
def test_senseless_settings_are_refused(tmp_path: Path, name: str, value: float) -> None:
    with pytest.raises(UsageError, match="out of range; expected"):
        TracePlayer(make_run(tmp_path, FIRST), **{name: value})  # type: ignore[arg-type] # by name


def test_file_of_one_rank_plays_alone(tmp_path: Path) -> None:
    clock = HandClock(1000.0)
    path = make_run(tmp_path, FIRST, SECOND) / rank_name(1, "_wd2_tp2_pp1")
    samples = play(TracePlayer(path, clock=clock), clock)
    assert [each.index for each in samples[0].devices] == [1]
    assert samples[0].node == path.name


times = st.lists(st.integers(0, 400), min_size=1, max_size=40).map(lambda raw: [t / 100 for t in sorted(raw)])


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times, st.sampled_from([0.01, 0.03, 0.1, 0.25, 1.0, 7.0]))
def test_no_recorded_extreme_is_lost_whatever_the_tick(
    tmp_path: Path, times_s: list[float], interval_s: float
) -> None:
    rows = [(time_s, float(900 + index * 7 % 50), 1.0) for index, time_s in enumerate(times_s)]
    clock = HandClock(1000.0)
    player = TracePlayer(make_run(tmp_path, [rows]), interval_s=interval_s, clock=clock)
    memories = [each.devices[0].memory for each in play(player, clock)]
    measured = [memory for memory in memories if memory.used_max_bytes is not None]
    assert max(memory.used_max_bytes or 0 for memory in measured) == max(row[1] for row in rows) * MIB
    assert min(memory.used_min_bytes or 0 for memory in measured) == min(row[1] for row in rows) * MIB
    assert memories[-1].used_bytes == rows[-1][1] * MIB
    assert player.take() == []


def test_measured_run_plays_whole_and_opens_no_finding() -> None:
    folder = require_measured("real_30b_pp4_tp2")
    clock = HandClock(1000.0)
    started_s = time.process_time()
    player = TracePlayer(folder, capacity_bytes=80 * GIB, clock=clock)
    assert time.process_time() - started_s < 0.15
    samples = play(player, clock)
    assert (len(samples), samples[-1].time_s) == (159, 15.9)
    assert samples[-1].notes[0] == "trace ended at 15.9 s"
    assert all(each.state == "ok" for sample in samples for each in sample.devices)
    assert [each.step for each in samples[-1].devices] == [9] * 8
    peak = max(each.memory.used_max_bytes or 0 for sample in samples for each in sample.devices)
    assert round(peak / MIB) == 76_741
    analyzers = (PressureAnalyzer(), CapacityAnalyzer())
    assert [f for sample in samples for analyzer in analyzers for f in analyzer.observe(sample)] == []


def test_measured_run_would_not_fit_less_than_it_used() -> None:
    clock = HandClock(1000.0)
    player = TracePlayer(require_measured("real_30b_pp4_tp2"), capacity_bytes=60 * GIB, clock=clock)
    analyzer = CapacityAnalyzer()
    found = {f.id: f for sample in play(player, clock) for f in analyzer.observe(sample)}
    assert len(found) == 8
    assert "would not fit 60.0 GiB: rank 6 used 74.9 GiB at 10.5 s" in {f.title for f in found.values()}


def test_simulated_run_plays_without_device_used() -> None:
    clock = HandClock(1000.0)
    samples = play(TracePlayer(require_measured("simulated_30b_pp4_tp2"), clock=clock), clock)
    last = samples[-1].devices
    assert {(each.name, each.is_simulated) for each in last} == {("simulated", True)}
    assert any(note.startswith("simulated, not measured: ") for note in samples[0].notes)
    assert {each.memory.used_bytes for each in last} == {None}
    assert all(each.allocator and (each.allocator.allocated_bytes or 0) > 50 * GIB for each in last)
