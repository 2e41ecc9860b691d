"""The second lane: what can wait never delays memory, whatever its calls do."""

import threading
from collections.abc import Iterator, Sequence

import pytest

from vramscope.engine.errors import DeviceLostError
from vramscope.engine.model import DeviceActivity, DeviceHardware, DeviceSample
from vramscope.engine.sampling import sampler as sampler_module
from vramscope.engine.sampling.sampler import SourceSampler
from vramscope.engine.sources.source import DeviceReader, HardwareReading

from ...waiting import wait_until
from .sources import HandReader, HandSource

STALE_AFTER_S = 1.5


class KnowingReader(HandReader):
    """A device with clocks and limits, whose calls for them can be held."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.may_tell = threading.Event()
        self.may_tell.set()
        self.is_asked = threading.Event()
        self.hardware_error: Exception | None = None

    def read_hardware(self) -> HardwareReading:
        self.is_asked.set()
        self.may_tell.wait()
        if self.hardware_error is not None:
            raise self.hardware_error
        clock_mhz = 1000 + self.identity.index
        return HardwareReading(DeviceActivity(sm_clock_mhz=clock_mhz), DeviceHardware(power_limit_w=700.0))


class KnowingSource(HandSource):
    def __init__(self, count: int) -> None:
        super().__init__(0)
        self.knowing = [KnowingReader(index) for index in range(count)]
        self.readers = list(self.knowing)
        self.searches = 0

    def discover(self) -> Sequence[DeviceReader]:
        self.searches += 1
        return super().discover()


class Site:
    def __init__(self, source: KnowingSource) -> None:
        self.source = source
        self.sampler = SourceSampler(source, memory_interval_s=0.001, details_interval_s=0.01)

    def collect(self) -> list[DeviceSample]:
        return self.sampler.collect(STALE_AFTER_S)

    def clocks(self) -> list[int | None]:
        return [None if it.activity is None else it.activity.sm_clock_mhz for it in self.collect()]

    def wait_for_clocks(self, *expected: int | None) -> None:
        wait_until(lambda: self.clocks() == list(expected), what=f"clocks {expected}")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(KnowingSource(2))
    yield made
    made.sampler.stop()
    for reader in made.source.knowing:
        reader.may_tell.set()


def test_the_first_sample_has_it(site: Site) -> None:
    site.sampler.start()
    assert site.sampler.first_round.wait(30.0)
    site.wait_for_clocks(1000, 1001)
    assert [it.hardware for it in site.collect()] == [DeviceHardware(power_limit_w=700.0)] * 2


def test_the_first_sample_waits_for_it_no_longer_than_it_takes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_module, "SEARCH_PATIENCE_S", 60.0)
    monkeypatch.setattr(sampler_module, "FIRST_HARDWARE_S", 60.0)
    site.sampler.start()
    assert site.sampler.first_round.wait(20.0)
    assert site.clocks() == [1000, 1001]


def test_memory_is_read_while_a_call_of_it_takes_long(site: Site) -> None:
    held = site.source.knowing[0]
    held.may_tell.clear()
    site.sampler.start()
    assert held.is_asked.wait(30.0)
    before = held.calls
    wait_until(lambda: held.calls > before + 20, what="memory to be read twenty times")
    assert [it.state for it in site.collect()] == ["ok", "ok"]
    assert site.sampler.has_held_calls
    held.may_tell.set()
    site.wait_for_clocks(1000, 1001)


def test_a_call_that_hangs_costs_its_own_device_these_fields_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = site.source.knowing[0]
    held.may_tell.clear()
    site.sampler.start()
    assert held.is_asked.wait(30.0)
    monkeypatch.setattr(sampler_module, "HARDWARE_DEADLINE_S", 0.0)
    site.sampler.watch()
    monkeypatch.undo()
    site.wait_for_clocks(None, 1001)
    assert [it.state for it in site.collect()] == ["ok", "ok"]
    held.may_tell.set()
    site.wait_for_clocks(1000, 1001)


def test_devices_are_not_searched_for_during_a_call(site: Site) -> None:
    held = site.source.knowing[1]
    site.sampler.start()
    site.wait_for_clocks(1000, 1001)
    held.is_asked.clear()
    held.may_tell.clear()
    assert held.is_asked.wait(30.0)
    searches, before = site.source.searches, held.calls
    site.sampler._discover_due_s = 0.0
    wait_until(lambda: held.calls > before + 20, what="memory to be read meanwhile")
    assert site.source.searches == searches
    held.may_tell.set()
    site.sampler._discover_due_s = 0.0
    wait_until(lambda: site.source.searches > searches, what="devices to be searched for")


def test_a_plug_in_that_breaks_is_named_and_a_lost_device_is_not(site: Site) -> None:
    first, second = site.source.knowing
    first.hardware_error, second.hardware_error = ZeroDivisionError("oops"), DeviceLostError("gone")
    site.sampler.start()
    assert site.sampler.first_round.wait(30.0)
    wait_until(lambda: site.sampler.notes() == ["hand: ZeroDivisionError('oops')"], what="the note")
    assert [(it.state, it.activity, it.hardware) for it in site.collect()] == [("ok", None, None)] * 2
    first.hardware_error = second.hardware_error = None
    site.wait_for_clocks(1000, 1001)
    assert site.sampler.notes() == []


def test_what_was_read_long_ago_is_not_shown_as_current(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    held = site.source.knowing[0]
    site.sampler.start()
    site.wait_for_clocks(1000, 1001)
    held.is_asked.clear()
    held.may_tell.clear()
    assert held.is_asked.wait(30.0)
    assert site.sampler.collect(-0.02)[0].activity is None
