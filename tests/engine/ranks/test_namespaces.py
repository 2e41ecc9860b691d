"""Processes of other pid namespaces: the kernel has no pid for them, and those they tell are not unique."""

import os
from pathlib import Path

import pytest

from vramscope.engine.model import ProcessReading
from vramscope.engine.ranks import listener
from vramscope.engine.ranks.demands import Wish
from vramscope.engine.ranks.messages import ProbedDevice
from vramscope.tui.live.process_signals import SignalPolicy, refuse_by_policy

from .probe_client import GIB, ProbeClient, make_hello, make_readings
from .rosters import make_device, open_roster

ASKER = (b"peer", 1)


class _FromElsewhere:
    """What SO_PEERCRED gives of a process of a pid namespace that is not below ours: no pid."""

    size = 12

    def unpack(self, _packed: bytes) -> tuple[int, int, int]:
        return 0, os.geteuid(), os.getegid()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_CREDENTIALS", _FromElsewhere())


@pytest.mark.usefixtures("elsewhere")
def test_two_containers_with_one_pid_are_two_ranks(private_environment: Path) -> None:
    with (
        open_roster(private_environment) as bench,
        ProbeClient(private_environment) as first,
        ProbeClient(private_environment) as second,
    ):
        first.send(make_hello(7, rank=0, started_s=5.0), make_readings(GIB))
        bench.tick()
        second.send(make_hello(7, rank=1, started_s=6.0), make_readings(2 * GIB))
        ranks = bench.tick().ranks
        assert [(rank.pid, rank.started_s, rank.state) for rank in ranks] == [(7, 5.0, "ok"), (7, 6.0, "ok")]
        assert all("its pid is from inside its container" in rank.notes[-1] for rank in ranks)
        assert not first.is_cut_off()


@pytest.mark.usefixtures("elsewhere")
def test_a_process_of_a_container_that_connects_anew_is_the_same(private_environment: Path) -> None:
    hello = make_hello(7, started_s=5.0)
    with (
        open_roster(private_environment) as bench,
        ProbeClient(private_environment) as first,
        ProbeClient(private_environment) as again,
    ):
        first.send(hello, make_readings(GIB))
        bench.tick()
        again.send(hello, make_readings(2 * GIB))
        assert bench.rank().state == "ok"
        assert first.is_cut_off()


def test_a_pid_of_the_kernel_is_no_pid_of_a_container(
    private_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as here:
        here.send(make_hello(rank=0, started_s=5.0), make_readings(GIB))
        assert bench.rank().notes == ()
        monkeypatch.setattr(listener, "_CREDENTIALS", _FromElsewhere())
        with ProbeClient(private_environment) as container:
            container.send(make_hello(os.getpid(), rank=1, started_s=6.0), make_readings(2 * GIB))
            assert [rank.state for rank in bench.tick().ranks] == ["ok", "ok"]


@pytest.mark.usefixtures("elsewhere")
def test_the_device_of_another_process_with_that_pid_is_not_taken(private_environment: Path) -> None:
    held = ProcessReading(pid=os.getpid(), used_bytes=GIB, location="here")
    devices = [make_device(0, processes=(held,)), make_device(1, name="Another GPU")]
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello(os.getpid(), device=ProbedDevice(index=0), started_s=5.0), make_readings(GIB))
        (rank,) = bench.tick(devices).ranks
        assert rank.device_uuid is None


@pytest.mark.usefixtures("elsewhere")
def test_a_wish_for_a_pid_of_two_containers_is_refused_and_reaches_neither(private_environment: Path) -> None:
    with (
        open_roster(private_environment) as bench,
        ProbeClient(private_environment) as first,
        ProbeClient(private_environment) as second,
    ):
        first.send(make_hello(7, rank=0, started_s=5.0), make_readings(GIB))
        second.send(make_hello(7, rank=1, started_s=6.0), make_readings(GIB))
        bench.tick()
        bench.roster.ask(7, Wish("detach", ASKER))
        (answer,) = bench.roster.take_answers()
        assert answer.refusal is not None
        assert "2 processes in other containers report as process 7" in answer.refusal
        assert not first.has_demand()
        assert not second.has_demand()


def test_a_wish_reaches_the_process_that_is_seen_before_one_of_a_container_with_its_pid(
    private_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as here:
        here.send(make_hello(rank=0, started_s=5.0), make_readings(GIB))
        bench.tick()
        monkeypatch.setattr(listener, "_CREDENTIALS", _FromElsewhere())
        with ProbeClient(private_environment) as container:
            container.send(make_hello(os.getpid(), rank=1, started_s=6.0), make_readings(GIB))
            assert len(bench.tick().ranks) == 2
            bench.roster.ask(os.getpid(), Wish("detach", ASKER))
            assert here.has_demand()
            assert not container.has_demand()


@pytest.mark.usefixtures("elsewhere")
def test_a_process_of_a_container_on_a_modelled_card_is_not_to_be_signalled_by_its_pid(
    private_environment: Path,
) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        device = ProbedDevice(index=0, uuid="sim-job-0", name="simulated", total_bytes=8 * GIB)
        hello = make_hello(os.getpid(), device=device, started_s=5.0, is_simulated=True)
        probe.send(hello, make_readings(GIB))
        (card,) = bench.tick().devices
        (process,) = card.processes or ()
        refusal = refuse_by_policy(process, "n", False, SignalPolicy(local_node="n"))
        assert refusal is not None
