"""What is tuned on is not what is scored."""

import inspect
from dataclasses import replace

from benchmarks.verdict_runs import make_run
from benchmarks.verdict_runs.run import limit_span
from benchmarks.verdict_runs.scored import SCORED
from benchmarks.verdict_runs.scored.healthy_floors import HEALTHY_FLOORS
from benchmarks.verdict_runs.scored.healthy_steps import HEALTHY_STEPS
from benchmarks.verdict_runs.scored.leaks import LEAKS
from benchmarks.verdict_runs.tuning import TUNING


def test_no_generator_serves_both() -> None:
    tuned, scored = ({family.make for family in split} for split in (TUNING, SCORED))
    assert not tuned & scored
    assert not {family.name for family in TUNING} & {family.name for family in SCORED}
    bodies = [{inspect.getsource(make).split("\n", 1)[1] for make in makers} for makers in (tuned, scored)]
    assert not bodies[0] & bodies[1]


def test_three_thousand_benign_hours_are_scored() -> None:
    benign = (*HEALTHY_FLOORS, *HEALTHY_STEPS)
    spans = [
        limit_span(family.span_s, family.shapes[seed % len(family.shapes)])
        for family in benign
        for seed in range(family.seeds)
    ]
    assert sum(spans) / 3600 >= 3100


def test_healthy_families_are_healthy_and_leaks_leak() -> None:
    for family in (HEALTHY_FLOORS[0], HEALTHY_FLOORS[4], HEALTHY_STEPS[2], HEALTHY_STEPS[7]):
        assert make_run(replace(family, span_s=1800.0), 3).truth.is_benign
    for family in LEAKS:
        if family.name in ("minutes", "late_onset", "leak_after_restart", "host_queue"):
            assert make_run(family, 0).truth.leaks


def test_two_leaks_are_two() -> None:
    two = next(family for family in LEAKS if family.name == "two_leaks")
    first, second = make_run(two, 0).truth.leaks
    assert first.onset_s < first.end_s < second.onset_s < second.end_s
