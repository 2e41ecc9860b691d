"""The score of the forecast of preemptions: what counts as forecast, and what as a false word."""

from dataclasses import replace

import pytest

from benchmarks.serving_verdicts import (
    FAMILIES,
    Watched,
    find_seed,
    judge_serving,
    list_serving_errors,
    list_serving_tasks,
    score_serving,
    watch_serving_one,
)

RUN = Watched("ramp", "ramp/0", 2000.0, 500.0, 1900.0, ((1700.0, None),), 190.0)
QUIET = Watched("steady", "steady/0", 7200.0, None, None, (), None)


@pytest.mark.parametrize(
    ("opened", "is_forecast"),
    [
        ((), False),
        (((1700.0, None),), True),
        (((1841.0, None),), False),
        (((1700.0, 1800.0),), False),
        (((1700.0, 1841.0),), True),
        (((400.0, None),), False),
    ],
)
def test_a_forecast_must_stand_a_minute_before_and_begin_with_the_growth(
    opened: tuple[tuple[float, float | None], ...], is_forecast: bool
) -> None:
    assert replace(RUN, opened=opened).is_forecast is is_forecast


def test_words_where_nothing_grows_are_false() -> None:
    assert replace(RUN, opened=((400.0, 450.0), (1700.0, None))).false_words == 1
    assert replace(QUIET, opened=((10.0, 20.0), (30.0, None))).false_words == 2
    assert RUN.false_words == 0


def test_what_grows_for_less_than_three_minutes_does_not_count() -> None:
    sudden = replace(RUN, growth_s=1750.0, opened=())
    assert not sudden.allows_lead
    assert score_serving([sudden]).forecastable == 0
    unknown = replace(RUN, growth_s=None, opened=())
    assert score_serving([unknown]).forecastable == 0


def test_the_targets_are_those_of_the_issue() -> None:
    recall, false = judge_serving([RUN, QUIET, replace(QUIET, opened=((10.0, None),))])
    assert recall["measured"] == 1.0
    hours = (7200.0 + 7200.0 + 500.0) / 3600
    assert false["measured"] == pytest.approx(100 / hours)
    assert (recall["limit"], false["limit"]) == ("≥ 0.95", "≤ 1")
    assert list_serving_errors([replace(RUN, opened=())])[0].startswith("ramp/0: not forecast")


def test_what_is_tuned_on_is_not_what_is_scored() -> None:
    tuned, scored = list_serving_tasks("tuning"), list_serving_tasks("scored")
    assert not set(tuned) & set(scored)
    names = {
        split: {FAMILIES[it[1]].name for it in list_serving_tasks(split)} for split in ("tuning", "scored")
    }
    assert names["scored"] - names["tuning"] == {"steps", "surge"}
    assert not set(map(find_seed, tuned)) & set(map(find_seed, scored))


def test_a_run_that_grows_is_watched_up_to_its_first_preemption() -> None:
    task = next(it for it in list_serving_tasks("tuning") if FAMILIES[it[1]].name == "ramp")
    watched = watch_serving_one(task)
    assert watched.preempted_s is not None
    assert watched.preempted_s <= watched.duration_s <= watched.preempted_s + 2.0
