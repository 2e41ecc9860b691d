"""What processes report becomes ranks of the sample: folded within the tick, stale, ended, resumed."""

import os
from contextlib import ExitStack
from pathlib import Path

from vramscope.engine.model import AllocatorReading, ModelStateReading, Sample
from vramscope.engine.ranks.messages import ModelState, OutOfMemoryMet, ProbedDevice
from vramscope.engine.ranks.roster import ENDED_SHOWN_S, HELLO_WITHIN_S
from vramscope.engine.ranks.track import STALE_AFTER_S

from .probe_client import GIB, MIB, ProbeClient, make_hello, make_readings
from .rosters import make_device, open_roster


def test_a_tick_keeps_the_newest_reading_and_the_most_within_it(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(
            make_hello(rank=3, command="train.py"), make_readings(GIB, 5 * GIB, 2 * GIB, retries=1, ooms=0)
        )
        rank = bench.rank()
        assert rank.pid == os.getpid()
        assert (rank.state, rank.command) == ("ok", "train.py")
        assert rank.coordinates is not None
        assert rank.coordinates.rank == 3
        assert rank.allocator == AllocatorReading(
            allocated_bytes=2 * GIB,
            allocated_max_bytes=5 * GIB,
            reserved_bytes=2 * GIB,
            active_bytes=2 * GIB,
            retries=1,
            ooms=0,
        )
        probe.send(make_readings(3 * GIB))
        after = bench.rank().allocator
        assert after is not None
        assert after.allocated_max_bytes == 3 * GIB


def test_steps_phase_and_model_state_come_along(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello(), make_readings(GIB, phase="forward", dropped=7, memory_history="on"))
        probe.send(ModelState(v=1, parameters_bytes=4 * MIB, optimizer_bytes=8 * MIB))
        probe.send_steps((1, 10.0, None, MIB, 2 * MIB, False), (2, 11.0, 1.0, MIB, 3 * MIB, True))
        rank = bench.rank()
        assert rank.steps_within == 2
        assert rank.step is not None
        assert (rank.step.index, rank.step.duration_s, rank.step.peak_bytes) == (2, 1.0, 3 * MIB)
        assert rank.step.is_peak_exact
        assert (rank.phase, rank.readings_dropped, rank.memory_history) == ("forward", 7, "on")
        assert rank.model_state == ModelStateReading(4 * MIB, None, 8 * MIB, None)
        later = bench.rank()
        assert (later.steps_within, later.step) == (0, rank.step)


def test_what_was_not_measured_is_not_zero(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello(backend=None))
        rank = bench.rank()
        assert (rank.allocator, rank.age_s, rank.step, rank.device_uuid) == (None, None, None, None)
        probe.send(make_readings(None))
        assert bench.rank().allocator == AllocatorReading()


def test_a_process_that_falls_silent_is_stale_and_comes_back(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello(), make_readings(GIB, time_s=bench.clock.wall_s() + 1))
        assert bench.rank().state == "ok"
        (rank,) = bench.tick(after_s=STALE_AFTER_S + 4).ranks
        assert rank.state == "stale"
        assert rank.reason == "it has not reported for 7 s"
        assert rank.age_s is not None
        assert rank.age_s > STALE_AFTER_S
        probe.send(make_readings(2 * GIB, time_s=bench.clock.wall_s()))
        back = bench.rank()
        assert (back.state, back.reason) == ("ok", None)
        assert back.age_s is not None
        assert back.age_s <= 1.0


def test_a_process_that_was_met_and_has_no_device_yet_is_not_stale(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello(backend=None))
        bench.tick()
        (rank,) = bench.tick(after_s=60.0).ranks
        assert rank.state == "ok"


def test_a_wall_clock_that_was_set_makes_no_reading_old(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello(), make_readings(GIB, time_s=bench.clock.wall_s() - 3600))
        rank = bench.rank()
        assert rank.state == "ok"
        assert rank.age_s is not None
        assert rank.age_s <= 1.0


def test_an_end_is_shown_for_a_while_and_then_gone(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello(), make_readings(GIB))
        bench.tick()
        probe.say_goodbye()
        rank = bench.rank()
        assert (rank.state, rank.reason) == ("ended", "the process has ended")
        assert not bench.roster.is_attended
        assert bench.tick(after_s=ENDED_SHOWN_S - 0.5).ranks
        assert bench.tick(after_s=1.0).ranks == ()


def test_whoever_asks_between_two_ticks_hears_of_a_probe_that_was_detached(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello(), make_readings(GIB))
        sample = Sample(node="n", seq=1, time_s=1.0, interval_s=1.0, ranks=bench.tick().ranks)
        assert bench.roster.mark_ended(sample) is sample
        probe.say_goodbye(detached=True)
        (rank,) = bench.roster.mark_ended(sample).ranks
        assert (rank.state, rank.reason) == ("ended", "its probe was detached")
        with ProbeClient(private_environment) as again:
            again.send(make_hello(), make_readings(GIB))
            assert bench.roster.mark_ended(sample) is sample


def test_a_killed_process_is_said_to_have_ended(private_environment: Path) -> None:
    with open_roster(private_environment) as bench:
        probe = ProbeClient(private_environment, has_own_process=True)
        probe.send(make_hello(), make_readings(GIB))
        assert bench.rank().pid == probe.pid
        probe.kill()
        rank = bench.rank()
    assert (rank.state, rank.reason) == ("ended", "the process ended without notice")
    assert rank.allocator is not None


def test_a_process_that_never_told_a_figure_leaves_without_a_trace(private_environment: Path) -> None:
    with open_roster(private_environment) as bench:
        with ProbeClient(private_environment) as probe:
            probe.send(make_hello(backend=None))
            assert len(bench.tick().ranks) == 1
        assert bench.tick().ranks == ()


def test_a_process_that_connects_anew_goes_on(private_environment: Path) -> None:
    hello = make_hello(started_s=5.0)
    with open_roster(private_environment) as bench:
        with ProbeClient(private_environment) as probe:
            probe.send(hello, make_readings(GIB), OutOfMemoryMet(v=1, time_s=1.0, size_bytes=2 * GIB))
            bench.tick()
        assert bench.rank().state == "ended"
        with ProbeClient(private_environment) as again:
            again.send(hello, make_readings(2 * GIB))
            rank = bench.rank()
            assert (rank.state, rank.reason, rank.oom_size_bytes) == ("ok", None, 2 * GIB)
            with ProbeClient(private_environment) as third:
                third.send(hello, make_readings(3 * GIB))
                assert bench.rank().state == "ok"
                assert again.is_cut_off()


def test_an_out_of_memory_error_names_its_record(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello(), make_readings(GIB))
        probe.send(OutOfMemoryMet(v=1, time_s=1.0, size_bytes=3 * GIB, flight_record="/x/oom.json"))
        rank = bench.rank()
        assert (rank.flight_record, rank.oom_size_bytes) == ("/x/oom.json", 3 * GIB)
        assert rank.allocator is not None
        assert rank.allocator.ooms == 1
        probe.send(OutOfMemoryMet(v=1, time_s=2.0, reason="the disk is full"))
        second = bench.rank()
        assert (second.flight_record, second.notes) == (None, ("the disk is full",))


def test_devices_without_ranks_are_returned_as_they_came(private_environment: Path) -> None:
    devices = [make_device(0), make_device(1)]
    with open_roster(private_environment) as bench:
        roll = bench.tick(devices)
    assert [id(device) for device in roll.devices] == [id(device) for device in devices]
    assert (roll.ranks, roll.notes) == ((), ())


def test_ranks_stand_by_device_then_rank_then_pid(private_environment: Path) -> None:
    places = ((2, "GPU-1"), (0, "GPU-1"), (1, "GPU-0"), (3, None))
    with open_roster(private_environment) as bench, ExitStack() as probes:
        for rank, uuid in places:
            probe = probes.enter_context(ProbeClient(private_environment, has_own_process=True))
            probed = None if uuid is None else ProbedDevice(index=0, uuid=uuid)
            probe.send(make_hello(rank=rank, device=probed), make_readings(GIB))
        roll = bench.tick([make_device(0), make_device(1, name="another")])
    assert [rank.coordinates.rank for rank in roll.ranks if rank.coordinates] == [1, 0, 2, 3]
    assert [rank.device_uuid for rank in roll.ranks] == ["GPU-0", "GPU-1", "GPU-1", None]


def test_a_connection_that_does_not_say_who_it_is_is_closed(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        bench.tick()
        assert not probe.is_cut_off()
        bench.tick(after_s=HELLO_WITHIN_S + 1)
        assert probe.is_cut_off()
