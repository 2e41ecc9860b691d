"""A device that hangs the driver from the start: its row says so, and all others are fresh."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.sources.test_nvml_discovery import write_gpu_folders
from tests.pretend_nvml.driver import GIB, PretendDevice, PretendDriver
from tests.vramscope.cli.running import run
from tests.waiting import wait_until
from vramscope.engine.errors import DeviceError
from vramscope.engine.model import Sample
from vramscope.engine.sampling import sampler
from vramscope.engine.sampling.live import LiveProducer
from vramscope.engine.sources.nvml import NvmlSource
from vramscope.engine.sources.nvml.source import DEVICE_DEADLINE_S
from vramscope.engine.sources.source import AbandonableCall

UNANSWERED = "a driver call has not returned for"


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "nvml-enumeration"]


@pytest.fixture(autouse=True)
def left_threads() -> Iterator[None]:
    """See that no test leaves a thread behind once its devices answer."""
    yield
    wait_until(lambda: not threads(), what="the abandoned threads to end")


@pytest.fixture
def three(pretend_nvml: PretendDriver) -> Iterator[list[PretendDevice]]:
    devices = [pretend_nvml.add_device(name=f"Card {n}", used_bytes=(n + 1) * GIB) for n in range(3)]
    yield devices
    for device in devices:
        device.release()


@pytest.fixture
def producer(nvml_source: NvmlSource) -> Iterator[LiveProducer]:
    producer = LiveProducer([nvml_source], None, node="n", interval_s=0.1, memory_interval_s=0.05)
    yield producer
    producer.stop()


def await_sample(producer: LiveProducer, condition: Callable[[Sample], bool]) -> Sample:
    found: list[Sample] = []

    def has_sample() -> bool:
        found.extend(sample for sample in producer.take() if condition(sample))
        return bool(found)

    wait_until(has_sample, what="a sample")
    return found[0]


@pytest.mark.parametrize("is_unreachable", [False, True])
def test_it_costs_its_own_row_only_and_comes_back_under_its_name(
    producer: LiveProducer,
    three: list[PretendDevice],
    monkeypatch: pytest.MonkeyPatch,
    is_unreachable: bool,
) -> None:
    monkeypatch.setattr(sampler, "PROVISIONAL_RETRY_S", 0.1)
    three[1].hang(is_unreachable=is_unreachable)
    producer.start()
    hung = await_sample(producer, lambda s: [d.state for d in s.devices] == ["ok", "stale", "ok"])
    assert [d.memory.used_bytes for d in hung.devices] == [1 * GIB, None, 3 * GIB]
    assert UNANSWERED in str(hung.devices[1].reason)
    later = await_sample(
        producer,
        lambda s: s.seq > hung.seq + 5 and [d.state for d in s.devices] == ["ok", "stale", "ok"],
    )
    assert [d.age_s is not None for d in later.devices] == [True, False, True]
    # One more is there while the driver is asked again.
    wait_until(lambda: len(threads()) == 1, what="no thread but the one that hangs")
    assert three[1].waiting == 1
    three[1].release()
    back = await_sample(producer, lambda s: all(d.state == "ok" for d in s.devices))
    assert [d.uuid for d in back.devices] == [device.uuid for device in three]
    assert back.devices[1].memory.used_bytes == 2 * GIB


def test_once_shows_the_others_and_calls_it_stale(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    for _ in range(3):
        pretend_driver.add_device()
    pretend_driver.devices[0].hang(is_unreachable=True)
    outcome = run("--once", "--json")
    assert outcome.code == 0, outcome.stderr
    assert [d["state"] for d in outcome.lines[0]["devices"]] == ["stale", "ok", "ok"]
    assert UNANSWERED in outcome.lines[0]["devices"][0]["reason"]


@pytest.mark.waits
def test_once_is_bounded_where_every_device_hangs(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    for _ in range(3):
        pretend_driver.add_device().hang()
    outcome = run("--once", "--json")
    assert [d["state"] for d in outcome.lines[0]["devices"]] == ["stale"] * 3


def test_proc_tells_who_it_is(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, three: list[PretendDevice], fake_root: Path
) -> None:
    write_gpu_folders(fake_root, pretend_nvml)
    three[0].hang()
    three[2].hang()
    found = [r.identity for r in nvml_source.discover()]
    assert [(i.uuid, i.index, i.name) for i in found] == [
        (device.uuid, index, f"Card {index}") for index, device in enumerate(three)
    ]
    assert [identity.is_provisional for identity in found] == [True, False, True]


def test_what_was_known_of_it_stays_with_its_instances(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, three: list[PretendDevice]
) -> None:
    three[1].add_instance(used_bytes=GIB)
    before = [r.identity.uuid for r in nvml_source.discover()]
    three[1].hang()
    after = nvml_source.discover()
    assert [r.identity.uuid for r in after] == before
    assert [r.identity.is_provisional for r in after] == [False, True, True, False]
    for call in (after[1].read_memory, after[2].read_details):
        with pytest.raises(DeviceError, match=UNANSWERED):
            call()


def test_it_is_asked_once_and_nvml_is_not_stopped_under_the_call(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, three: list[PretendDevice]
) -> None:
    three[1].hang()
    for _ in range(3):
        nvml_source.discover()
    nvml_source.close()
    assert three[1].waiting == 1
    assert pretend_nvml.raw.shutdowns == 0
    three[1].release()
    wait_until(lambda: not threads(), what="the call to return")
    nvml_source.close()
    assert pretend_nvml.raw.shutdowns == 1


def test_a_lost_device_beside_it_starts_nvml_anew_once_the_call_has_returned(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, three: list[PretendDevice]
) -> None:
    nvml_source.discover()
    three[0].lose()
    three[1].hang()
    nvml_source.discover()
    assert (pretend_nvml.raw.inits, pretend_nvml.raw.shutdowns) == (1, 0)
    three[1].release()
    wait_until(lambda: not threads(), what="the call to return")
    nvml_source.discover()
    assert (pretend_nvml.raw.inits, pretend_nvml.raw.shutdowns) == (2, 1)


def test_a_driver_that_wakes_slowly_is_waited_for(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, three: list[PretendDevice]
) -> None:
    for device in three:
        device.raw.delay_us = 100_000  # four calls a device
    assert [r.identity.uuid for r in nvml_source.discover()] == [device.uuid for device in three]


def test_64_hung_devices_are_not_waited_for_one_by_one(
    nvml_source: NvmlSource,
    pretend_nvml: PretendDriver,
    three: list[PretendDevice],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hung = [pretend_nvml.add_device() for _ in range(64)]
    for device in hung:
        device.hang()
    granted_s: list[float] = []
    wait = AbandonableCall.wait

    def note(self: AbandonableCall[object], timeout_s: float) -> bool:
        granted_s.append(timeout_s)
        return wait(self, timeout_s)

    monkeypatch.setattr(AbandonableCall, "wait", note)
    found = nvml_source.discover()
    assert sum(granted_s) < 64 * DEVICE_DEADLINE_S / 4
    assert [r.identity.is_provisional for r in found] == [False] * 3 + [True] * 64
    for device in hung:
        device.release()


def test_one_thread_serves_where_all_answer(
    nvml_source: NvmlSource, three: list[PretendDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    start = threading.Thread.start

    def count(self: threading.Thread) -> None:
        started.append(self.name)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", count)
    nvml_source.discover()
    assert started == ["nvml-enumeration"]
