"""One session on a stand-in for a GPU, its clock wound by the test, its hub a real socket."""

import base64
import threading
import zlib
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tests.engine.probe.hub import ListeningHub
from tests.engine.probe.stand_in import MIB, StandInOptimizer, make_segment
from tests.engine.probe.watched import Watched
from tests.waiting import wait_until
from vramscope.engine.probe.base import current
from vramscope.engine.probe.sampler import SAMPLE_S, SEND_S, WATCH_S
from vramscope.engine.probe.session import QUICK_WATCH_FOR_S, QUICK_WATCH_S
from vramscope.engine.ranks.messages import (
    Hello,
    ModelState,
    ProbedSegments,
    Readings,
    SegmentsPart,
)
from vramscope.engine.ranks.roster import DRAIN_INTERVAL_S


def test_it_looks_often_at_first_then_once_a_second_until_there_is_a_reason(watched: Watched) -> None:
    watched.cuda.is_ready = False
    began_s = watched.clock.now_s
    while watched.tick() == QUICK_WATCH_S:
        pass
    assert watched.clock.now_s - began_s == pytest.approx(QUICK_WATCH_FOR_S + WATCH_S, abs=0.2)
    assert [watched.tick() for _ in range(3)] == [WATCH_S] * 3
    watched.cuda.is_ready = True
    assert watched.tick() == WATCH_S
    assert not watched.session.is_reporting
    watched.cuda.allocate(MIB)
    assert watched.tick() == pytest.approx(SAMPLE_S)
    assert watched.session.is_reporting


def test_the_observer_stands_as_soon_as_the_device_is_initialised(watched: Watched) -> None:
    watched.cuda.is_ready = False
    watched.tick(3)
    assert watched.cuda.observers == []
    watched.cuda.is_ready = True
    watched.tick()
    assert not watched.session.is_reporting
    assert len(watched.cuda.observers) == 1


@pytest.mark.parametrize("is_explicit", [True, False])
def test_a_process_that_reports_before_its_device_is_initialised_is_observed_from_then_on(
    watched: Watched, is_explicit: bool
) -> None:
    watched.cuda.is_ready = False
    watched.session.is_explicit = is_explicit
    if not is_explicit:
        watched.optimizer = StandInOptimizer("cpu", None)
        watched.step()
    watched.tick(5)
    assert watched.session.is_reporting
    watched.cuda.is_ready = True
    watched.cuda.allocate(MIB)
    watched.tick(5)
    assert len(watched.cuda.observers) == 1


def test_ten_readings_a_second_go_out_so_often_that_every_tick_of_a_hub_finds_some(
    watched: Watched, hub: ListeningHub
) -> None:
    watched.cuda.allocate(8 * MIB)
    watched.cuda.pinned = 3 * MIB
    watched.tick(17)
    hub.wait_for(Readings, 3)
    assert SEND_S < DRAIN_INTERVAL_S
    assert [len(message.rows) for message in hub.of(Readings)] == [1, 8, 8]
    times = [row[0] for row in hub.readings()]
    assert times == pytest.approx([times[0] + number / 10 for number in range(17)])
    _, allocated, requested, active, reserved, split, retries, ooms, pinned, resident = hub.readings()[-1]
    assert (allocated, requested, active, reserved) == (8 * MIB,) * 4
    assert (split, retries, ooms, pinned) == (0, 0, 0, 3 * MIB)
    assert resident is not None


def test_the_hello_names_device_and_limits_and_comes_again_when_they_change(
    watched: Watched, hub: ListeningHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.cuda.allocate(MIB)
    watched.tick()
    (first,) = hub.wait_for(Hello)
    assert first.device is not None
    assert first.device.uuid == "GPU-11111111-2222-3333-4444-000000000000"
    assert (first.backend, first.coordinates, first.capacity_bytes) == ("cuda", None, None)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64")
    watched.cuda.fraction = 0.25
    watched.tick(60)
    second = hub.wait_for(Hello, 2)[1]
    assert second.coordinates is not None
    assert second.coordinates.rank == 2
    assert second.capacity_bytes == 6 * 1024 * MIB
    assert second.allocator_settings == "max_split_size_mb:64"
    watched.tick(300)
    assert len(hub.of(Hello)) == 2


def test_a_simulated_device_is_told_as_one(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda._vramscope_simulated = {
        "job": "sim-job",
        "index": 1,
        "total_bytes": 24,
        "context_bytes": 5,
        "notes": ["streams are not modelled"],
    }
    watched.cuda.allocate(MIB)
    watched.tick()
    (hello,) = hub.wait_for(Hello)
    assert hello.device is not None
    assert (hello.is_simulated, hello.device.uuid, hello.context_bytes) == (True, "sim-sim-job-1", 5)
    assert hello.notes == ("streams are not modelled",)
    assert hello.job == "sim-job"


def test_steps_carry_floor_and_peak_of_the_allocator(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda.allocate(10 * MIB)
    watched.step()
    watched.clock.advance(0.5)
    watched.cuda.allocate(50 * MIB)
    watched.cuda.allocate(-45 * MIB)
    watched.step()
    watched.tick()
    wait_until(lambda: len(hub.steps()) == 2)
    assert hub.steps()[1][2:] == (0.5, 10 * MIB, 60 * MIB, True)
    assert hub.of(ModelState) == [ModelState(1, 4, 0, 0, None)]


def test_quick_steps_are_counted_without_a_reading_for_each(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda.allocate(MIB)
    reads = []
    read = watched.cuda.memory_stats_as_nested_dict

    def count_and_read(device: int) -> Any:
        reads.append(device)
        return read(device)

    watched.cuda.memory_stats_as_nested_dict = count_and_read
    for _ in range(1000):
        watched.step()
        watched.clock.advance(0.001)
    assert len(reads) <= 60
    watched.tick(6)
    wait_until(lambda: len(hub.steps()) == 600)
    assert hub.steps()[-1][0] == 1000


def test_a_segment_map_comes_in_parts_when_it_is_asked_for(watched: Watched, hub: ListeningHub) -> None:
    sizes = [(1 + number * 7919 % 99_991, "inactive") for number in range(20_000)]
    watched.cuda.segments = [make_segment(sizes)]
    watched.cuda.allocate(MIB)
    watched.tick()
    hub.wait_for(Hello)
    hub.ask_for("segments", request=41)
    watched.tick(20)
    parts = hub.wait_for(SegmentsPart)
    wait_until(lambda: len(hub.of(SegmentsPart)) == parts[0].parts)
    parts = hub.of(SegmentsPart)
    assert len(parts) > 1
    assert [(part.request, part.part) for part in parts] == [(41, number) for number in range(len(parts))]
    packed = base64.b64decode("".join(part.data for part in parts))
    found = msgspec.json.decode(zlib.decompress(packed), type=ProbedSegments)
    assert found.segments[0][6] == tuple((size, 0) for size, _ in sizes)
    watched.tick(100)
    assert len(hub.of(SegmentsPart)) == len(parts)


def unpack_map(parts: list[SegmentsPart]) -> ProbedSegments:
    """Return a map as the hub reads it."""
    packed = base64.b64decode("".join(part.data for part in parts))
    return msgspec.json.decode(zlib.decompress(packed), type=ProbedSegments)


def test_a_map_of_the_end_of_a_step_is_taken_there_before_a_recording_begins(
    watched: Watched, hub: ListeningHub
) -> None:
    seen: list[tuple[str, bool]] = []
    ask = watched.cuda.memory_snapshot

    def tell(include_traces: bool = True) -> Any:
        seen.append((threading.current_thread().name, watched.cuda.is_recording))
        return ask(include_traces=include_traces)

    watched.cuda.memory_snapshot = tell
    watched.cuda.segments = [make_segment([(MIB, "active_allocated")])]
    watched.cuda.allocate(MIB)
    watched.step()
    watched.tick()
    hub.wait_for(Hello)
    hub.ask_for("history", is_on=True, seconds=30)
    hub.ask_for("segments", request=7, seconds=60)
    watched.tick(100)
    assert seen == []
    trainer = threading.Thread(target=watched.step, name="trainer")
    trainer.start()
    trainer.join()
    assert (seen, watched.cuda.is_recording) == ([("trainer", False)], True)
    watched.tick(2)  # at once, not with the next packet
    found = unpack_map(hub.wait_for(SegmentsPart))
    assert (found.is_at_step_end, len(found.segments)) == (True, 1)


def test_a_map_that_waits_in_vain_for_the_end_of_a_step_is_taken_and_says_so(
    watched: Watched, hub: ListeningHub
) -> None:
    watched.cuda.segments = [make_segment([(MIB, "active_allocated")])]
    watched.cuda.allocate(MIB)
    watched.tick()
    hub.wait_for(Hello)
    hub.ask_for("segments", request=7, seconds=20)
    watched.tick(150)
    assert hub.of(SegmentsPart) == []
    watched.tick(100)
    assert not unpack_map(hub.wait_for(SegmentsPart)).is_at_step_end
    watched.step()
    watched.tick(20)
    assert len(hub.of(SegmentsPart)) == 1


def test_an_allocator_that_refuses_a_map_does_not_disturb_the_training(
    watched: Watched, hub: ListeningHub
) -> None:
    def refuse(include_traces: bool = True) -> Any:
        raise RuntimeError("not while capturing")

    watched.cuda.allocate(MIB)
    watched.cuda.memory_snapshot = refuse
    watched.tick()
    hub.wait_for(Hello)
    for request in range(5):
        hub.ask_for("segments", request=request, seconds=5 if request % 2 else None)
        watched.tick(15)
        watched.step()
    assert len(current.failures) == 5
    assert all("not while capturing" in failure for failure in current.failures)
    watched.tick(10)
    wait_until(lambda: len(hub.steps()) == 5)


def test_stacks_are_recorded_on_demand_from_the_end_of_the_next_step(
    watched: Watched, hub: ListeningHub
) -> None:
    watched.cuda.allocate(MIB)
    watched.tick()
    hub.wait_for(Hello)
    hub.ask_for("history", is_on=True, seconds=30)
    watched.tick(10)
    assert not watched.cuda.is_recording
    watched.step()
    assert watched.cuda.is_recording
    watched.tick(10)
    wait_until(lambda: [told.memory_history for told in hub.of(Readings)][-1:] == ["on"])
    watched.clock.advance(30)
    watched.step()
    assert not watched.cuda.is_recording


def test_a_recording_that_runs_when_the_probe_leaves_is_ended_by_the_thread_that_trains(
    watched: Watched, hub: ListeningHub
) -> None:
    watched.cuda.allocate(MIB)
    watched.session._history.demand(True, None)
    watched.step()
    watched.tick()
    hub.wait_for(Hello)
    hub.ask_for("detach")
    watched.tick(10)
    assert hub.wait_for_goodbye().reason == "detached"
    assert watched.cuda.is_recording
    import sys
    from unittest import mock

    with mock.patch.dict(sys.modules, {"torch": watched.torch}):
        watched.step()
    assert not watched.cuda.is_recording
    assert watched.tick() is None


def test_the_programs_own_recording_is_told(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda.allocate(MIB)
    watched.cuda.memory._record_memory_history()
    watched.tick(6)
    assert hub.wait_for(Readings)[-1].memory_history == "user"
    watched.cuda.memory._record_memory_history(enabled=None)
    watched.tick(60)
    wait_until(lambda: [told.memory_history for told in hub.of(Readings)][-1:] == ["off"])


def test_garbage_from_a_hub_changes_nothing(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda.allocate(MIB)
    watched.tick()
    hub.wait_for(Hello)
    for packet in (b"\xff\x00", b"{}", b"[" * 9000, b'{"v":9,"kind":"detach"}'):
        hub._peers[-1].send(packet)
    watched.tick(10)
    assert watched.session.is_reporting
    assert current.failures == []


def test_a_wall_clock_that_steps_moves_no_duration_and_no_rhythm(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda.allocate(MIB)
    for offset_s in (0.0, -3600.0, +90_000.0):
        watched.clock.wall_offset_s += offset_s
        watched.step()
        assert [watched.tick() for _ in range(20)] == pytest.approx([SAMPLE_S] * 20)
    watched.step()
    watched.tick(5)
    wait_until(lambda: len(hub.steps()) == 4)
    assert [row[2] for row in hub.steps()] == [None, *[pytest.approx(2.0)] * 3]
    times = [row[0] for row in hub.readings()]
    gaps = [after - before for before, after in pairwise(times)]
    assert sorted(gaps) == pytest.approx([0.1 - 3600, *[0.1] * (len(gaps) - 2), 0.1 + 90_000], abs=1e-6)
    assert len(hub.of(Hello)) == 1
    assert current.failures == []


def test_an_entry_that_keeps_failing_is_given_up_and_a_note_says_so(
    watched: Watched, hub: ListeningHub
) -> None:
    watched.cuda.allocate(MIB)
    watched.optimizer.state = None  # type: ignore[assignment]
    for _ in range(10):
        watched.step()
        watched.clock.advance(1)
    watched.tick()
    (hello,) = hub.wait_for(Hello)
    assert len(hello.notes) == 3
    assert hello.notes[-1].endswith("it was switched off")


def test_a_driver_that_fails_ends_the_sampling_quietly(watched: Watched, capfd: Any) -> None:
    watched.cuda.allocate(MIB)
    watched.tick()

    watched.cuda.devices = []
    assert [watched.tick() for _ in range(4)] == [WATCH_S, WATCH_S, WATCH_S, None]
    assert "IndexError" in current.failures[-1]
    assert capfd.readouterr() == ("", "")
