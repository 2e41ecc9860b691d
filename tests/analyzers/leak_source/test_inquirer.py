"""An open leak is looked into: a map, a recording, a pause, a map; then the finding names the line."""

from collections.abc import Sequence

from vramscope.analyzers.leak_source import LeakSourceInquirer
from vramscope.engine.model import Evidence, Finding, RankSample, Sample, SegmentMap, StepReading
from vramscope.engine.model.inquiry import Inquiry

from .cases import EVALUATE, PID, map_of, stack_of

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


class Job:
    """A process with a step a second, and the inquirer that follows it."""

    def __init__(self, history: str = "off") -> None:
        self.inquirer = LeakSourceInquirer()
        self.time_s = 100.0
        self.history = history

    def tick(self, *findings: Finding, steps: int = 1) -> Sequence[Inquiry]:
        self.time_s += 1.0
        step = StepReading(index=int(self.time_s), ended_s=self.time_s, duration_s=1.0)
        rank = RankSample(
            pid=PID,
            device_uuid="GPU-0",
            step=step,
            steps_within=steps,
            memory_history=self.history,  # type: ignore[arg-type]
        )
        return self.inquirer.follow(Sample("node", 1, self.time_s, 1.0, ranks=(rank,)), findings)

    def tick_until_asked(self, most: int = 200, steps: int = 1) -> Inquiry:
        for _ in range(most):
            asked = self.tick(steps=steps)
            if asked:
                return asked[0]
        raise AssertionError(f"nothing was asked in {most} s")

    def answer(self, segment_map: SegmentMap) -> None:
        self.inquirer.take_map(segment_map)


def test_nothing_is_asked_of_a_job_that_does_not_leak() -> None:
    job = Job()
    assert all(not job.tick() for _ in range(50))
    assert job.inquirer.enrich(LEAK) is LEAK


def test_the_line_that_keeps_memory_is_found_and_told() -> None:
    job = Job()
    assert job.tick(LEAK) == [Inquiry("segments", PID)]
    job.answer(map_of(101.0, 10))
    recording = job.tick_until_asked()
    assert recording == Inquiry("history", PID, 8.0)
    begun_s = job.time_s
    assert job.tick_until_asked() == Inquiry("segments", PID)
    assert job.time_s - begun_s >= 8.0 + 3.0
    job.answer(map_of(job.time_s, 22, stack_of(EVALUATE, 8)))
    told = job.inquirer.enrich(LEAK)
    assert told.title == "process 4711 leaks 2 MiB a step, kept by evaluate() at train.py:212"
    assert told.advice.startswith("Look at evaluate() at train.py:212: ")
    evidence = {each.name: each.value for each in told.evidence}
    assert evidence["source file"] == "/home/u/train.py:212"
    assert evidence["share of the growth"] == 100
    assert all(not job.tick() for _ in range(200)), "what is known is not asked again"


def test_a_forecast_of_the_same_process_names_the_line_too() -> None:
    job = Job()
    job.tick(LEAK)
    job.answer(map_of(101.0, 10))
    job.tick_until_asked()
    job.tick_until_asked()
    job.answer(map_of(job.time_s, 22, stack_of(EVALUATE, 8)))
    forecast = Finding(**{name: getattr(LEAK, name) for name in LEAK.__struct_fields__} | {"kind": "oom"})
    assert "train.py:212" in job.inquirer.enrich(forecast).title
    other = Finding(
        **{name: getattr(LEAK, name) for name in LEAK.__struct_fields__} | {"kind": "oom", "node": "other"}
    )
    assert job.inquirer.enrich(other) is other


def test_a_program_that_records_itself_is_not_asked_to() -> None:
    job = Job(history="user")
    job.tick(LEAK)
    job.answer(map_of(101.0, 10, stack_of(EVALUATE, 100)))
    assert job.tick_until_asked() == Inquiry("segments", PID)


def test_what_is_kept_now_and_then_is_looked_for_longer_and_not_for_ever() -> None:
    job = Job()
    asked = [*job.tick(LEAK)]
    for _ in range(2000):
        if asked and asked[-1].verb == "segments":
            job.answer(map_of(job.time_s, 10))
        asked += job.tick()
    recorded = [inquiry.seconds for inquiry in asked if inquiry.verb == "history"]
    assert recorded == [8.0, 16.0, 32.0, 40.0, 40.0, 40.0]


def test_a_process_that_never_answers_is_let_alone() -> None:
    job = Job()
    asked = [*job.tick(LEAK)]
    for _ in range(2000):
        asked += job.tick()
    assert [inquiry.verb for inquiry in asked] == ["segments"] * 6


def test_a_leak_that_closed_is_forgotten() -> None:
    job = Job()
    job.tick(LEAK)
    closed = Finding(**{name: getattr(LEAK, name) for name in LEAK.__struct_fields__} | {"closed_s": 102.0})
    job.tick(closed)
    job.answer(map_of(101.0, 10))
    assert all(not job.tick() for _ in range(100))


def test_a_successor_goes_on_with_what_a_finding_tells() -> None:
    job = Job()
    told = Finding(
        **{name: getattr(LEAK, name) for name in LEAK.__struct_fields__}
        | {"evidence": (Evidence("process", PID), Evidence("source", "f() at a.py:1"))}
    )
    job.inquirer.restore([told])
    assert not job.tick(LEAK)
    assert "f() at a.py:1" in job.inquirer.enrich(LEAK).title


def test_a_leak_that_closed_keeps_its_line_and_the_next_one_is_looked_for_anew() -> None:
    job = Job()
    job.tick(LEAK)
    job.answer(map_of(101.0, 10))
    job.tick_until_asked()
    job.tick_until_asked()
    job.answer(map_of(job.time_s, 22, stack_of(EVALUATE, 8)))
    facts = {name: getattr(LEAK, name) for name in LEAK.__struct_fields__}
    closed = Finding(**facts | {"closed_s": job.time_s})
    assert not job.tick(closed)
    assert "train.py:212" in job.inquirer.enrich(closed).title
    assert job.tick(Finding(**facts | {"id": "y"})) == [Inquiry("segments", PID)]
