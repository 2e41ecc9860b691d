"""Errors of drivers on their way into samples: placed, once, for a minute."""

import time
from pathlib import Path

from msgspec.structs import replace

from tests.analyzers.samples import device
from tests.pretend_nvml.driver import PretendDriver
from tests.waiting import wait_until
from vramscope.engine.model import DeviceEvent, Sample
from vramscope.engine.sampling.events import RecentEvents
from vramscope.engine.sampling.live import open_node
from vramscope.engine.sources.kernel_log import KernelLog

ADDRESS = "0000:41:00.0"


def event(time_s: float, *, source: str = "kernel log", **changes: object) -> DeviceEvent:
    made = DeviceEvent(time_s=time_s, kind="xid", source="kernel log", code=79, pci_address="0000:41:00")
    return replace(made, source=source, **changes)


def collect(recent: RecentEvents, now_s: float, *events: DeviceEvent) -> tuple[DeviceEvent, ...]:
    return recent.collect([replace(device(), pci_address=ADDRESS), device(index=1)], events, now_s)


def test_an_event_gets_the_device_at_its_address_and_stays_for_a_minute(tmp_path: Path) -> None:
    recent = RecentEvents(KernelLog(tmp_path))
    assert collect(recent, 100.0) == ()
    [placed] = collect(recent, 101.0, event(100.5))
    assert placed.device_uuid == "GPU-0"
    assert collect(recent, 160.0) == (placed,)
    assert collect(recent, 161.0) == ()


def test_what_both_sources_report_is_one_event_in_the_words_of_the_log(tmp_path: Path) -> None:
    told = event(100.0, text="fallen off", pid=7)
    by_nvml = event(103.5, source="nvml", device_uuid="GPU-0", pci_address=ADDRESS)
    for order in ((told, by_nvml), (by_nvml, told)):
        recent = RecentEvents(KernelLog(tmp_path))
        [kept] = collect(recent, 104.0, *order)
        assert (kept.source, kept.pid) == ("kernel log", 7)
    recent = RecentEvents(KernelLog(tmp_path))
    assert len(collect(recent, 130.0, told, replace(by_nvml, time_s=130.0))) == 2, "half a minute later"


def test_a_flood_is_cut_to_the_newest(tmp_path: Path) -> None:
    recent = RecentEvents(KernelLog(tmp_path))
    kept = collect(recent, 100.0, *(event(100.0, code=number) for number in range(100)))
    assert [it.code for it in kept] == list(range(84, 100))


def test_an_event_of_a_device_that_is_not_listed_keeps_its_address(tmp_path: Path) -> None:
    [kept] = collect(RecentEvents(KernelLog(tmp_path)), 100.0, event(100.0, pci_address="0000:99:00"))
    assert (kept.device_uuid, kept.pci_address) == (None, "0000:99:00")


def test_a_live_sample_has_what_the_kernel_log_says_of_its_device(
    tmp_path: Path, pretend_nvml: PretendDriver
) -> None:
    card = pretend_nvml.add_device()
    (tmp_path / "proc").mkdir()
    (tmp_path / "dev").mkdir()
    log = tmp_path / "dev/kmsg"
    log.write_text("")
    producer = open_node(interval_s=0.1, memory_interval_s=0.05, has_plugins=False, root=tmp_path)
    producer.start()
    taken: list[Sample] = []

    def has_events() -> bool:
        taken.extend(producer.take())
        if taken and not log.read_text():
            now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
            log.write_text(f"3,1,{now_us},-;NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n")
        return bool(taken) and bool(taken[-1].events)

    try:
        wait_until(has_events, what="the XID")
    finally:
        producer.stop()
    [found] = taken[-1].events
    assert (found.device_uuid, found.code) == (card.uuid, 79)
