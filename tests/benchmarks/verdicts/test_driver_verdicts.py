"""The score of the trend of used memory: what counts, and that other families were tuned on."""

import inspect
from dataclasses import replace

import pytest

from benchmarks.driver_verdicts import (
    WatchedTrend,
    list_driver_tasks,
    score_trends,
    watch_driver_one,
    watch_trend,
)
from benchmarks.verdict_runs.driver.run import make_driver_run
from benchmarks.verdict_runs.driver.scored import DRIVER_SCORED
from benchmarks.verdict_runs.driver.tuning import DRIVER_TUNING

FILLED = WatchedTrend("f", "f/0", 1.0, 1000.0, 100.0, 1000.0, (700.0,), "filling", 0.1, is_covered=True)


def test_no_generator_serves_both() -> None:
    tuned, scored = ({family.make for family in split} for split in (DRIVER_TUNING, DRIVER_SCORED))
    bodies = [{inspect.getsource(make).split("\n", 1)[1] for make in makers} for makers in (tuned, scored)]
    assert not bodies[0] & bodies[1]
    assert not {make.__name__ for make in tuned} & {make.__name__ for make in scored}


def test_a_thousand_hours_in_which_nothing_fills_are_scored() -> None:
    idle = [family for family in DRIVER_SCORED if not family.fills]
    hours = sum(make_driver_run(it, seed).duration_s for it in idle for seed in range(it.seeds)) / 3600
    assert hours > 1000


def test_a_word_counts_that_stood_a_minute_before_and_was_said_of_this_growth() -> None:
    assert FILLED.is_said
    assert not replace(FILLED, fillings=(960.0,), last_word="rising").is_said
    assert not replace(FILLED, fillings=(50.0,)).is_said
    assert not replace(FILLED, last_word="steady").is_said
    assert replace(FILLED, last_word="full").is_said


def test_words_where_nothing_fills_are_false_by_the_hour() -> None:
    quiet = replace(FILLED, growth_s=None, full_s=None, duration_s=7200.0, fillings=(10.0, 20.0))
    early = replace(FILLED, growth_s=600.0, fillings=(300.0, 700.0))
    it = score_trends([FILLED, quiet, early])
    assert (it.said, it.fill, it.false_words, it.false_runs) == (2, 2, 3, 2)
    assert it.idle_hours == pytest.approx((100 + 7200 + 600) / 3600)


def test_growth_of_minutes_allows_no_word_that_early() -> None:
    assert not replace(FILLED, growth_s=800.0).allows_lead


def test_one_run_of_each_kind_goes_through_the_analyzers() -> None:
    fills = next(family for family in DRIVER_SCORED if family.fills)
    assert watch_trend(make_driver_run(fills, 1)).is_said
    modelled = next(task for task in list_driver_tasks("tuning") if task[1] == "modelled")
    assert watch_driver_one(modelled).family.startswith("modelled ")
