"""An open leak is looked into: maps while allocations are recorded; then the finding names the line."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from vramscope.analyzers.findings.evidence import GROWN
from vramscope.analyzers.leak_source import LeakSourceInquirer
from vramscope.engine.model import Evidence, Finding, RankSample, Sample, StepReading
from vramscope.engine.model.finding import Inquiry

from .cases import EVALUATE, PID, map_of, stack_of

REST_PARTS = 7
"""Parts of an attempt and the rest after it; in one of them allocations may be recorded, for 1 %."""

LEAK = Finding(
    id="x",
    kind="leak",
    node="node",
    device_uuid="GPU-0",
    device="0",
    severity="high",
    title="process 4711 leaks 2 MiB a step",
    opened_s=100.0,
    updated_s=100.0,
    evidence=(Evidence("process", PID),),
    advice="Free what is not needed",
)

FORECAST = Finding(
    id="y",
    kind="oom",
    node="node",
    device_uuid="GPU-0",
    device="0",
    severity="medium",
    title="GPU 0 out of memory in 40 min",
    opened_s=100.0,
    updated_s=100.0,
    evidence=(Evidence("process", PID), GROWN(2**30)),
    advice="Save a checkpoint now",
)


class Job:
    """A process with a step a second that keeps two blocks of each, and the inquirer that follows it."""

    def __init__(self, history: str = "off", *, has_steps: bool = True) -> None:
        self.inquirer = LeakSourceInquirer()
        self.time_s = 100.0
        self.history = history
        self.has_steps = has_steps
        self.kept = 0
        self.asked: list[tuple[float, Inquiry]] = []

    def tick(self, *findings: Finding, steps: int = 1, duration_s: float = 1.0) -> Sequence[Inquiry]:
        self.time_s += 1.0
        self.kept += 2 * steps
        step = StepReading(index=int(self.time_s), ended_s=self.time_s, duration_s=duration_s)
        rank = RankSample(
            pid=PID,
            device_uuid="GPU-0",
            step=step if self.has_steps else None,
            steps_within=steps if self.has_steps else 0,
            memory_history=self.history,  # type: ignore[arg-type]
        )
        asked = self.inquirer.follow(Sample("node", 1, self.time_s, 1.0, ranks=(rank,)), findings)
        self.asked += [(self.time_s, inquiry) for inquiry in asked]
        for inquiry in asked:
            if inquiry.verb == "history" and self.history != "user":
                self.history = "on" if inquiry.is_on else "off"
        return asked

    def answer(self, *, is_at_step_end: bool = True, kept: int | None = None) -> None:
        """Send the map that is asked for; of an earlier one there is nothing new in it."""
        count = self.kept if kept is None else kept
        segment_map = map_of(
            self.time_s + 0.5, count, stack_of(EVALUATE, count), is_at_step_end=is_at_step_end
        )
        self.inquirer.take_map(segment_map)

    def run(self, seconds: int, *findings: Finding, kept: int | None = None, **how: float) -> None:
        """Let time pass; every map that is asked for comes."""
        for _ in range(seconds):
            asked = self.tick(*findings, **how)  # type: ignore[arg-type]
            findings = ()
            if any(inquiry.verb == "segments" for inquiry in asked):
                self.answer(kept=kept)

    def of(self, verb: str) -> list[Inquiry]:
        return [inquiry for _, inquiry in self.asked if inquiry.verb == verb]


def with_changes(finding: Finding, **changes: object) -> Finding:
    return msgspec.structs.replace(finding, **changes)


def test_nothing_is_asked_of_a_job_that_does_not_leak() -> None:
    job = Job()
    assert all(not job.tick() for _ in range(50))
    assert job.inquirer.enrich(LEAK) is LEAK


def test_the_line_that_keeps_memory_is_found_and_told_within_seconds() -> None:
    job = Job()
    first = job.tick(LEAK, duration_s=0.3, steps=3)
    assert [(it.verb, it.is_on) for it in first] == [("segments", True), ("history", True)]
    assert first[0].seconds is not None
    job.answer()
    began_s = job.time_s
    while "source" not in {each.name for each in job.inquirer.enrich(LEAK).evidence}:
        job.run(1, duration_s=0.3, steps=3)
        assert job.time_s - began_s < 10.0
    told = job.inquirer.enrich(LEAK)
    assert told.title == "process 4711 leaks 2 MiB a step, kept by evaluate() at train.py:212"
    assert told.advice.startswith("Look at evaluate() at train.py:212: ")
    evidence = {each.name: each.value for each in told.evidence}
    assert evidence["source file"] == "/home/u/train.py:212"
    assert evidence["share of the growth"] == 100
    assert job.tick() == [Inquiry("history", PID, is_on=False)]
    assert all(not job.tick() for _ in range(200)), "what is known is not asked again"


def test_a_forecast_of_the_same_process_names_the_line_too() -> None:
    job = Job()
    job.run(20, LEAK)
    assert "train.py:212" in job.inquirer.enrich(FORECAST).title
    other = with_changes(FORECAST, node="other")
    assert job.inquirer.enrich(other) is other


def test_a_forecast_on_a_floor_that_grows_is_looked_into_before_it_is_called_a_leak() -> None:
    job = Job()
    job.run(20, FORECAST)
    assert "train.py:212" in job.inquirer.enrich(FORECAST).title
    assert not job.tick(LEAK)
    assert "train.py:212" in job.inquirer.enrich(LEAK).title
    job.tick(with_changes(FORECAST, closed_s=job.time_s))
    assert "train.py:212" in job.inquirer.enrich(with_changes(LEAK, closed_s=job.time_s)).title


def test_growing_peaks_keep_nothing_and_are_not_looked_into() -> None:
    job = Job()
    job.run(20, with_changes(FORECAST, evidence=LEAK.evidence))
    assert not job.asked


def test_growth_that_begins_after_the_end_of_another_is_looked_into_by_itself() -> None:
    job = Job()
    job.run(20, LEAK)
    asked = len(job.of("segments"))
    job.tick(with_changes(LEAK, closed_s=job.time_s))
    later = with_changes(LEAK, id="later")
    job.tick(later)
    assert len(job.of("segments")) == asked + 1
    assert job.inquirer.enrich(later) is later


def test_maps_from_within_a_step_are_not_what_was_asked_for() -> None:
    job = Job()
    job.tick(LEAK)
    for _ in range(5):
        job.tick()
        job.answer(is_at_step_end=False)
    assert len(job.of("segments")) == 1
    job.answer()
    job.run(5)
    assert len(job.of("segments")) == 2


def test_a_process_without_steps_is_asked_for_maps_at_once_and_compared_over_more_of_them() -> None:
    job = Job(has_steps=False)
    for _ in range(40):
        if any(inquiry.verb == "segments" for inquiry in job.tick(LEAK)):
            job.kept += 3
            job.answer(is_at_step_end=False)
    assert "train.py:212" in job.inquirer.enrich(LEAK).title
    assert [inquiry.seconds for inquiry in job.of("segments")] == [None] * 5


def test_a_program_that_records_itself_is_neither_asked_to_nor_told_to_stop() -> None:
    job = Job(history="user")
    job.run(20, LEAK)
    assert "train.py:212" in job.inquirer.enrich(LEAK).title
    assert job.of("history") == []


def test_a_recording_that_somebody_has_ended_is_begun_again() -> None:
    job = Job()
    job.tick(LEAK)
    job.history = "off"
    job.answer()
    job.run(5)
    assert [inquiry.is_on for inquiry in job.of("history")] == [True, True]


def test_what_is_kept_now_and_then_is_looked_for_longer_and_not_for_ever() -> None:
    job = Job()
    job.run(6000, LEAK, kept=7)
    assert len(job.of("segments")) == 6 * 5
    switched = [(time_s, inquiry.is_on) for time_s, inquiry in job.asked if inquiry.verb == "history"]
    assert [is_on for _, is_on in switched] == [True, False] * 6
    times = [time_s for time_s, _ in switched]
    recorded = [end_s - begun_s for begun_s, end_s in zip(times[::2], times[1::2], strict=True)]
    assert recorded == sorted(recorded)
    assert recorded[-1] > 2 * recorded[0]
    whole = [after - before for before, after in pairwise(times[::2])]
    assert all(REST_PARTS * part <= each + 1 for part, each in zip(recorded[:-1], whole, strict=True))


def test_a_process_that_never_answers_is_let_alone() -> None:
    job = Job()
    asked = [*job.tick(LEAK)]
    for _ in range(6000):
        asked += job.tick()
    assert [inquiry.verb for inquiry in asked if inquiry.is_on] == ["segments", "history"] * 6


def test_a_leak_that_closed_is_forgotten_and_nothing_recorded_for_it() -> None:
    job = Job()
    job.tick(LEAK)
    assert job.tick(with_changes(LEAK, closed_s=102.0)) == [Inquiry("history", PID, is_on=False)]
    job.answer()
    assert all(not job.tick() for _ in range(100))


def test_a_successor_goes_on_with_what_a_finding_tells() -> None:
    job = Job()
    told = with_changes(LEAK, evidence=(Evidence("process", PID), Evidence("source", "f() at a.py:1")))
    job.inquirer.restore([told])
    assert not job.tick(LEAK)
    assert "f() at a.py:1" in job.inquirer.enrich(LEAK).title


def test_a_leak_that_closed_keeps_its_line_and_the_next_one_is_looked_for_anew() -> None:
    job = Job()
    job.run(20, LEAK)
    closed = with_changes(LEAK, closed_s=job.time_s)
    assert not job.tick(closed)
    assert "train.py:212" in job.inquirer.enrich(closed).title
    assert job.tick(with_changes(LEAK, id="y"))[0].verb == "segments"
