"""XIDs by NVML's event set: each once, with its device, through a restart of the library."""

from tests.engine.sources.conftest import SteppedClock
from tests.pretend_nvml.driver import PretendDriver
from vramscope.engine.model import DeviceEvent
from vramscope.engine.sources.nvml import NvmlSource
from vramscope.engine.sources.nvml.reader import NvmlReader


def read_all(source: NvmlSource) -> list[tuple[str | None, int | None]]:
    for reader in source.discover():
        assert isinstance(reader, NvmlReader)
        reader.read_hardware()
    return [(event.device_uuid, event.code) for event in source.take_events()]


def test_an_xid_is_reported_once_with_its_device(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver
) -> None:
    devices = [pretend_nvml.add_device() for _ in range(2)]
    devices[0].report_xid(13)
    assert read_all(nvml_source) == [], "it was before anybody watched"
    devices[1].report_xid(31)
    devices[1].report_xid(45)
    assert read_all(nvml_source) == [(devices[1].uuid, 31), (devices[1].uuid, 45)]
    assert read_all(nvml_source) == []


def test_devices_are_watched_again_after_the_library_was_restarted(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, stepped_clock: SteppedClock
) -> None:
    device = pretend_nvml.add_device()
    pretend_nvml.add_device().lose()
    read_all_but_lost(nvml_source)
    inits = pretend_nvml.raw.inits
    stepped_clock.now_s += 60.0
    read_all_but_lost(nvml_source)
    assert pretend_nvml.raw.inits > inits
    device.report_xid(94)
    assert [event.code for event in read_all_but_lost(nvml_source)] == [94]


def read_all_but_lost(source: NvmlSource) -> list[DeviceEvent]:
    for reader in source.discover():
        if isinstance(reader, NvmlReader):
            reader.read_hardware()
    return source.take_events()
