"""What is read and counted node by node is what would be read and counted of all at once."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.analyzers.fleet.nodes import make_node
from vramscope.analyzers.fleet.fleet import (
    Census,
    Fleet,
    add_up,
    count_devices,
    group_fleet,
    read_devices,
    read_node,
)
from vramscope.analyzers.fleet.model import SORTS, group_devices
from vramscope.engine.model import DeviceSample, MemoryReading, RankSample, Sample
from vramscope.engine.viewer.snapshot import Snapshot

_BYTES = st.none() | st.integers(0, 80)
_DEVICES = st.builds(
    DeviceSample,
    uuid=st.sampled_from(["GPU-0000", "GPU-0001", "GPU-0002"]),
    index=st.integers(0, 1),
    state=st.sampled_from(["ok", "stale", "lost", "ended"]),
    age_s=st.none() | st.floats(0, 100),
    memory=st.builds(MemoryReading, total_bytes=_BYTES, used_bytes=_BYTES),
)
_RANKS = st.builds(
    RankSample,
    pid=st.integers(9000, 9002),
    job=st.none() | st.just("a"),
    device_uuid=st.sampled_from(["GPU-0000", "GPU-0001"]),
    state=st.sampled_from(["ok", "stale"]),
)
_SAMPLES = st.builds(
    Sample,
    node=st.just("n1"),
    seq=st.integers(0, 3),
    time_s=st.floats(0, 100),
    interval_s=st.just(1.0),
    devices=st.lists(_DEVICES, max_size=3, unique_by=lambda it: it.uuid).map(tuple),
    ranks=st.lists(_RANKS, max_size=2).map(tuple),
)


@given(_SAMPLES, _SAMPLES, _BYTES, st.booleans(), st.sampled_from(["live", "lost"]))
def test_a_node_that_is_read_on_is_as_one_that_is_read_anew(
    first: Sample, second: Sample, used_bytes: int | None, is_alike: bool, connection: str
) -> None:
    told = make_node("n1", 2, level="low", oom=0)
    before = msgspec.structs.replace(told, sample=first)
    if is_alike:  # as mostly: nothing but memory has changed
        memory = MemoryReading(80, used_bytes)
        devices = tuple(
            msgspec.structs.replace(
                it, memory=msgspec.structs.replace(memory, total_bytes=it.memory.total_bytes)
            )
            for it in first.devices
        )
        second = msgspec.structs.replace(first, devices=devices, time_s=first.time_s + 1.0)
    now = msgspec.structs.replace(before, sample=second, connection=connection)
    assert read_node(now, read_node(before)).devices == read_devices(now)


def _make_fleet(*snapshots: Snapshot) -> Fleet:
    fleet = Fleet()
    for snapshot in snapshots:
        fleet.note(snapshot, 0.0)
    return fleet


def test_nodes_are_grouped_and_counted_as_their_devices_are() -> None:
    lost = msgspec.structs.replace(make_node("n2", 3, level="high"), connection="lost", reason="cut")
    fleet = _make_fleet(make_node("n10", 8, oom=5), lost, make_node("n1", 2, level="low"), make_node("n3"))
    picture = fleet.picture
    for sort in SORTS:
        assert group_fleet(picture, "node", sort) == group_devices(picture.devices, "node", sort)
    whole = count_devices(picture.devices)
    assert picture.census == whole
    assert (whole.present, whole.unknown, len(whole.grave)) == (18, 15, 4)
    assert add_up([]) == Census()


def test_a_picture_stays_as_it_is_and_a_node_without_devices_has_a_group() -> None:
    fleet = _make_fleet(make_node("n10", 1), Snapshot(node="n2"))
    picture = fleet.picture
    fleet.note(make_node("n10", 4), 1.0)
    groups = group_fleet(picture, "node", "name")
    assert [(group.name, len(group.devices)) for group in groups] == [("n2", 0), ("n10", 1)]
    assert len(fleet.picture.devices) == 4
