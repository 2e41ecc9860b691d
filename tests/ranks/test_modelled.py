"""Simulated cards and the host as devices: what ranks hold on them, and how devices show their ranks."""

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
from vramscope.engine.ranks.modelled import ModelledDevices, Placed
from vramscope.engine.ranks.sharing import share
from vramscope.engine.ranks.track import STALE_AFTER_S, RankReport

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
) -> Placed:
    """Return a rank on a simulated card of 24 GiB."""
    sample = RankSample(
        pid=1,
        device_uuid=uuid,
        is_simulated=True,
        state=state,  # type: ignore[arg-type] # one of its literals
        age_s=0.2,
        allocator=None if reserved is None else AllocatorReading(reserved_bytes=reserved),
        context_bytes=CONTEXT,
    )
    hello = make_hello(is_simulated=True, device=ProbedDevice(index=index, uuid=uuid, total_bytes=24 * GIB))
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


def test_what_no_rank_has_told_is_unknown_and_an_empty_card_is_empty() -> None:
    assert make(place(None)).memory == MemoryReading(total_bytes=24 * GIB)
    assert make(place(4 * GIB, state="ended")).memory.used_bytes == 0


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
        assert cpu.memory == MemoryReading(64 * GIB, 9 * GIB, 55 * GIB, source="host")
        bench.tick([real], host)
        assert bench.tick([real], host, after_s=20.0).devices == (real,)


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
