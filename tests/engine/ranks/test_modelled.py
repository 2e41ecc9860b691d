"""Simulated cards and the host as devices: what ranks hold on them, and how devices show their ranks."""

import os
import pwd
from contextlib import ExitStack
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    HostSample,
    MemoryReading,
    RankCoordinates,
    RankSample,
    StepReading,
)
from vramscope.engine.ranks.messages import ProbedDevice
from vramscope.engine.ranks.roster import ENDED_SHOWN_S, MODELLED_SHOWN_S, share
from vramscope.engine.ranks.track import STALE_AFTER_S, ModelledDevices, Placed, RankReport

from .probe_client import GIB, MIB, ProbeClient, make_hello, make_readings
from .rosters import make_device, open_roster

CONTEXT = 500 * MIB


def place(
    reserved: int | None,
    least: int | None = None,
    most: int | None = None,
    *,
    state: str = "ok",
    uuid: str = "sim-job-0",
    index: int = 0,
    job: str | None = None,
) -> Placed:
    """Return a rank on a simulated card of 24 GiB."""
    sample = RankSample(
        pid=1,
        job=job,
        device_uuid=uuid,
        is_simulated=True,
        state=state,  # type: ignore[arg-type] # one of its literals
        age_s=0.2,
        allocator=None if reserved is None else AllocatorReading(reserved_bytes=reserved),
        context_bytes=CONTEXT,
    )
    card = ProbedDevice(index=index, uuid=uuid, total_bytes=24 * GIB)
    hello = make_hello(is_simulated=True, device=card, job=job or uuid.rsplit("-", 1)[0])
    return Placed(RankReport(sample, least, most), hello)


def make(*placed: Placed) -> DeviceSample:
    """Return the only card of these ranks."""
    (device,) = ModelledDevices().make_simulated(placed)
    return device


def test_a_card_holds_what_its_ranks_reserve_and_their_contexts() -> None:
    device = make(place(4 * GIB, 3 * GIB, 6 * GIB), place(2 * GIB))
    used = 6 * GIB + 2 * CONTEXT
    assert device.memory == MemoryReading(24 * GIB, used, 24 * GIB - used, used - GIB, used + 2 * GIB)
    assert (device.kind, device.name, device.label, device.state) == ("simulated", "simulated", "sim0", "ok")


def test_peaks_of_two_ranks_are_not_taken_for_one_moment() -> None:
    memory = make(place(4 * GIB, 3 * GIB, 6 * GIB), place(2 * GIB, GIB, 5 * GIB)).memory
    # At the second's peak the first held 3 GiB or more; at the first's least the second held 5 GiB or less.
    assert memory.used_max_bytes == (3 + 5) * GIB + 2 * CONTEXT
    assert memory.used_min_bytes == 6 * GIB + 2 * CONTEXT


def test_what_no_rank_has_told_is_unknown() -> None:
    assert make(place(None)).memory == MemoryReading(total_bytes=24 * GIB)


def test_a_card_whose_ranks_have_ended_shows_what_was_held_when_one_lived_and_is_marked() -> None:
    devices = ModelledDevices()
    both = [place(4 * GIB, 3 * GIB, 6 * GIB), place(2 * GIB, state="ended")]
    (before,) = devices.make(both, "cpu-n", None)
    (after,) = devices.make([place(4 * GIB, state="ended"), both[1]], "cpu-n", None)
    assert (before.state, before.memory.used_bytes) == ("ok", 4 * GIB + CONTEXT)
    assert (after.state, after.memory.used_bytes, after.processes) == ("ended", 4 * GIB + CONTEXT, ())
    assert (after.memory.used_min_bytes, after.memory.used_max_bytes) == (None, None)
    assert after.reason is not None
    assert after.reason.startswith("process 1: ")


held = st.tuples(*(st.integers(0, 8 * GIB) for _ in range(3))).map(sorted)


@given(st.lists(held, min_size=1, max_size=5), st.data())
def test_bounds_of_a_shared_card_are_certain(ranks: list[list[int]], data: st.DataObject) -> None:
    device = make(*(place(now, least, most) for least, now, most in ranks))
    used, lowest, highest = (
        device.memory.used_bytes,
        device.memory.used_min_bytes,
        device.memory.used_max_bytes,
    )
    assert used is not None
    assert lowest is not None
    assert highest is not None
    contexts = len(ranks) * CONTEXT
    assert sum(low for low, _, _ in ranks) + contexts <= lowest <= used <= highest
    assert highest <= sum(most for _, _, most in ranks) + contexts
    # Whichever rank peaked, at that moment the card held no less than this.
    peaking = data.draw(st.integers(0, len(ranks) - 1))
    at_peak = [most if n == peaking else low for n, (low, _, most) in enumerate(ranks)]
    assert highest >= sum(at_peak) + contexts


def test_cards_of_two_jobs_have_labels_of_their_own_and_keep_them() -> None:
    devices = ModelledDevices()
    one, other = place(GIB, uuid="sim-a-0"), place(GIB, uuid="sim-b-0")
    assert [d.label for d in devices.make_simulated([one, other])] == ["sim0", "sim1"]
    assert [(d.uuid, d.label) for d in devices.make_simulated([other])] == [("sim-b-0", "sim1")]


def test_cards_that_have_ended_give_their_labels_to_the_next_job() -> None:
    devices = ModelledDevices()
    first = [place(GIB, uuid=f"sim-a-{n}", index=n) for n in (0, 1)]
    over = [place(GIB, uuid=f"sim-a-{n}", index=n, state="ended") for n in (0, 1)]
    second = [place(GIB, uuid=f"sim-b-{n}", index=n) for n in (0, 1)]
    assert _labels(devices, *first) == {"sim-a-0": "sim0", "sim-a-1": "sim1"}
    assert _labels(devices, *over) == {"sim-a-0": "sim0", "sim-a-1": "sim1"}
    given = {"sim-b-0": "sim0", "sim-b-1": "sim1", "sim-a-0": "sim2", "sim-a-1": "sim3"}
    assert _labels(devices, *over, *second) == given


@given(st.permutations(range(4)), st.permutations(range(4)))
def test_cards_of_a_job_stand_in_its_order_whoever_reports_first(one: list[int], other: list[int]) -> None:
    devices, here = ModelledDevices(), list[Placed]()
    for job, n in (*(("a", n) for n in one), *(("b", n) for n in other)):
        here.append(place(GIB, uuid=f"sim-{job}-{n}", index=n, job=job))
        labels = _labels(devices, *here)
    assert labels == {f"sim-{job}-{n}": f"sim{at + n}" for job, at in (("a", 0), ("b", 4)) for n in range(4)}


def _labels(devices: ModelledDevices, *placed: Placed) -> dict[str, str]:
    return {device.uuid: device.label for device in devices.make_simulated(placed)}


def test_a_card_is_stale_when_all_its_ranks_are(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello(is_simulated=True), make_readings(GIB))
        assert bench.tick().devices[0].state == "ok"
        (device,) = bench.tick(after_s=STALE_AFTER_S + 2).devices
    assert device.state == "stale"
    assert device.reason is not None
    assert "it has not reported for" in device.reason


def test_the_host_is_a_device_while_a_rank_trains_on_it(private_environment: Path) -> None:
    host = HostSample(total_bytes=64 * GIB, used_bytes=9 * GIB, available_bytes=55 * GIB, cpu_percent=80.0)
    real = make_device(0)
    with open_roster(private_environment) as bench:
        with ProbeClient(private_environment) as probe:
            probe.send(make_hello(backend="cpu"), make_readings(GIB))
            gpu, cpu = bench.tick([real], host).devices
        assert gpu == real
        assert (cpu.uuid, cpu.label, cpu.utilization_percent) == ("cpu-n", "cpu", 80.0)
        assert cpu.processes is not None
        assert [process.user for process in cpu.processes] == [pwd.getpwuid(os.geteuid()).pw_name]
        assert cpu.memory == MemoryReading(64 * GIB, 9 * GIB, 55 * GIB, source="host")
        bench.tick([real], host)
        _, over = bench.tick([real], host, after_s=MODELLED_SHOWN_S - 20.0).devices
        assert (over.state, over.memory, over.processes) == ("ended", cpu.memory, ())
        assert over.age_s is not None
        assert over.age_s > MODELLED_SHOWN_S - 20.0
        assert bench.tick([real], host, after_s=20.0).devices == (real,)


def test_a_job_that_has_ended_gives_way_to_the_next(private_environment: Path) -> None:
    with open_roster(private_environment) as bench:
        for job in ("first", "second"):
            card = ProbedDevice(index=0, uuid=f"sim-{job}-0", total_bytes=GIB)
            with ProbeClient(private_environment) as probe:
                probe.send(
                    make_hello(is_simulated=True, device=card, job=job, started_s=float(len(job))),
                    make_readings(MIB),
                )
                found = bench.tick().devices
                assert [(d.uuid, d.label) for d in found if d.state == "ok"] == [(card.uuid, "sim0")]
        roll = bench.tick(after_s=ENDED_SHOWN_S + 1.0)
    assert [(device.uuid, device.label, device.state) for device in roll.devices] == [
        ("sim-second-0", "sim0", "ended")
    ]
    assert [rank.job for rank in roll.ranks] == ["second"]


def test_simulated_cards_stand_after_real_ones(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ExitStack() as stack:
        for index in (1, 0):
            probe = stack.enter_context(ProbeClient(private_environment, has_own_process=True))
            card = ProbedDevice(index=index, uuid=f"sim-j-{index}", total_bytes=GIB)
            probe.send(make_hello(is_simulated=True, device=card), make_readings(MIB))
        roll = bench.tick([make_device(0)])
    assert [device.label for device in roll.devices] == ["0", "sim0", "sim1"]


def rank(
    number: int | None, allocated: int | None, *, step: int | None = None, state: str = "ok"
) -> RankSample:
    """Return a rank on GPU-0."""
    return RankSample(
        pid=number or 99,
        device_uuid="GPU-0",
        state=state,  # type: ignore[arg-type] # one of its literals
        coordinates=None if number is None else RankCoordinates(number, tp=number),
        allocator=AllocatorReading(allocated, None if allocated is None else 2 * allocated, retries=number),
        step=None if step is None else StepReading(step, 1.0),
    )


def test_one_rank_lends_its_device_all_it_knows() -> None:
    (device,) = share([make_device(0)], [rank(3, GIB, step=12)])
    assert device.allocator == AllocatorReading(GIB, 2 * GIB, retries=3)
    assert (device.rank, device.step) == (RankCoordinates(3, tp=3), 12)
    assert device.memory == make_device(0).memory


def test_several_ranks_are_added_where_each_has_told() -> None:
    first, second = rank(1, GIB, step=7), rank(0, 2 * GIB, step=5)
    (device,) = share([make_device(0)], [first, second, rank(5, GIB, state="ended")])
    assert device.allocator == AllocatorReading(3 * GIB, None, retries=1)
    assert (device.rank, device.step) == (RankCoordinates(0, tp=0), 5)
    (partly,) = share([make_device(0)], [first, rank(None, None)])
    assert partly.allocator == AllocatorReading()
