"""The recording of stacks is rare, cheap, bounded, and never the program's own."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.probe.clocks import WoundClock
from tests.engine.probe.stand_in import StandInCuda, StandInOptimizer, make_torch
from vramscope.engine.probe.backends import Reading
from vramscope.engine.probe.base import current
from vramscope.engine.probe.history import (
    LONGEST_DEMAND_S,
    PERIOD_S,
    SECONDS_PER_ALLOCATION,
    SHARE,
    MemoryHistory,
    Suspicion,
    count_affordable_steps,
    end_recording,
    find_recorder,
)
from vramscope.engine.probe.session import Session

CAPACITY = 1000
ALLOCATIONS = 3700
"""In one step of a GPT of 1.6 billion parameters."""


class Training:
    """Steps of a program on a stand-in, with the recording that watches them."""

    def __init__(self, torch: SimpleNamespace, clock: WoundClock | None = None) -> None:
        self.torch = torch
        self.clock = clock or WoundClock()
        self.history = MemoryHistory(self.clock)
        self.suspicion = Suspicion()
        self.allocations = 0
        self.seconds_on = 0.0
        self.allocations_on = 0

    def step(self, floor: int = 100, retries: int = 0, peak: int = 500, seconds: float = 1.0) -> None:
        self.allocations += ALLOCATIONS
        if self.history.mode == "on":
            self.seconds_on += seconds
            self.allocations_on += ALLOCATIONS
        self.clock.advance(seconds)
        reading = Reading(
            allocated_bytes=floor, peak_bytes=peak, retries=retries, allocations=self.allocations
        )
        self.suspicion.note_floor(floor)
        self.suspicion.judge(reading, CAPACITY)
        if self.suspicion.has_grounds:
            self.suspicion.has_grounds = False
            self.history.suspect(self.suspicion.allocations_per_step)
        self.history.meet_step(self.torch)


@pytest.fixture
def cuda() -> StandInCuda:
    return StandInCuda()


@pytest.fixture
def training(cuda: StandInCuda) -> Iterator[Training]:
    training = Training(make_torch(cuda))
    yield training
    end_recording(training.torch)


def test_a_steady_job_is_never_recorded(training: Training, cuda: StandInCuda) -> None:
    for _ in range(500):
        training.step()
    assert cuda.records == []
    assert training.history.mode == "off"


def test_a_demand_is_met_between_two_steps_and_ended_by_itself(training: Training, cuda: StandInCuda) -> None:
    training.history.demand(True, 10.0)
    assert cuda.records == []
    training.step()
    assert training.history.mode == "on"
    assert cuda.records == [{"enabled": "state", "context": "alloc", "stacks": "python", "max_entries": 1}]
    for _ in range(9):
        training.step()
    assert training.history.mode == "off"
    assert [record["enabled"] for record in cuda.records] == ["state", None]


def test_a_demand_may_be_taken_back_and_is_bounded(training: Training, cuda: StandInCuda) -> None:
    training.history.demand(True, 1e9)
    training.step()
    training.history.demand(False, None)
    training.step()
    assert training.history.mode == "off"
    training.history.demand(True, 1e9)
    for _ in range(int(LONGEST_DEMAND_S) + 2):
        training.step()
    assert not cuda.is_recording


def test_a_demand_makes_a_recording_longer_whoever_began_it_and_never_shorter(
    training: Training, cuda: StandInCuda
) -> None:
    for number in range(20):
        training.step(floor=200 + number)
    assert cuda.is_recording
    training.history.demand(True, 1000.0)
    for _ in range(400):
        training.step()
    training.history.demand(True, 5.0)
    for _ in range(150):
        training.step()
    assert cuda.is_recording
    assert len(cuda.records) == 1
    for _ in range(200):
        training.step()
    assert not cuda.is_recording


def test_a_retry_is_a_suspicion(training: Training, cuda: StandInCuda) -> None:
    for _ in range(5):
        training.step(retries=2)
    assert cuda.records == []
    training.step(retries=3)
    assert training.history.mode == "on"


def test_a_floor_that_climbs_is_a_suspicion_and_one_that_swings_is_not(
    training: Training, cuda: StandInCuda
) -> None:
    for number in range(100):
        training.step(floor=100 + 10 * (number % 4))
    assert cuda.records == []
    for number in range(50):
        training.step(floor=200 + number)
    assert cuda.records != []


def test_little_headroom_is_a_suspicion(training: Training) -> None:
    training.step()
    training.step(peak=960)
    assert training.history.mode == "on"


def test_suspicion_costs_one_percent_at_most_averaged_over_any_minute(
    training: Training, cuda: StandInCuda
) -> None:
    minutes = 10
    training.step(seconds=0.1)
    for _ in range(minutes * 600):
        training.step(peak=999, seconds=0.1)
    assert len(cuda.records) >= 2 * (minutes - 1)
    cost_s = training.allocations_on * SECONDS_PER_ALLOCATION
    assert 0 < cost_s <= SHARE * PERIOD_S * (minutes + 1)
    assert cost_s <= SHARE * minutes * PERIOD_S


def test_a_step_that_is_too_dear_is_not_recorded() -> None:
    assert count_affordable_steps(None) == 0
    assert count_affordable_steps(10) == 100
    assert count_affordable_steps(ALLOCATIONS) == 40
    assert count_affordable_steps(1_000_000) == 0


def test_the_programs_own_recording_is_left_alone(training: Training, cuda: StandInCuda) -> None:
    cuda.memory._record_memory_history(enabled="all", max_entries=100_000)
    training.history.demand(True, 10.0)
    for number in range(30):
        training.step(retries=number)
    training.history.demand(False, None)
    training.step()
    assert training.history.mode == "user"
    assert cuda.is_recording
    assert len(cuda.records) == 1


def test_where_nobody_can_tell_who_records_nothing_is_switched(cuda: StandInCuda) -> None:
    training = Training(make_torch(cuda, has_history=False))
    training.history.demand(True, 10.0)
    training.step()
    assert cuda.records == []
    assert training.history.mode == "off"
    assert training.history.note is not None


def test_the_first_kind_of_recorder_is_refused() -> None:
    def record_of_pytorch_2_0(
        enabled: bool, record_context: bool = True, trace_alloc_max_entries: int = 1
    ) -> None:
        raise AssertionError("it could lock the process up")

    cuda: Any = SimpleNamespace(memory=SimpleNamespace(_record_memory_history=record_of_pytorch_2_0))
    torch = SimpleNamespace(cuda=cuda, _C=SimpleNamespace(_cuda_isHistoryEnabled=lambda: False))
    assert find_recorder(torch) is None
    training = Training(torch)
    training.history.demand(True, 10.0)
    training.step()
    assert training.history.mode == "off"


def test_the_recorder_of_the_installed_pytorch_is_known() -> None:
    import torch

    assert find_recorder(torch) is torch.cuda.memory._record_memory_history


def test_a_recording_ends_in_time_where_no_step_does(training: Training, cuda: StandInCuda) -> None:
    training.history.demand(True, None)
    training.step()
    training.clock.advance(58.0)
    training.history.end_overdue(training.torch)
    assert cuda.is_recording
    training.clock.advance(4.0)
    training.history.end_overdue(training.torch)
    assert not cuda.is_recording
    assert training.history.mode == "off"
    training.step()
    assert [record["enabled"] for record in cuda.records] == ["state", None]


def begin_as_the_program(cuda: StandInCuda) -> None:
    cuda.memory._record_memory_history(max_entries=100_000)


@pytest.mark.parametrize("way", ["its time is over", "it is taken back", "no step ends", "the probe leaves"])
def test_a_recording_that_the_program_begins_during_ours_is_never_ended(
    training: Training, cuda: StandInCuda, way: str
) -> None:
    entry = cuda.memory._record_memory_history
    training.history.demand(True, 10.0)
    training.step()
    begin_as_the_program(cuda)
    if way == "no step ends":
        training.clock.advance(20.0)
        training.history.end_overdue(training.torch)
    elif way == "the probe leaves":
        end_recording(training.torch)
    else:
        if way == "it is taken back":
            training.history.demand(False, None)
        for _ in range(20):
            training.step()
    assert cuda.is_recording
    assert [record["enabled"] for record in cuda.records] == ["state", "all"]
    assert cuda.memory._record_memory_history == entry
    if way != "the probe leaves":
        assert training.history.mode == "user"


def test_a_program_that_switches_off_during_ours_ends_ours(training: Training, cuda: StandInCuda) -> None:
    training.history.demand(True, 10.0)
    training.step()
    cuda.memory._record_memory_history(enabled=None)
    training.step()
    assert training.history.mode == "off"
    begin_as_the_program(cuda)
    for _ in range(20):
        training.step()
    assert cuda.is_recording


def test_a_call_of_the_program_that_raises_leaves_ours_to_us(training: Training, cuda: StandInCuda) -> None:
    training.history.demand(True, 10.0)
    training.step()
    with pytest.raises(TypeError):
        cuda.memory._record_memory_history(wrong=1)
    for _ in range(20):
        training.step()
    assert not cuda.is_recording


def test_a_program_that_imported_the_switch_before_is_noticed_below_it(cuda: StandInCuda) -> None:
    """PyTorch's own function goes by its part in C, which is looked up at each call."""
    torch = make_torch(cuda)
    torch._C._cuda_record_memory_history = cuda.memory._record_memory_history

    def record(
        enabled: str | None = "all", context: str = "", stacks: str = "", max_entries: int = 0
    ) -> None:
        torch._C._cuda_record_memory_history(enabled, context, stacks, max_entries)

    cuda.memory._record_memory_history = record
    training = Training(torch)
    training.history.demand(True, 10.0)
    training.step()
    record()
    for _ in range(20):
        training.step()
    assert cuda.is_recording
    assert training.history.mode == "user"
    assert cuda.memory._record_memory_history is record


def test_an_allocator_that_cannot_record_is_told_and_raises_nothing(cuda: StandInCuda) -> None:
    torch = make_torch(cuda)

    def refuse(*_: object, **__: object) -> bool:
        raise RuntimeError("CUDAPluggableAllocator does not yet support recordHistory")

    torch._C._cuda_isHistoryEnabled = refuse

    def record(
        enabled: str | None = "all", context: str = "", stacks: str = "", max_entries: int = 0
    ) -> None:
        refuse()

    cuda.memory._record_memory_history = record
    training = Training(torch)
    training.history.demand(True, 10.0)
    training.step()
    assert training.history.mode == "off"
    assert "refused" in str(training.history.note)
    assert cuda.memory._record_memory_history is record


def test_the_entries_of_the_installed_pytorch_are_watched_and_given_back() -> None:
    import torch

    from vramscope.engine.probe.history import _Recording

    before = torch.cuda.memory._record_memory_history
    recording = _Recording()
    recording.watch(torch)
    assert find_recorder(torch) is torch.cuda.memory._record_memory_history is not before
    recording.restore()
    assert find_recorder(torch) is before


def test_the_sampler_ends_an_overdue_recording_of_a_program_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: StandInCuda
) -> None:
    clock = WoundClock()
    session = Session(make_torch(cuda), str(tmp_path), None, is_explicit=True, clock=clock)
    monkeypatch.setattr(current, "session", session)
    session._history.demand(True, None)
    session.meet_optimizer(StandInOptimizer())
    assert cuda.is_recording
    for _ in range(620):
        clock.advance(session._tick() or 0.0)
    assert not cuda.is_recording
    session.end("exit")
