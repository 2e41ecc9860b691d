"""Live sampling: spikes are seen, a hung call costs one device its freshness and nobody else anything."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from vramscope.engine.errors import (
    DeviceError,
    DeviceLostError,
    DriverMismatchError,
    LibraryMissingError,
    NotSupportedError,
    SourceUnavailableError,
)
from vramscope.engine.model import DeviceSample, Sample
from vramscope.engine.sampling import sampler
from vramscope.engine.sampling.live import LiveProducer
from vramscope.engine.sources.source import DeviceIdentity

from ...waiting import wait_until
from .sources import GIB, HandReader, HandSource


@contextmanager
def _running(source: HandSource, interval_s: float = 0.05) -> Iterator[LiveProducer]:
    producer = LiveProducer([source], None, node="n", interval_s=interval_s, memory_interval_s=0.01)
    producer.start()
    try:
        yield producer
    finally:
        for reader in source.readers:
            reader.may_return.set()
        source.may_discover.set()
        producer.stop()


def _next(producer: LiveProducer, condition: Callable[[Sample], object] = lambda _: True) -> Sample:
    found: list[Sample] = []

    def has_sample() -> bool:
        found.extend(sample for sample in producer.take() if condition(sample))
        return bool(found)

    wait_until(has_sample, what="a sample")
    return found[0]


def _device(sample: Sample, index: int) -> DeviceSample:
    return next(d for d in sample.devices if d.index == index)


def test_the_first_sample_already_has_every_device() -> None:
    with _running(HandSource(3)) as producer:
        sample = _next(producer)
    assert [d.uuid for d in sample.devices] == ["GPU-0", "GPU-1", "GPU-2"]
    assert [d.memory.used_bytes for d in sample.devices] == [0, GIB, 2 * GIB]
    assert all(d.state == "ok" and d.utilization_percent == 50.0 for d in sample.devices)


def test_a_spike_between_two_samples_is_seen() -> None:
    source = HandSource(1)
    with _running(source, interval_s=0.5) as producer:
        _next(producer)
        source.readers[0].used_bytes = 70 * GIB
        calls = source.readers[0].calls
        wait_until(lambda: source.readers[0].calls > calls + 2, what="the spike to be read")
        source.readers[0].used_bytes = GIB
        calls = source.readers[0].calls
        wait_until(lambda: source.readers[0].calls > calls + 2, what="the calm to be read")
        memory = _device(_next(producer), 0).memory
    assert (memory.used_bytes, memory.used_max_bytes) == (GIB, 70 * GIB)


def test_a_hung_call_makes_its_device_stale_and_leaves_the_others_fresh() -> None:
    source = HandSource(3)
    with _running(source) as producer:
        _next(producer)
        source.readers[1].may_return.clear()
        hung = _next(producer, lambda s: _device(s, 1).state == "stale")
        source.readers[2].used_bytes = 33 * GIB
        after = _next(producer, lambda s: _device(s, 2).memory.used_bytes == 33 * GIB)
        assert _device(after, 1).state == "stale"
        assert producer.has_held_calls
        source.readers[1].may_return.set()
        back = _next(producer, lambda s: _device(s, 1).state == "ok")
    assert "has not returned for" in str(_device(hung, 1).reason)
    assert _device(hung, 1).memory.used_bytes == GIB
    age_s = _device(after, 1).age_s
    assert age_s is not None
    assert age_s >= sampler.CALL_DEADLINE_S
    assert _device(back, 1).reason is None


def test_readings_from_before_a_hang_do_not_come_back_as_fresh() -> None:
    source = HandSource(2)
    with _running(source) as producer:
        _next(producer)
        source.readers[0].used_bytes = 5 * GIB
        source.readers[1].may_return.clear()
        _next(producer, lambda s: _device(s, 1).state == "stale")
        source.readers[0].may_return.clear()
        _next(producer, lambda s: _device(s, 0).state == "stale")
        source.readers[0].used_bytes = 6 * GIB
        source.readers[1].may_return.set()
        sample = _next(producer, lambda s: _device(s, 1).state == "ok")
    assert _device(sample, 0).state == "stale"
    age_s = _device(sample, 0).age_s
    assert age_s is not None
    assert age_s >= sampler.CALL_DEADLINE_S


def test_all_devices_may_hang_one_after_another() -> None:
    source = HandSource(3)
    with _running(source) as producer:
        _next(producer)
        for reader in source.readers:
            reader.may_return.clear()
        sample = _next(producer, lambda s: all(d.state == "stale" for d in s.devices))
        assert producer.has_held_calls
    assert len(sample.devices) == 3


def test_a_source_that_hangs_at_its_start_does_not_hold_the_first_sample() -> None:
    source = HandSource(2)
    source.may_discover.clear()
    with _running(source) as producer:
        sample = _next(producer, lambda s: s.notes)
        assert "has not answered for" in sample.notes[0]
        source.may_discover.set()
        found = _next(producer, lambda s: len(s.devices) == 2)
    assert found.notes == ()


def test_a_lost_device_keeps_its_place_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "RETRY_S", 0.05)
    source = HandSource(2)
    with _running(source) as producer:
        _next(producer)
        source.readers[1].error = DeviceLostError("GPU 1 fell off the bus (NVML error 15)")
        lost = _device(_next(producer, lambda s: _device(s, 1).state == "lost"), 1)
        source.readers[1].error = None
        back = _device(_next(producer, lambda s: _device(s, 1).state == "ok"), 1)
    assert lost.reason == "GPU 1 fell off the bus (NVML error 15)"
    assert (lost.memory.used_bytes, lost.memory.total_bytes) == (None, 80 * GIB)
    assert lost.utilization_percent is None
    assert back.memory.used_bytes == GIB


def test_a_device_that_tells_late_who_it_is_takes_the_place_of_its_stand_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampler, "PROVISIONAL_RETRY_S", 0.05)
    source = HandSource(2)
    reader = source.readers[1]
    reader.identity = DeviceIdentity(uuid="unknown-1", index=1, is_provisional=True)
    reader.error = DeviceError("a driver call has not returned for 1 s")
    with _running(source) as producer:
        hung = _next(producer, lambda s: len(s.devices) == 2)
        assert producer.has_held_calls
        source.readers[1] = HandReader(1)
        back = _next(producer, lambda s: _device(s, 1).state == "ok")
    assert (_device(hung, 0).state, _device(hung, 1).state) == ("ok", "stale")
    assert _device(hung, 1).reason == "a driver call has not returned for 1 s"
    assert [device.uuid for device in back.devices] == ["GPU-0", "GPU-1"]


def test_a_device_that_hung_while_it_was_looked_for_keeps_its_row_and_its_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampler, "REDISCOVER_S", 0.05)
    source = HandSource(2)
    with _running(source) as producer:
        _next(producer)
        stand_in = HandReader(1)
        stand_in.identity = replace(stand_in.identity, is_provisional=True)
        stand_in.error = DeviceError("a driver call has not returned for 1 s")
        source.readers[1] = stand_in
        hung = _device(_next(producer, lambda s: _device(s, 1).state == "stale"), 1)
        source.readers.pop()
        gone = _next(producer, lambda s: _device(s, 1).state == "lost")
        wait_until(lambda: not producer.has_held_calls, what="the lost device to be nobody's stand-in")
    assert hung.memory.used_bytes == GIB
    assert [device.uuid for device in gone.devices] == ["GPU-0", "GPU-1"]


def test_a_dead_handle_is_never_used_again() -> None:
    source = HandSource(2)
    with _running(source) as producer:
        _next(producer)
        source.readers[1].error = DeviceLostError("gone")
        _next(producer, lambda s: _device(s, 1).state == "lost")
        calls, others = source.readers[1].calls, source.readers[0].calls
        wait_until(lambda: source.readers[0].calls > others + 5, what="more rounds")
        assert source.readers[1].calls == calls


def test_a_device_the_driver_no_longer_reports_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "REDISCOVER_S", 0.05)
    source = HandSource(2)
    with _running(source) as producer:
        _next(producer)
        gone = source.readers.pop()
        sample = _next(producer, lambda s: _device(s, 1).state == "lost")
    assert gone.identity.uuid == "GPU-1"
    assert _device(sample, 1).reason == "the driver no longer reports it"


def test_a_device_that_is_gone_shares_its_number_with_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "REDISCOVER_S", 0.05)
    source = HandSource(3)
    with _running(source) as producer:
        _next(producer)
        # The driver was started again without device 1, and numbers the others on.
        last = HandReader(1)
        last.identity = replace(source.readers[2].identity, index=1)
        source.readers = [source.readers[0], last]
        sample = _next(producer, lambda s: any(it.state == "lost" for it in s.devices))
        assert {it.uuid: it.index for it in sample.devices} == {"GPU-0": 0, "GPU-2": 1, "GPU-1": 2}


def test_memory_that_is_refused_is_unsupported_and_never_zero() -> None:
    source = HandSource(1)
    source.readers[0].error = NotSupportedError("memory is not supported by this device")
    with _running(source) as producer:
        device = _device(_next(producer), 0)
    assert device.state == "unsupported"
    assert device.reason == "memory is not supported by this device"
    assert device.memory.used_bytes is None
    assert device.temperature_c == 40.0


def test_details_that_fail_leave_memory_alone() -> None:
    source = HandSource(1)
    source.readers[0].details_error = DeviceError("no")
    with _running(source) as producer:
        device = _device(_next(producer), 0)
    assert (device.state, device.memory.used_bytes, device.utilization_percent) == ("ok", 0, None)


def test_a_plug_in_that_breaks_costs_only_its_own_devices() -> None:
    broken, sound = HandSource(1), HandSource(1)
    broken.readers[0].error = ZeroDivisionError("oops")
    sound.name = "sound"
    producer = LiveProducer([broken, sound], None, node="n", interval_s=0.05, memory_interval_s=0.01)
    producer.start()
    sample = _next(producer)
    producer.stop()
    assert [d.state for d in sample.devices] == ["stale", "ok"]
    assert "hand: ZeroDivisionError('oops')" in str(sample.devices[0].reason)


def test_a_source_with_nothing_says_why_and_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "RETRY_S", 0.05)
    source = HandSource(1)
    source.error = SourceUnavailableError("no library")
    with _running(source) as producer:
        sample = _next(producer)
        assert [str(f) for f in producer.failures] == ["no library"]
        source.error = None
        found = _next(producer, lambda s: s.devices)
        assert producer.failures == []
    assert sample.notes == ("no library",)
    assert found.devices[0].state == "ok"


def test_a_library_that_is_not_installed_is_no_news_where_another_source_has_devices() -> None:
    absent, broken, simulated = HandSource(0), HandSource(0), HandSource(1)
    absent.error = LibraryMissingError("no library")
    broken.error = DriverMismatchError("the driver was replaced")
    producer = LiveProducer(
        [absent, broken, simulated], None, node="n", interval_s=0.05, memory_interval_s=0.01
    )
    producer.start()
    sample = _next(producer)
    producer.stop()
    assert sample.notes == ("the driver was replaced",)


def test_stopping_does_not_wait_for_a_hung_call() -> None:
    source = HandSource(1)
    with _running(source) as producer:
        _next(producer)
        source.readers[0].may_return.clear()
        _next(producer, lambda s: _device(s, 0).state == "stale")
        producer.stop()
        assert not source.is_closed
