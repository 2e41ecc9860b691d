"""Scores of findings and forecasts that were made by hand: every figure is worked out in the test."""

import pytest

from benchmarks.verdict_detectors import OURS, Forecast
from benchmarks.verdict_report import BEGIN, END, format_misses, format_reliability, replace_misses
from benchmarks.verdict_runs import Leak, Shape, Truth
from benchmarks.verdict_scores import (
    count_too_short,
    is_warned,
    list_errors,
    match_leaks,
    score,
    score_fragmented,
)
from benchmarks.verdict_watch import Moment

from .watched import BENIGN, LEAKING, make_claim, make_moment, make_watched


def test_a_leak_that_is_called_counts_once_and_what_is_called_again_is_false() -> None:
    claims = [make_claim("leak", 200, 400), make_claim("leak", 500)]
    result = match_leaks(make_watched(LEAKING, claims), claims, "leak")
    assert (result.found, result.missed, result.false) == (1, 0, 1)


def test_a_call_before_the_onset_is_false_and_the_leak_is_missed() -> None:
    claims = [make_claim("leak", 50)]
    result = match_leaks(make_watched(LEAKING, claims), claims, "leak")
    assert (result.found, result.missed, result.false) == (0, 1, 1)


def test_a_second_leak_is_known_while_the_finding_of_the_first_stands() -> None:
    truth = Truth((Leak(100, 300), Leak(600, 900)))
    standing, closed = [make_claim("leak", 200)], [make_claim("leak", 200, 400)]
    assert match_leaks(make_watched(truth, standing), standing, "leak").found == 2
    assert match_leaks(make_watched(truth, closed), closed, "leak").missed == 1
    both = [*closed, make_claim("leak", 700)]
    result = match_leaks(make_watched(truth, both), both, "leak")
    assert (result.found, result.missed, result.false) == (2, 0, 0)


def test_a_leak_may_be_called_a_tenth_of_its_length_late() -> None:
    truth = Truth((Leak(100, 300),))
    for opened_s, found in ((319, 1), (321, 0)):
        claims = [make_claim("leak", opened_s)]
        assert match_leaks(make_watched(truth, claims), claims, "leak").found == found


def test_leaks_of_host_and_device_are_told_apart() -> None:
    truth = Truth((Leak(0, 3600, "host"),))
    total = score([make_watched(truth, [make_claim("host_leak", 100), make_claim("leak", 100)])], "it")
    assert (total.host_leak.found, total.host_leak.false) == (1, 0)
    assert (total.leak.found, total.leak.false) == (0, 1)


def test_precision_recall_and_f1() -> None:
    runs = [
        make_watched(LEAKING, [make_claim("leak", 200)]),
        make_watched(LEAKING, [make_claim("leak", 300)]),
        make_watched(LEAKING, []),
        make_watched(BENIGN, [make_claim("leak", 10)]),
    ]
    leak = score(runs, "it").leak
    assert leak.precision == pytest.approx(2 / 3)
    assert leak.recall == pytest.approx(2 / 3)
    assert leak.f1 == pytest.approx(2 / 3)


def test_false_findings_are_those_that_claim_a_fault_on_a_benign_run() -> None:
    claims = [make_claim(kind, 10) for kind in ("oom", "fragmentation", "pressure", "retries")]
    runs = [make_watched(BENIGN, claims, duration_s=7200), make_watched(LEAKING, [make_claim("oom", 200)])]
    total = score(runs, "it")
    assert total.benign_hours == 2.0
    assert total.false_per_1000_hours == pytest.approx(1000.0)
    assert total.false["pressure"] == 1
    assert (total.benign_runs, total.false_runs) == (1, 1)


def test_a_warning_must_stand_from_the_lead_to_the_error() -> None:
    def warned(*claims: tuple[float, float | None]) -> bool:
        made = [make_claim("oom", *claim) for claim in claims]
        return is_warned(make_watched(LEAKING, made, duration_s=1100), made, 300.0)

    assert warned((700, None))
    assert not warned((801, None))  # too late
    assert not warned((50, None))  # before anything grew
    assert not warned((700, 900))  # taken back
    assert warned((200, 300), (790, None))


def test_recall_counts_runs_whose_precursor_is_longer_than_the_lead() -> None:
    short = Truth((Leak(1000, 1100),), oom_s=1100, growth_s=1000)
    runs = [make_watched(LEAKING, [make_claim("oom", 500)]), make_watched(short, [])]
    total = score(runs, "it")
    assert total.recall_at(60) == 0.5
    assert total.recall_at(300) == 1.0


def test_a_first_long_batch_is_no_matter_of_recall() -> None:
    total = score([make_watched(Truth(oom_s=500.0), [])], "it")
    assert total.recall_at(60) is None


def test_what_a_device_alone_shows_counts_only_against() -> None:
    device = Shape("device", 5.0)
    total = score([make_watched(LEAKING, [], shape=device)], "it")
    assert (total.leak.missed, total.recall_at(60)) == (0, None)
    total = score([make_watched(BENIGN, [make_claim("leak", 10)], shape=device)], "it")
    assert (total.leak.false, total.false["leak"]) == (1, 1)


def test_errors_by_fragmentation_count_alarms_that_stand_from_a_minute_before() -> None:
    truth = Truth(oom_s=1000.0, live_share=0.7)

    def warned(*alarms: tuple[float, float]) -> tuple[int, int]:
        return score_fragmented([make_watched(truth, [], duration_s=1000.0, alarms=alarms)])

    assert warned((900.0, 1000.0)) == (1, 1)
    assert warned((945.0, 1000.0)) == (0, 1)  # too late
    assert warned((500.0, 900.0)) == (0, 1)  # taken back
    full = Truth(oom_s=1000.0, live_share=0.95)
    series = Shape("series", 1.0)
    others = [make_watched(full, []), make_watched(truth, [], shape=series), make_watched(BENIGN, [])]
    assert score_fragmented(others) == (0, 0)


def test_the_lead_is_a_share_of_the_life_of_the_leak() -> None:
    total = score([make_watched(LEAKING, [make_claim("oom", 350), make_claim("leak", 600)])], "it")
    assert total.leads == [0.75]


def test_errors_are_relative_to_what_is_left_and_silence_is_infinite() -> None:
    told = make_moment(600, Forecast(0.5, 600, 450.0, 400.0, 600.0), 0.5)
    silent = make_moment(600, Forecast(None, 600), 0.5)
    assert score([make_watched(LEAKING, [], [told])], "it").error_at(0.5) == pytest.approx(0.1)
    three = [make_watched(LEAKING, [], [moment]) for moment in (told, silent, silent)]
    assert score(three, "it").error_at(0.5) == float("inf")


def test_an_interval_without_an_upper_end_is_open() -> None:
    moments = [
        make_moment(600, Forecast(0.5, 600, 450.0, 400.0, 490.0), 0.5),
        make_moment(600, Forecast(0.5, 600, 450.0, 400.0, None), 0.6),
        make_moment(600, Forecast(0.5, 600, 450.0), 0.7),
    ]
    assert score([make_watched(LEAKING, [], moments)], "it").covered == [False, True]


def test_the_brier_score_takes_silence_for_no_alarm() -> None:
    moments = [
        make_moment(200, Forecast(0.25, 600)),  # the error comes 900 s later
        make_moment(700, Forecast(0.5, 600)),  # and here 400 s
        make_moment(900, Forecast(None, 600)),
    ]
    total = score([make_watched(LEAKING, [], moments)], "it")
    assert total.brier == [0.0625, 0.25, 1.0]
    assert total.brier_score == pytest.approx(1.3125 / 3)
    assert total.brier_of_errors == total.brier_score


def test_a_risk_within_steps_is_held_against_the_step_that_failed() -> None:
    moments = [
        make_moment(500, Forecast(0.0, 600, within_steps=0.5, steps_ahead=10), step=step) for step in (90, 91)
    ]
    total = score([make_watched(Truth(oom_s=1100.0), [], moments, last_step=100)], "it")
    assert total.brier_within_steps == [0.25, 0.25]
    sure = make_moment(500, Forecast(0.0, 600, within_steps=1.0, steps_ahead=10), step=91)
    assert score([make_watched(Truth(oom_s=1100.0), [], [sure], last_step=100)], "it").brier_within_steps == [
        0.0
    ]
    early = make_moment(500, Forecast(0.0, 600, within_steps=1.0, steps_ahead=10), step=90)
    assert score(
        [make_watched(Truth(oom_s=1100.0), [], [early], last_step=100)], "it"
    ).brier_within_steps == [1.0]


def test_every_mistake_is_named() -> None:
    runs = [
        make_watched(BENIGN, [make_claim("leak", 10)]),
        make_watched(LEAKING, [make_claim("leak", 200), make_claim("leak", 300)]),
    ]
    lines = list(list_errors(runs, "it"))
    assert any("false leak, at 10 s" in line for line in lines)
    assert any("called too often, at 200, 300 s" in line for line in lines)
    assert sum("no standing warning" in line for line in lines) == 2


def test_every_miss_is_a_row_with_its_runs_and_too_short_growth_is_counted_apart() -> None:
    name = "vramscope"
    short = Truth((Leak(0, 100),), oom_s=100.0, growth_s=0.0)
    long = Truth((Leak(0, 900),), oom_s=900.0, growth_s=0.0)
    series = Shape("series", 2.0)
    runs = [
        make_watched(short, [], name=name, shape=series),
        make_watched(long, [], name=name, shape=series),
        make_watched(BENIGN, [make_claim("leak", 10)], name=name, shape=series),
    ]
    assert count_too_short(runs, 60.0) == (1, 2)
    table = format_misses(runs)
    assert "Of 2 errors in series without a warning 1 min before, 1 grew for less than 120 s" in table
    assert "| false leak |" in table
    assert table.count("grew for 900 s") == 3
    page = replace_misses(f"before\n{BEGIN}\nold\n{END}\nafter", table)
    assert page.startswith(f"before\n{BEGIN}\n\n{table}")
    assert page.endswith(f"{END}\nafter")
    assert "old" not in page
    with pytest.raises(ValueError, match="no lines"):
        replace_misses("a page", table)


def test_what_was_said_is_compared_with_what_came_by_range_and_level() -> None:
    moments = [
        make_moment(300.0, Forecast(0.6, 600.0, level="medium")),
        make_moment(600.0, Forecast(0.7, 600.0, level="high")),
        make_moment(900.0, Forecast(0.9, 600.0, level="high")),
        make_moment(950.0, Forecast(None, 600.0, level="unknown")),
    ]
    total = score([make_watched(LEAKING, [], moments)], "it")
    assert total.reliability == {0.0: [(0.0, True)], 0.5: [(0.6, False), (0.7, True)], 0.8: [(0.9, True)]}
    assert total.reliability_of_levels == {"medium": [(0.6, False)], "high": [(0.7, True), (0.9, True)]}
    named = make_watched(LEAKING, [], moments, name=OURS)
    named.moments[:] = [Moment(it.time_s, it.step, None, {OURS: it.forecasts["it"]}) for it in moments]
    lines = [line.split() for line in format_reliability([named]).splitlines()]
    assert ["live", "50%", "to", "80%", "2", "0.650", "0.500"] in lines
    assert ["live", "high", "2", "0.800", "1.000"] in lines
