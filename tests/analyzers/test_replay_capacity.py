"""Capacity of a replay: recorded use above it is told at once, once a rank, and stays told."""

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.replay_capacity import CapacityAnalyzer, peak_bytes
from vramscope.engine.history import History
from vramscope.engine.model import AllocatorReading, DeviceSample, Finding, MemoryReading, Sample
from vramscope.engine.units import GIB, MIB

from .samples import device, sample

CAPACITY = 60 * GIB


def rank(
    used_gib: float | None, *, most_gib: float | None = None, index: int = 6, **fields: object
) -> DeviceSample:
    """Return a recorded rank that used so many GiB of 60 at the end of a tick, and at most so many in it."""
    capacity = fields.pop("total_bytes", CAPACITY)
    one = device(used_gib, index=index, kind="trace", total_bytes=capacity, **fields)  # type: ignore[arg-type] # by name
    if most_gib is None:
        return one
    memory = msgspec.structs.replace(one.memory, used_max_bytes=round(most_gib * GIB))
    return msgspec.structs.replace(one, memory=memory)


def recorded(*devices: DeviceSample, time_s: float = 1.0) -> Sample:
    return msgspec.structs.replace(sample(*devices, time_s=time_s, interval_s=0.1), clock="trace")


def run(samples: Iterable[Sample], analyzer: CapacityAnalyzer | None = None) -> list[Finding]:
    analyzer = analyzer or CapacityAnalyzer()
    return [finding for each in samples for finding in analyzer.observe(each)]


def evidence(finding: Finding) -> dict[str, object]:
    return {each.name: each.value for each in finding.evidence}


def test_one_sample_above_the_capacity_is_enough() -> None:
    (found,) = run([recorded(rank(59)), recorded(rank(74.9, allocated_gib=50), time_s=10.5)])
    assert found.title == "would not fit 60.0 GiB: rank 6 used 74.9 GiB at 10.5 s"
    assert (found.kind, found.severity, found.device, found.opened_s) == ("capacity", "critical", "6", 10.5)
    assert evidence(found) == {
        "peak device used": round(74.9 * GIB),
        "time of the peak": 10.5,
        "capacity asked about": CAPACITY,
        "allocated at the peak": 50 * GIB,
    }
    assert "compared with the capacity: that of the file, else the given one (--capacity)" in found.method
    assert "frees before it fails" in found.advice


def test_most_within_a_tick_counts_even_where_the_tick_ended_below() -> None:
    (found,) = run([recorded(rank(40, most_gib=61.5))])
    assert evidence(found)["peak device used"] == round(61.5 * GIB)


@pytest.mark.parametrize(
    "fitting",
    [
        recorded(rank(60)),
        recorded(rank(75, total_bytes=None)),
        recorded(rank(None)),
        recorded(rank(75, state="stale")),
        sample(rank(75)),
    ],
    ids=["exactly full", "no capacity", "no figure", "stale", "measured now"],
)
def test_nothing_opens_without_a_fact(fitting: Sample) -> None:
    assert run([fitting]) == []


def test_finding_stays_after_the_peak_and_follows_a_higher_one() -> None:
    used = [61.0, 30.0, 30.0, 60.9, 62.0, 5.0]
    opened, higher = run(recorded(rank(gib), time_s=tick / 10) for tick, gib in enumerate(used))
    assert (opened.id, opened.opened_s, opened.is_open) == (higher.id, higher.opened_s, higher.is_open)
    assert (higher.updated_s, evidence(higher)["time of the peak"]) == (0.4, 0.4)
    assert higher.title.endswith("used 62.0 GiB at 0.4 s")


def test_each_rank_has_a_finding_of_its_own() -> None:
    found = run([recorded(rank(61, index=1), rank(50, index=2), rank(62, index=3))])
    assert [each.device for each in found] == ["1", "3"]


def test_live_tensors_alone_above_the_capacity_are_told_where_device_used_was_not_recorded() -> None:
    (found,) = run([recorded(rank(None, allocated_gib=69.7))])
    assert found.title == "would not fit 60.0 GiB: rank 6 allocated 69.7 GiB at 1.0 s"
    assert evidence(found)["peak allocated"] == round(69.7 * GIB)
    assert "freeing the cache would not help" in found.advice


def test_excess_too_small_for_the_figures_is_told_as_such() -> None:
    (found,) = run([recorded(rank(60 + 20 / 1024))])
    assert found.title == "would not fit 60.0 GiB: rank 6 used 20 MiB more at 1.0 s"


def test_other_capacity_closes_the_finding_and_is_answered_anew() -> None:
    analyzer = CapacityAnalyzer()
    (opened,) = run([recorded(rank(61))], analyzer)
    (closed,) = run([recorded(rank(61, total_bytes=80 * GIB), time_s=2)], analyzer)
    assert (closed.id, closed.closed_s) == (opened.id, 2)
    assert evidence(closed)["closed because"] == "a different capacity was given"
    assert run([recorded(rank(79, total_bytes=80 * GIB), time_s=3)], analyzer) == []
    (anew,) = run([recorded(rank(81, total_bytes=80 * GIB), time_s=4)], analyzer)
    assert anew.id != opened.id


def test_restored_finding_is_not_opened_twice() -> None:
    analyzer = CapacityAnalyzer()
    (opened,) = run([recorded(rank(70))])
    analyzer.restore([opened, msgspec.structs.replace(opened, kind="pressure", device_uuid="GPU-7")])
    assert run([recorded(rank(65), time_s=2)], analyzer) == []
    (higher,) = run([recorded(rank(71), time_s=3)], analyzer)
    assert (higher.id, peak_bytes(higher)) == (opened.id, 71 * GIB)
    (other,) = run([recorded(rank(61, index=7), time_s=4)], analyzer)
    assert other.device == "7"


figures = st.one_of(st.none(), st.integers(50 * 1024, 75 * 1024))


@given(
    st.lists(st.tuples(figures, figures, st.sampled_from(["ok", "ok", "stale"])), max_size=30),
    st.integers(0, 30),
    st.sampled_from([4, 100]),
)
def test_restart_from_the_ring_and_what_is_older_concludes_the_same(
    ticks: list[tuple[int | None, int | None, str]], death: int, length: int
) -> None:
    samples = [recorded(_drawn(*tick), time_s=number / 10) for number, tick in enumerate(ticks)]
    ring, stored = History(fine_ticks=length), {each.id: each for each in run(samples[:death])}
    for each in samples[:death]:
        ring.add(each)
    remembered = list(ring.samples())
    oldest_s = remembered[0].time_s if remembered else 0.0
    analyzer = CapacityAnalyzer()
    analyzer.restore([each for each in stored.values() if each.opened_s < oldest_s])
    stored |= {each.id: each for each in run([*remembered, *samples[death:]], analyzer)}
    assert stored == {each.id: each for each in run(samples)}


def _drawn(used_mib: int | None, allocated_mib: int | None, state: str) -> DeviceSample:
    used_bytes = None if used_mib is None else used_mib * MIB
    allocator = None if allocated_mib is None else AllocatorReading(allocated_mib * MIB, allocated_mib * MIB)
    memory = MemoryReading(CAPACITY, used_bytes, None, used_bytes, used_bytes)
    return msgspec.structs.replace(rank(None, state=state), memory=memory, allocator=allocator)
