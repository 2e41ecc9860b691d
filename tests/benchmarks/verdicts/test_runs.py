"""Made-up runs: the same in every process, and true to their labels."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.verdict_runs import Family, Run, make_run
from benchmarks.verdict_runs.counted import count_life
from benchmarks.verdict_runs.growth import grow_evenly, hold
from benchmarks.verdict_runs.job import GIB, Job, plan_steps, round_block
from benchmarks.verdict_runs.modelled import model_life
from benchmarks.verdict_runs.tuning import TUNING
from benchmarks.verdict_runs.tuning.benign import BENIGN

JOB = Job(capacity_bytes=24 * GIB, state_bytes=9 * GIB, activation_bytes=4 * GIB, step_s=1.0)


def find_family(name: str) -> Family:
    return next(family for family in TUNING if family.name == name)


def shorten(family: Family) -> Family:
    """Return the family with runs of half an hour, where their length is free."""
    return replace(family, span_s=1800.0) if family in BENIGN else family


@pytest.mark.parametrize("name", ["uniform_lengths", "restart", "host_warm_up", "burst", "rare_long_batch"])
def test_a_run_is_the_same_whenever_it_is_made(name: str) -> None:
    family = shorten(find_family(name))
    one, other = make_run(family, 1), make_run(family, 1)
    assert one.truth == other.truth
    first = list(itertools.islice(one.samples(), 200))
    assert first == list(itertools.islice(other.samples(), 200))
    assert [sample.seq for sample in first] == list(range(1, len(first) + 1))


def test_a_seed_decides_what_a_run_is() -> None:
    family = find_family("kept_losses")
    assert make_run(family, 0).truth != make_run(family, 8).truth


def test_a_run_ends_where_its_memory_does() -> None:
    run = next(run for seed in range(16) if (run := make_run(find_family("kept_losses"), seed)).truth.oom_s)
    assert run.truth.oom_s == run.duration_s
    last_s = max(sample.time_s for sample in run.samples()) - run.epoch_s
    assert run.duration_s - 2 * run.shape.interval_s <= last_s < run.duration_s


def test_benign_families_never_leak_nor_run_out() -> None:
    assert all(make_run(shorten(family), 0).truth.is_benign for family in BENIGN)


def test_the_model_and_the_counters_agree_on_floors_and_on_the_end() -> None:
    rng = np.random.default_rng(7)
    plan = plan_steps(JOB, rng, 900.0)
    plan = hold(plan, grow_evenly(plan, 100.0, JOB.headroom_bytes / 600))
    modelled, counted = model_life(plan), count_life(plan)
    assert modelled.oom_s is not None
    assert counted.oom_s is not None
    assert modelled.oom_s <= counted.oom_s  # what is stranded ends it earlier
    assert modelled.oom_s == pytest.approx(counted.oom_s, rel=0.15)
    same = min(len(modelled.ends_s), len(counted.ends_s)) - 2
    assert np.max(np.abs(modelled.after_bytes[1:same] - counted.after_bytes[1:same])) < JOB.state_bytes / 100


def test_a_buffer_that_fills_evenly_looks_like_a_leak_to_the_byte_until_it_is_full() -> None:
    plan = plan_steps(JOB, np.random.default_rng(3), 600.0)
    grown = grow_evenly(plan, 50.0, JOB.headroom_bytes / 900)
    bound = JOB.headroom_bytes / 3
    leak, buffer = (model_life(hold(plan, kept)) for kept in (grown, np.minimum(grown, bound)))
    full = int(np.searchsorted(grown, bound))
    assert 200 < full < len(grown) - 100
    for column in ("after_bytes", "peak_bytes", "reserved_bytes", "stranded_bytes", "retries"):
        assert np.array_equal(getattr(leak, column)[:full], getattr(buffer, column)[:full])
    assert leak.after_bytes[-1] > buffer.after_bytes[-1]


def test_the_error_comes_where_live_bytes_pass_the_card() -> None:
    plan = plan_steps(JOB, np.random.default_rng(1), 50.0)
    kept = np.zeros(len(plan.ends_s))
    kept[20:] = JOB.headroom_bytes + 4096
    life = count_life(hold(plan, kept))
    assert life.oom_s is not None
    assert life.ends_s[19] < life.oom_s < plan.ends_s[20]
    assert count_life(hold(plan, kept * 0.5)).oom_s is None


def test_live_ranks_tell_floors_and_peaks_of_the_steps_of_a_tick() -> None:
    run = make_run(shorten(find_family("uniform_lengths")), 0)
    assert run.shape.kind == "live"
    life, seen = run.lives[0], 0
    for sample in itertools.islice(run.samples(), 50):
        (rank,) = sample.ranks
        assert rank.step is not None or rank.steps_within == 0
        if rank.step is None:
            continue
        rows = slice(seen, rank.step.index)
        if rank.steps_within and seen:
            assert rank.steps_within == rank.step.index - seen
            assert rank.peak_max_bytes == life.peak_bytes[rows].max()
            assert rank.floor_min_bytes == np.minimum(life.before_bytes, life.after_bytes)[rows].min()
        seen = rank.step.index


def test_a_series_stays_between_floor_and_peak_and_within_what_is_reserved() -> None:
    run = make_run(shorten(find_family("eval_spikes")), 1)
    assert run.shape.kind == "series"
    lowest = min(int(life.before_bytes.min()) for life in run.lives)
    highest = max(int(life.peak_bytes.max()) for life in run.lives)
    for sample in itertools.islice(run.samples(), 500):
        (device,) = sample.devices
        assert device.allocator is not None
        allocated, reserved = device.allocator.allocated_bytes, device.allocator.reserved_bytes
        assert allocated is not None
        assert reserved is not None
        assert lowest <= allocated <= highest
        assert allocated <= reserved
        assert allocated % 512 == 0


def test_a_device_alone_tells_no_allocator() -> None:
    run = make_run(shorten(find_family("flat")), 4)
    assert not run.shape.has_allocator
    sample = next(iter(run.samples()))
    assert sample.devices[0].allocator is None
    assert not sample.ranks


def test_between_two_processes_the_card_is_empty() -> None:
    run = make_run(shorten(find_family("restart")), 0)
    gap = (run.lives[0].end_s + run.epoch_s, run.lives[1].start_s + run.epoch_s)
    between = [sample for sample in run.samples() if gap[0] < sample.time_s < gap[1]]
    pids = {rank.pid for sample in run.samples() for rank in sample.ranks}
    assert between
    assert all(not sample.ranks and sample.devices[0].memory.used_bytes == 0 for sample in between)
    assert len(pids) == len(run.lives)


def test_sizes_are_those_of_the_allocator() -> None:
    assert [round_block(size) for size in (0, 1, 512, 513)] == [0, 512, 512, 1024]


def count_leaks(run: Run, where: str) -> int:
    return sum(leak.where == where for leak in run.truth.leaks)


def test_a_leak_says_where_it_is() -> None:
    assert count_leaks(make_run(find_family("host_list"), 0), "host") == 1
    assert count_leaks(make_run(find_family("burst"), 1), "device") == 1
