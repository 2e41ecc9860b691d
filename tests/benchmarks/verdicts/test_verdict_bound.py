"""The forecaster that knows the state: its allocator is the model's, its futures differ in what comes."""

import shutil

import numpy as np
import pytest

from benchmarks.verdict_bound import Futures, Looked, PastFutures, Process, choose_policy, list_policies
from benchmarks.verdict_detectors import OURS
from benchmarks.verdict_runs import Family, Shape, Truth, make_run
from benchmarks.verdict_runs.tuning import TUNING
from benchmarks.verdict_watch import Watched

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="the futures are computed in C")


def _find_family(name: str) -> Family:
    return next(family for family in TUNING if family.name == name)


@needs_compiler
@pytest.mark.parametrize(("name", "seed"), [("replay_buffer", 3), ("tight_but_even", 0), ("kept_states", 0)])
def test_the_copy_in_c_holds_the_same_bytes_as_the_model_and_fails_in_the_same_step(
    name: str, seed: int
) -> None:
    family = _find_family(name)
    run = make_run(family, seed)
    life = run.lives[-1]
    assert run.truth.oom_s is not None
    futures = Futures(family, run)
    process = Process(life.job.limit_bytes, life.job.state_bytes)
    columns = (
        life.before_bytes,
        life.after_bytes,
        life.peak_bytes,
        life.reserved_bytes,
        life.stranded_bytes,
        life.retries,
    )
    plan = futures.plan
    for step in range(len(life.ends_s)):
        served, row = process.step(
            int(plan.activation_bytes[step]), int(plan.kept_bytes[step]), int(futures.room[step])
        )
        assert row == [int(column[step]) for column in columns]
        assert served == (step < len(life.ends_s) - 1)
    process.close()


@needs_compiler
def test_futures_keep_what_was_drawn_once_and_draw_lengths_again() -> None:
    family = _find_family("scored_batches")
    futures = Futures(family, make_run(family, 3))
    plan, step = futures.plan, 60
    one, other = futures.draw(step, 300.0), futures.draw(step, 300.0)
    assert len(one.activation) > 100
    for rows in (one, other):
        assert not np.array_equal(rows.activation, plan.activation_bytes[step : step + len(rows.activation)])
        assert rows.activation.max() <= plan.job.activation_bytes
        # What is held goes on from where it is.
        assert abs(int(rows.kept[0]) - int(plan.kept_bytes[step - 1])) < 0.05 * plan.job.limit_bytes
    assert not np.array_equal(one.activation[:50], other.activation[:50])


def test_futures_of_the_past_are_its_steps_in_another_order_and_go_on_from_what_is_held() -> None:
    family = _find_family("uniform_lengths_leak")
    run = make_run(family, 3)
    futures = PastFutures(run, family)
    plan, step = futures.plan, 300
    one, other = futures.draw(step, 120.0), futures.draw(step, 120.0)
    assert set(one.activation.tolist()) <= set(plan.activation_bytes[:step].tolist())
    assert not np.array_equal(one.activation[:40], other.activation[:40])
    grown = np.diff(one.kept, prepend=plan.kept_bytes[step - 1])
    assert set(grown.tolist()) <= set(np.diff(plan.kept_bytes[:step]).tolist())
    assert one.kept[-1] > one.kept[0]
    assert one.ends_s[-2] < 120.0 <= one.ends_s[-1]


def test_futures_of_the_past_take_more_and_more_where_its_steps_did() -> None:
    family = _find_family("growing_sequence")
    run = make_run(family, 0)
    futures = PastFutures(run, family)
    step = len(run.lives[-1].ends_s) - 20
    rows = futures.draw(step, 60.0)
    assert np.mean(rows.activation) > np.max(futures.plan.activation_bytes[:step])


def _looked(chances: list[float], truth: Truth, duration_s: float) -> Looked:
    run = Watched("f", "f/0", Shape("live", 1.0), truth, duration_s, 0, 1, None, {OURS: []}, [])
    times_s = tuple(60.0 * at for at in range(len(chances)))
    return Looked(run, times_s, np.array([chances] * 3).T, True)


def test_the_best_way_to_speak_warns_without_a_false_word_where_chances_tell_the_runs_apart() -> None:
    ends = _looked([0.0, 0.1, 0.8, 0.9], Truth(oom_s=250.0, live_share=0.6), 250.0)
    stays = _looked([0.0, 0.3, 0.3, 0.0, 0.0], Truth(), 3600.0)
    best = choose_policy(list_policies([ends, stays], "live"), 0.0)
    assert (best.warned, best.ended, best.false) == (1, 1, 0)
    alike = _looked([0.0, 0.1, 0.8, 0.9], Truth(), 3600.0)
    best = choose_policy(list_policies([ends, alike], "live"), 0.0)
    assert (best.warned, best.false) == (0, 0)
