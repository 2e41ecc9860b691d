"""The sampler's lanes: no device stays held when one is abandoned, and details keep a share of the time."""

import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from vramscope.engine.errors import SourceUnavailableError
from vramscope.engine.model import DeviceSample, MemoryReading, ProcessReading, Sample
from vramscope.engine.sampling import sampler as sampler_module
from vramscope.engine.sampling.live import LiveProducer
from vramscope.engine.sampling.sampler import CALL_DEADLINE_S, SourceSampler, _Lane, _Plan
from vramscope.engine.sources.source import DeviceDetails, DeviceReader

from ...clocks import HandClock
from ...waiting import wait_until
from .sources import GIB, HandReader, HandSource

STALE_AFTER_S = 1.5
WATCHES = 3000
"""Each at about the time when a call returns; some dozens of them abandon a lane."""


def _make_sampler(source: HandSource, clock: HandClock) -> SourceSampler:
    return SourceSampler(source, memory_interval_s=0.1, details_interval_s=1.0, clock=clock)


class ClockedStop(threading.Event):
    """Lets the lane's waits pass on a clock by hand, and stops it at some time."""

    def __init__(self, clock: HandClock, ends_s: float) -> None:
        super().__init__()
        self._clock, self._ends_s = clock, ends_s
        self.sampler: SourceSampler | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Pass the time at once."""
        self._clock.now_s += timeout or 0.0
        assert self.sampler is not None
        if self._clock.monotonic_s() >= self._ends_s:
            self.sampler._is_stopping = True
        return self.sampler._is_stopping


def _run_for(sampler: SourceSampler, clock: HandClock, seconds: float) -> None:
    """Run the newest lane on this thread, until so many seconds of the clock have passed."""
    stop = ClockedStop(clock, clock.monotonic_s() + seconds)
    stop.sampler, sampler._stop, sampler._is_stopping = sampler, stop, False
    sampler._lane.run()
    sampler._is_stopping = False


@pytest.fixture
def _is_clocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "PLAIN_SLEEP_S", 0.0)


class SlowReader(HandReader):
    """A device whose driver takes its time over every call."""

    def __init__(self, index: int, clock: HandClock, call_s: float) -> None:
        super().__init__(index)
        self._clock, self._call_s = clock, call_s
        self.details_read_s: list[float] = []
        self.processes: tuple[ProcessReading, ...] = ()
        self.has_ended = False

    def read_memory(self) -> MemoryReading:
        self._clock.now_s += self._call_s
        return super().read_memory()

    def read_details(self) -> DeviceDetails:
        self._clock.now_s += 6 * self._call_s
        self.details_read_s.append(self._clock.monotonic_s())
        return DeviceDetails(utilization_percent=50.0, processes=self.processes)

    def drop_ended(self, processes: tuple[ProcessReading, ...]) -> tuple[ProcessReading, ...]:
        return () if self.has_ended else processes


def _make_slow(count: int, call_s: float) -> tuple[HandSource, list[SlowReader], HandClock]:
    source, clock = HandSource(0), HandClock()
    readers = [SlowReader(index, clock, call_s) for index in range(count)]
    source.readers = list(readers)
    return source, readers, clock


@pytest.mark.usefixtures("_is_clocked")
@pytest.mark.parametrize("call_s", [0.0001, 0.005, 0.02, 0.06])
def test_details_are_read_of_every_device_in_turn_however_slow_memory_is(call_s: float) -> None:
    source, readers, clock = _make_slow(8, call_s)
    sampler = _make_sampler(source, clock)
    began_s = clock.monotonic_s()
    _run_for(sampler, clock, 60.0)
    # A round reads the memory of all, and the details of one at least.
    cycle_s = max(1.5, 8 * (8 * call_s + 6 * call_s + 0.1) * 1.2)
    for reader in readers:
        read_s = [began_s, *reader.details_read_s, clock.monotonic_s()]
        gaps_s = [after - before for before, after in pairwise(read_s)]
        assert max(gaps_s) < cycle_s, reader.identity.uuid
    counts = [len(reader.details_read_s) for reader in readers]
    assert max(counts) - min(counts) <= 1


@pytest.mark.usefixtures("_is_clocked")
def test_memory_of_a_slow_driver_is_read_between_details() -> None:
    source, readers, clock = _make_slow(8, 0.02)
    sampler = _make_sampler(source, clock)
    _run_for(sampler, clock, 30.0)
    assert all(reader.calls > 30.0 / 0.5 for reader in readers)


def _play(source: HandSource, clock: HandClock, *, is_calm: bool) -> list[Sample]:
    """Sample for 10 s after the first sample; in calm take what is due every 5 s, else every second."""
    producer = LiveProducer([source], None, node="n", clock=clock)
    (sampler,) = producer._samplers
    _run_for(sampler, clock, 1.0)
    taken = producer.take()
    producer.is_calm = is_calm
    for _ in range(2 if is_calm else 10):
        _run_for(sampler, clock, producer.wait_s() + 0.01)
        taken += producer.take()
    assert producer.ticks_late == 0
    return taken


@pytest.mark.usefixtures("_is_clocked")
def test_in_calm_each_tick_has_its_own_memory_and_time_though_five_come_at_once() -> None:
    samples = {}
    for is_calm in (False, True):
        source, clock = HandSource(2), HandClock()
        for reader in source.readers:
            reader.at_call = lambda it, clock=clock: setattr(  # type: ignore[misc]
                it, "used_bytes", int((it.identity.index + 1) * 100 * clock.monotonic_s())
            )
        samples[is_calm] = _play(source, clock, is_calm=is_calm)
    assert [it.seq for it in samples[True]] == list(range(1, 12))
    assert len(samples[False]) == 11
    for calm, other in zip(samples[True], samples[False], strict=True):
        assert calm.time_s == pytest.approx(other.time_s, abs=0.15)
        for mine, theirs in zip(calm.devices, other.devices, strict=True):
            assert mine.state == "ok"
            assert mine.memory.used_min_bytes == pytest.approx(theirs.memory.used_min_bytes, abs=40)
            assert mine.memory.used_max_bytes == pytest.approx(theirs.memory.used_max_bytes, abs=40)
    peaks = [it.devices[1].memory.used_max_bytes for it in samples[True]]
    assert all(after - before == pytest.approx(200, abs=60) for before, after in pairwise(peaks[1:]))  # type: ignore[operator]


@pytest.mark.usefixtures("_is_clocked")
def test_in_calm_details_are_read_every_five_seconds_and_at_once_when_it_ends() -> None:
    source, readers, clock = _make_slow(2, 0.0001)
    producer = LiveProducer([source], None, node="n", clock=clock)
    (sampler,) = producer._samplers
    _run_for(sampler, clock, 1.0)
    producer.take()
    producer.is_calm = True
    _run_for(sampler, clock, 30.0)
    read_s = readers[0].details_read_s
    gaps_s = [after - before for before, after in pairwise(read_s[3:])]
    assert gaps_s == pytest.approx([5.0] * len(gaps_s), abs=0.15)
    assert len(gaps_s) >= 3
    _run_for(sampler, clock, max(0.0, read_s[-1] + 4.0 - clock.monotonic_s()))
    assert {it.details_age_s for sample in producer.take() for it in sample.devices} == {None}
    producer.is_calm = False
    _run_for(sampler, clock, 0.25)
    assert clock.monotonic_s() - read_s[-1] < 0.25
    _run_for(sampler, clock, 5.0)
    assert read_s[-1] - read_s[-2] == pytest.approx(1.0, abs=0.15)


@pytest.mark.usefixtures("_is_clocked")
def test_in_calm_devices_are_searched_for_less_often_and_at_once_when_it_ends() -> None:
    source, _, clock = _make_slow(2, 0.0001)
    searches_s: list[float] = []
    discover = source.discover

    def discover_and_note() -> Sequence[DeviceReader]:
        searches_s.append(clock.monotonic_s())
        return discover()

    source.discover = discover_and_note  # type: ignore[method-assign]
    sampler = _make_sampler(source, clock)
    _run_for(sampler, clock, 60.0)
    assert len(searches_s) in (4, 5)
    sampler.is_calm = True
    before = len(searches_s)
    _run_for(sampler, clock, 300.0)
    assert len(searches_s) - before in (4, 5)
    _run_for(sampler, clock, max(0.0, searches_s[-1] + 40.0 - clock.monotonic_s()))
    before = len(searches_s)
    sampler.is_calm = False
    _run_for(sampler, clock, 0.3)
    assert len(searches_s) == before + 1


@pytest.mark.usefixtures("_is_clocked")
@pytest.mark.parametrize(("interval_s", "most_s"), [(1.0, 5.0), (2.0, 4.0), (10.0, 1.0)])
def test_a_call_that_hangs_is_looked_for_in_calm_too(interval_s: float, most_s: float) -> None:
    source, clock = HandSource(1), HandClock()
    producer = LiveProducer([source], None, node="n", interval_s=interval_s, clock=clock)
    (sampler,) = producer._samplers
    _run_for(sampler, clock, 0.5)
    producer.take()
    producer.is_calm = True
    assert producer.wait_s() <= most_s


@pytest.mark.usefixtures("_is_clocked")
def test_what_is_due_comes_at_once_when_calm_ends_and_is_not_late() -> None:
    source, clock = HandSource(1), HandClock()
    producer = LiveProducer([source], None, node="n", clock=clock)
    (sampler,) = producer._samplers
    _run_for(sampler, clock, 0.5)
    producer.take()
    producer.is_calm = True
    _run_for(sampler, clock, 4.3)
    assert producer.take() == []
    producer.is_calm = False
    assert [it.seq for it in producer.take()] == [2, 3, 4, 5]
    assert producer.ticks_late == 0
    assert producer.wait_s() < 1.0
    producer.is_calm = True
    clock.now_s += 600.0  # as after a suspended night
    assert [it.seq for it in producer.take()] == [6]
    assert producer.ticks_late == 1


@pytest.mark.usefixtures("_is_clocked")
def test_details_that_are_not_of_now_say_how_old_they_are_and_list_nobody_who_has_ended() -> None:
    source, readers, clock = _make_slow(1, 0.0001)
    readers[0].processes = (ProcessReading(pid=7, location="here"), ProcessReading(pid=8, location="gone"))
    sampler = _make_sampler(source, clock)
    _run_for(sampler, clock, 3.0)
    (fresh,) = sampler.collect(STALE_AFTER_S)
    assert (fresh.details_age_s, fresh.processes) == (None, readers[0].processes)
    readers[0].has_ended = True
    clock.now_s += 60.0
    (old,) = sampler.collect(STALE_AFTER_S)
    assert old.details_age_s == pytest.approx(60.0, abs=1.5)
    assert (old.utilization_percent, old.processes) == (50.0, ())


@pytest.mark.usefixtures("_is_clocked")
def test_a_plug_in_that_breaks_in_its_details_is_named_and_its_memory_stays() -> None:
    source, clock = HandSource(2), HandClock()
    source.readers[1].details_error = ZeroDivisionError("oops")
    sampler = _make_sampler(source, clock)
    _run_for(sampler, clock, 3.0)
    assert [device.state for device in sampler.collect(STALE_AFTER_S)] == ["ok", "ok"]
    assert sampler.notes() == ["hand: ZeroDivisionError('oops')"]
    source.readers[1].details_error = None
    _run_for(sampler, clock, 3.0)
    assert sampler.notes() == []


@pytest.mark.usefixtures("_is_clocked")
def test_a_source_without_a_device_wakes_its_lane_to_search_and_one_that_comes_is_found() -> None:
    source, clock = HandSource(0), HandClock()
    source.error = SourceUnavailableError("no library")
    sampler = _make_sampler(source, clock)
    turns: list[float] = []
    read = sampler._read_memories

    def note(lane: _Lane, plan: _Plan, now_s: float) -> None:
        turns.append(now_s)
        read(lane, plan, now_s)

    sampler._read_memories = note  # type: ignore[method-assign]
    _run_for(sampler, clock, 20.0)
    assert 4 <= len(turns) <= 6
    source.error = None
    source.readers = [HandReader(0)]
    _run_for(sampler, clock, 6.0)
    assert [device.state for device in sampler.collect(STALE_AFTER_S)] == ["ok"]
    turns.clear()
    _run_for(sampler, clock, 2.0)
    assert len(turns) >= 18, "and is read ten times a second"


class Interruption:
    """Calls `watch` of a sampler, with every call overdue, at one point between two steps of its lane.

    Steps are those of the interpreter, so that no order of the two threads is left out.
    """

    def __init__(self, sampler: SourceSampler, clock: HandClock, point: int) -> None:
        self._sampler, self._clock, self._left = sampler, clock, point
        self.was_reached = False

    def trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        """Count steps of the sampler's own code, and interrupt at the one that was chosen."""
        if frame.f_code.co_filename != sampler_module.__file__ or frame.f_code.co_name in ("watch", "start"):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and not self._sampler._lock.locked():
            self._left -= 1
            if self._left == 0:
                sys.settrace(None)
                self.was_reached = True
                self._clock.now_s += CALL_DEADLINE_S
                self._sampler.watch()
        return self.trace


def _interrupt(point: int, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, bool]:
    """Run a lane that is watched at one point; return whether it got there, and whether it was abandoned."""
    source, clock = HandSource(2), HandClock()
    sampler = _make_sampler(source, clock)
    left_for_others: list[tuple[str, ...]] = []

    def note(*_: object) -> None:
        left_for_others.append(tuple(device.reader.identity.uuid for device in sampler._readable))

    monkeypatch.setattr(sampler_module._Lane, "start", note)
    lane, called = sampler._lane, []

    def note_call(reader: HandReader) -> None:
        # Whoever goes on must leave this device alone for as long as the abandoned lane is in it.
        if left_for_others and reader.identity.uuid in left_for_others[-1]:
            called.append(reader.identity.uuid)

    for reader in source.readers:
        reader.at_call = note_call
    interruption = Interruption(sampler, clock, point)
    stop = ClockedStop(clock, clock.monotonic_s() + 0.25)
    stop.sampler, sampler._stop = sampler, stop
    sys.settrace(interruption.trace)
    try:
        lane.run()
    finally:
        sys.settrace(None)
    assert called == [], f"point {point}: called by two threads"
    sampler._is_stopping = False
    assert not sampler.has_held_calls, f"point {point}: held, and no call is under way"
    assert sampler.notes() == [], f"point {point}"
    reasons = [device.reason for device in sampler.collect(STALE_AFTER_S)]
    assert not any("not returned" in reason for reason in reasons if reason), f"point {point}"
    sampler._discover_due_s = clock.monotonic_s()
    _run_for(sampler, clock, 0.3)
    assert [device.state for device in sampler.collect(STALE_AFTER_S)] == ["ok", "ok"], f"point {point}"
    assert sampler._discover_due_s > clock.monotonic_s(), f"point {point}: devices are not looked for"
    return interruption.was_reached, lane.is_abandoned and bool(left_for_others)


@pytest.mark.usefixtures("_is_clocked")
def test_wherever_a_lane_is_abandoned_no_device_stays_held(monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned = 0
    for point in range(1, 10_000):
        was_reached, was_abandoned = _interrupt(point, monkeypatch)
        if not was_reached:
            break
        abandoned += was_abandoned
    assert point > 500
    assert abandoned > 100


@pytest.fixture
def _hurried_threads() -> Iterator[None]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.usefixtures("_hurried_threads")
def test_lanes_that_are_abandoned_just_when_a_call_returns_leave_nothing_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampler_module, "CALL_DEADLINE_S", 0.0)
    source = HandSource(8)
    is_called = threading.Event()
    for reader in source.readers:
        reader.at_call = lambda _: is_called.set()
    sampler = SourceSampler(source, memory_interval_s=1e-6, details_interval_s=1.0)
    sampler.start()
    for _ in range(WATCHES):
        assert is_called.wait(30.0)
        is_called.clear()
        sampler.watch()

    def find_devices() -> list[DeviceSample]:
        return sampler.collect(STALE_AFTER_S)

    wait_until(lambda: [it.state for it in find_devices()] == ["ok"] * 8, what="all devices to be read")
    source.readers.append(HandReader(8))
    source.readers[8].used_bytes = 5 * GIB
    sampler._discover_due_s = 0.0
    wait_until(lambda: len(find_devices()) == 9, what="devices to be looked for")
    sampler.stop()
