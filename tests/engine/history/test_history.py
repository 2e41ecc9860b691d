"""History answers what a screen asks, stays within its budget, and survives the way through a hub."""

import math
from array import array

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.engine.errors import WireError
from vramscope.engine.history import HOST_KEY, History, HistoryBlock
from vramscope.engine.history.history import BucketView
from vramscope.engine.model import DeviceSample, DeviceState, HostSample, MemoryReading, Sample

from ..agent.hubs import GIB, make_sample

MIB = 1024**2


def _sample(seq: int, used: int | None, *, step_s: float = 1.0, uuid: str = "GPU-a") -> Sample:
    free = None if used is None else 79 * GIB - used
    memory = MemoryReading(80 * GIB, used, free, used, used)
    state: DeviceState = "ok" if used is not None else "stale"
    device = DeviceSample(uuid=uuid, index=0, state=state, memory=memory, utilization_percent=50.0)
    return Sample(node="n", seq=seq, time_s=1000.0 + seq * step_s, interval_s=step_s, devices=(device,))


@given(st.lists(st.one_of(st.none(), st.integers(0, 80 * GIB)), min_size=1, max_size=60), st.integers(1, 20))
def test_columns_are_the_least_the_most_and_the_last_of_each_bucket(
    useds: list[int | None], bucket: int
) -> None:
    history = History()
    for seq, used in enumerate(useds):
        history.add(_sample(seq, used))
    end_s = 1000.0 + len(useds) - 1
    for _ in range(2):  # the first answer is built from the ring, the second from the view kept up to date
        columns = history.columns("GPU-a", "used", end_s, float(bucket), 5)
        for offset in range(5):
            index = int(end_s // bucket) - 4 + offset
            inside = [
                u for seq, u in enumerate(useds) if u is not None and int((1000 + seq) // bucket) == index
            ]
            assert columns.minimum[offset] == (min(inside) if inside else None)
            assert columns.maximum[offset] == (max(inside) if inside else None)
            assert columns.last[offset] == (inside[-1] if inside else None)


def test_a_view_kept_up_to_date_equals_one_built_anew() -> None:
    kept, late = History(), History()
    kept.columns("GPU-a", "used", 1000.0, 3.0, 10)
    for seq in range(50):
        kept.add(_sample(seq, (seq * 37 % 11) * GIB))
        late.add(_sample(seq, (seq * 37 % 11) * GIB))
    assert kept.columns("GPU-a", "used", 1049.0, 3.0, 20) == late.columns("GPU-a", "used", 1049.0, 3.0, 20)


def test_stale_readings_are_not_drawn_as_if_measured() -> None:
    history = History()
    history.add(_sample(0, 5 * GIB))
    stale = msgspec.structs.replace(_sample(1, 5 * GIB).devices[0], state="stale")
    history.add(msgspec.structs.replace(_sample(1, None), devices=(stale,)))
    assert history.columns("GPU-a", "used", 1001.0, 1.0, 2).last == [5 * GIB, None]


def test_a_full_history_of_eight_devices_fits_in_four_mebibytes() -> None:
    history = History(fine_ticks=3600, coarse_ticks=600)
    block = _full_block(history, minutes=600)
    fine = sum(len(c) for device in block.fine.values() for c in device.values())
    coarse = sum(len(c) for device in block.coarse.values() for c in device.values())
    ticks = sum(len(c) for c in block.fine_ticks.values()) + sum(len(c) for c in block.coarse_ticks.values())
    week = 7 * 24 * 60 / 600
    assert fine > 3600 * 8 * 20
    assert fine + (coarse + ticks) * week <= 4 * MIB


def _full_block(history: History, minutes: int) -> HistoryBlock:
    for seq in range(3600):
        step_s = 60.0 * (minutes + 2) / 3600
        devices = tuple(_sample(seq, seq, uuid=f"GPU-{n}").devices[0] for n in range(8))
        sample = Sample(node="n", seq=seq, time_s=seq * step_s, interval_s=step_s, devices=devices)
        history.add(sample)
    return history.block()


def test_minutes_remain_when_ticks_are_gone() -> None:
    history = History(fine_ticks=60, coarse_ticks=100)
    for seq in range(600):
        history.add(_sample(seq, seq * MIB))
    columns = history.columns("GPU-a", "used", 1599.0, 60.0, 10)
    assert columns.maximum[-1] == 599 * MIB
    assert columns.maximum[2] is not None
    assert columns.minimum[2] == min(s for s in range(600) if int((1000 + s) // 60) == 1599 // 60 - 7) * MIB
    assert history.peak("GPU-a") == (599 * MIB, 1599.0)
    assert history.span_s("GPU-a") > 500


@pytest.mark.parametrize("ticks", [100, 3])
@pytest.mark.parametrize("has_peaks", [True, False])
def test_a_late_viewer_knows_when_a_peak_was_though_minutes_do_not(ticks: int, has_peaks: bool) -> None:
    hub, late = History(fine_ticks=ticks), History()
    for seq in range(100):
        hub.add(_sample(seq, 50 * MIB if seq == 17 else seq % 10))
    block = msgspec.msgpack.decode(msgspec.msgpack.encode(hub.block()), type=HistoryBlock)
    # An older hub tells no peaks: the ticks know, as far as they reach.
    late.extend(block if has_peaks else msgspec.structs.replace(block, peaks={}))
    seen_s = 1017.0 if has_peaks or ticks == 100 else 960.0
    assert late.peak("GPU-a") == (50 * MIB, seen_s)


def test_a_peak_of_a_hub_that_cannot_be_is_not_taken() -> None:
    hub, late = History(), History()
    hub.add(_sample(0, 5 * MIB))
    block = msgspec.structs.replace(hub.block(), peaks={"GPU-a": (9 * MIB, math.nan), "GPU-x": (1, 2.0)})
    late.extend(block)
    assert (late.peak("GPU-a"), late.peak("GPU-x")) == ((5 * MIB, 1000.0), None)


@settings(max_examples=30)
@given(st.integers(0, 80), st.integers(0, 80))
def test_a_late_viewer_ends_with_what_an_early_one_has(seen: int, more: int) -> None:
    hub, early, late = History(), History(), History()
    for seq in range(seen + more):
        sample = _sample(seq, seq * MIB if seq % 7 else None)
        hub.add(sample)
        early.add(sample)
        if seq < seen // 2:
            late.add(sample)
    late.extend(msgspec.msgpack.decode(msgspec.msgpack.encode(hub.block()), type=HistoryBlock))
    ends = (1000.0 + seen + more, 1.0, 200)
    assert late.columns("GPU-a", "used", *ends) == early.columns("GPU-a", "used", *ends)
    assert late.peak("GPU-a") == early.peak("GPU-a")
    assert late.last_seq == early.last_seq


@pytest.mark.parametrize("capacity", [60, 40])
def test_who_has_the_beginning_is_told_what_follows_though_the_clock_was_set_back(capacity: int) -> None:
    hub, late = History(fine_ticks=capacity), History()
    for seq in range(60):
        sample = make_sample(seq)
        hub.add(sample if seq < 45 else msgspec.structs.replace(sample, time_s=sample.time_s - 3600.0))
        if seq <= 40:
            late.add(sample)
    block = hub.block(since_seq=40)
    late.extend(block)
    assert [sample.seq for sample in late.samples()] == list(range(60))
    assert (
        len(block.fine_ticks["seq"]) == 20 * 8
    )  # what is known there, but for the newest, is not sent again


def test_samples_come_back_with_every_field_the_ring_keeps() -> None:
    history = History()
    sample = make_sample(1, 12.0, driver_gib=0.6)
    history.add(sample)
    (back,) = history.samples()
    assert back.devices[0].memory == sample.devices[0].memory
    assert math.isclose(back.time_s, 1001.0)


def test_free_that_was_not_measured_is_not_worked_out() -> None:
    history = History()
    device = msgspec.structs.replace(
        make_sample(1).devices[0], memory=MemoryReading(total_bytes=80 * GIB, used_bytes=GIB)
    )
    history.add(msgspec.structs.replace(make_sample(1), devices=(device,)))
    (back,) = history.samples()
    assert back.devices[0].memory.free_bytes is None


def test_columns_of_unequal_length_are_refused() -> None:
    history = History()
    history.add(make_sample(1))
    block = history.block()
    fine = {"GPU-a": dict(block.fine["GPU-a"]) | {"used": b"\0" * 16}}
    with pytest.raises(WireError, match="history cannot be read"):
        History().extend(msgspec.structs.replace(block, fine=fine))


def test_the_host_is_remembered_beside_the_devices_and_handed_on() -> None:
    hub, early, late = History(), History(), History()
    early.add(_hosted(1))
    for seq in range(1, 6):
        hub.add(_hosted(seq))
    for viewer in (early, late):
        viewer.extend(hub.block())
        assert viewer.columns(HOST_KEY, "used", 1005.0, 1.0, 5).last == [seq * GIB for seq in range(1, 6)]
    assert [s.host.used_bytes if s.host else None for s in late.samples()][-1] == 5 * GIB
    assert [d.uuid for d in next(late.samples()).devices] == ["GPU-a"]


def _hosted(seq: int) -> Sample:
    host = HostSample(total_bytes=64 * GIB, used_bytes=seq * GIB)
    return msgspec.structs.replace(make_sample(seq), host=host)


def test_a_viewer_reads_the_wide_columns_of_an_older_hub_and_goes_on() -> None:
    hub, late = History(), History()
    for seq in range(3):
        hub.add(_sample(seq, seq * GIB))
    block = hub.block()
    narrow = block.fine["GPU-a"]
    wide = array("q", [seq * GIB for seq in range(3)]).tobytes()
    older = {name: data for name, data in narrow.items() if name != "used/512"} | {"used": wide}
    late.extend(msgspec.structs.replace(block, fine={"GPU-a": older}))
    late.add(_sample(3, 3 * GIB))
    assert len(narrow["used/512"]) == len(wide) // 2
    assert late.columns("GPU-a", "used", 1003.0, 1.0, 4).last == [seq * GIB for seq in range(4)]


def test_a_view_keeps_no_more_buckets_than_are_asked_for_and_some_spare() -> None:
    history = History()
    history.columns("GPU-a", "used", 1000.0, 1.0, 100)
    for seq in range(3000):
        history.add(_sample(seq, seq * GIB % (70 * GIB)))
    (view,) = history._views["GPU-a", "used"].values()
    assert [len(cells) for cells in view._cells] == [126] * 3


def test_a_moment_that_is_past_is_drawn_as_it_was_while_more_is_seen() -> None:
    """So a paused view: what it shows gets older, and must not vanish."""
    history = History()
    for seq in range(200):
        history.add(_sample(seq, seq * MIB))
    paused = history.columns("GPU-a", "used", 1199.0, 1.0, 100)
    assert None not in paused.last
    for seq in range(200, 1500):
        history.add(_sample(seq, seq * MIB))
        assert history.columns("GPU-a", "used", 1199.0, 1.0, 100) == paused


@given(
    st.lists(st.tuples(st.integers(-40, 40), st.integers(0, 99)), min_size=1, max_size=60), st.integers(1, 30)
)
def test_a_view_says_of_a_bucket_what_it_was_told_or_nothing(
    readings: list[tuple[int, int]], capacity: int
) -> None:
    """Whatever the clock does: it may be set back and forth."""
    view = BucketView(1.0, capacity)
    told: dict[int, list[int]] = {}
    for index, value in readings:
        view.add(float(index), value, value, value)
        told.setdefault(index, []).append(value)
    newest = readings[-1][0]
    columns = view.columns(float(newest), 100)
    assert columns.last[-1] == readings[-1][1]
    for at, last in enumerate(columns.last):
        if last is not None:
            values = told[newest - 99 + at]
            assert last == values[-1]
            assert columns.minimum[at] in values
            assert columns.maximum[at] in values
