"""The hardware of a device in words: all that is known, what is wrong, and what is not reported."""

import pytest
from msgspec.structs import replace

from tests.tui.canned import make_device, make_sample, make_snapshot
from vramscope.engine.history import History
from vramscope.engine.model import DeviceActivity, DeviceHardware, DeviceSample
from vramscope.tui.device.hardware import draw_hardware
from vramscope.tui.draw.glyphs import UNICODE
from vramscope.tui.draw.spans import line_text
from vramscope.tui.live.device_lines import draw_memory, draw_surround
from vramscope.tui.widgets.device_fields import facts, metrics
from vramscope.tui.widgets.device_view import build_views, measure_widths

BUSY = DeviceActivity(
    memory_bandwidth_percent=41.0,
    sm_clock_mhz=1755,
    memory_clock_mhz=2619,
    performance_state=0,
    throttle_reasons=("power cap",),
    pcie_sent_bytes_per_s=12e6,
    pcie_received_bytes_per_s=34e6,
    nvlink_sent_bytes_per_s=80e9,
    nvlink_received_bytes_per_s=79e9,
)
SOUND = DeviceHardware(
    driver_version="580.95.05",
    cuda_version="13.0",
    power_limit_w=700.0,
    sm_clock_max_mhz=1980,
    memory_clock_max_mhz=2619,
    fan_percent=40.0,
    compute_mode="default",
    pcie_generation=5,
    pcie_lanes=16,
    is_ecc_on=True,
    ecc_corrected=1234,
    ecc_uncorrected=0,
    remapped_rows=2,
    is_repair_pending=False,
)


def make(activity: DeviceActivity | None = BUSY, hardware: DeviceHardware | None = SOUND) -> DeviceSample:
    return replace(make_device(0), activity=activity, hardware=hardware)


def words_of(device: DeviceSample, width: int = 140) -> str:
    lines = ["".join(span.text for span in line) for line in draw_hardware(device, width)]
    assert all(len(line.rstrip()) <= width for line in lines)
    return " ".join(" ".join(lines).split())


def facts_of(device: DeviceSample) -> list[str]:
    (view,) = build_views(make_snapshot(sample=make_sample((device,))), [device], History(), None)
    found = facts(view, measure_widths([view]), UNICODE)
    return ["".join(span.text for span in fact) for fact in found]


def test_everything_that_is_known_is_on_the_line_of_its_subject_with_its_unit() -> None:
    lines = [line_text(line) for line in draw_hardware(make(), 140)]
    assert [" ".join(line.split()) for line in lines] == [
        "clocks SM clock 1,755 of 1,980 MHz memory clock 2,619 of 2,619 MHz performance state P0 "
        "clocks lowered by power cap",
        "power power cap 700 W fan 40 %",
        "traffic memory bandwidth 41 % PCIe sent 11 MiB/s PCIe received 32 MiB/s NVLink sent 74.5 GiB/s "
        "NVLink received 73.6 GiB/s",
        "PCIe generation 5 PCIe lanes 16",
        "errors ECC on corrected errors 1,234 uncorrected errors 0 remapped rows 2",
        "software driver 580.95.05 CUDA 13.0 compute mode default",
    ]
    values = {len(line) - len(line[14:].lstrip()) for line in lines}
    assert values == {14}, "all begin in one column"
    assert "clocks lowered no" in words_of(make(replace(BUSY, throttle_reasons=())))


@pytest.mark.parametrize("width", [40, 78, 200])
def test_it_fits_panes_of_any_width(width: int) -> None:
    assert words_of(make(), width).endswith("compute mode default")


def test_what_the_driver_does_not_report_is_named_and_is_not_zero() -> None:
    words = words_of(make(DeviceActivity(sm_clock_mhz=1755), DeviceHardware(is_ecc_on=False)))
    shown, _, missing = words.partition(" not reported ")
    assert shown == "clocks SM clock 1,755 MHz errors ECC off"
    assert "fan" in missing
    assert "NVLink sent" in missing
    assert "0" not in missing
    assert "errors" not in missing, "without ECC there is nothing to count"


def test_a_source_without_any_of_it_has_no_section() -> None:
    assert draw_hardware(make(None, None), 100) == []


def test_an_older_gpu_has_retired_pages() -> None:
    words = words_of(make(hardware=replace(SOUND, remapped_rows=None, retired_pages=7)))
    assert "retired pages 7" in words
    assert "remapped" not in words


def test_clocks_bandwidth_and_fan_are_the_last_facts_of_a_line() -> None:
    assert facts_of(make())[-3:] == ["SM 1,755 MHz", "bandwidth  41 %", "fan 40 %"]


def test_the_power_is_next_to_its_limit_and_all_are_as_wide() -> None:
    devices = [replace(make(), power_w=95.0), replace(make(hardware=None), power_w=612.0), make(None, None)]
    views = build_views(make_snapshot(sample=make_sample(tuple(devices))), devices, History(), None)
    widths = measure_widths(views)
    lines = [line_text(metrics(view, widths, UNICODE)) for view in views]
    assert lines[0].endswith("   95/700 W")
    assert lines[1].endswith("      612 W")
    assert len({*map(len, lines)}) == 1


def test_faults_come_first_and_a_power_cap_that_is_reached_is_none() -> None:
    hot = replace(BUSY, throttle_reasons=("hardware thermal slowdown", "power cap"))
    broken = replace(SOUND, ecc_uncorrected=1, is_repair_pending=True)
    assert facts_of(make(hot, broken))[:3] == [
        "1 uncorrected ECC error",
        "memory repair waits for a reset of the GPU",
        "clocks lowered: hardware thermal slowdown",
    ]
    assert "repair waits for a reset of the GPU" in words_of(make(hot, broken))
    assert not any("lowered" in fact or "ECC" in fact for fact in facts_of(make()))


@pytest.mark.parametrize(("width", "rows", "is_shown"), [(200, 3, True), (120, 2, False)])
def test_a_panel_of_three_rows_has_clock_bandwidth_and_fan_next_to_its_name(
    width: int, rows: int, is_shown: bool
) -> None:
    (view,) = build_views(make_snapshot(sample=make_sample((make(),))), [make()], History(), None)
    widths = measure_widths([view])
    first, *others = draw_surround(view, widths, width, rows, glyphs=UNICODE)
    lines = [first, draw_memory(view, widths, width, rows, glyphs=UNICODE), *others]
    texts = [line_text(line) for line in lines]
    assert texts[0].rstrip().endswith("SM 1,755 MHz   bandwidth  41 %   fan 40 %") is is_shown
    assert sum("1,755 MHz" in text for text in texts) == is_shown
    assert any("/700 W" in text for text in texts)


@pytest.mark.parametrize(
    ("name", "word"), [("NVIDIA H100", "SM"), ("AMD Instinct MI300X", "clock"), ("Intel Arc A770", "clock")]
)
def test_only_a_gpu_of_nvidia_has_an_sm_clock(name: str, word: str) -> None:
    device = replace(make(), name=name)
    assert any(fact.startswith(f"{word} 1,") for fact in facts_of(device))
    assert ("SM" in words_of(device)) is (word == "SM")


def test_an_amd_gpu_is_asked_for_nothing_that_only_nvidia_has() -> None:
    activity = DeviceActivity(sm_clock_mhz=2101, memory_clock_mhz=1300)
    shown = words_of(replace(make(activity, DeviceHardware()), name="AMD Instinct MI300X"))
    assert shown.startswith("clocks core clock 2,101 MHz memory clock 1,300 MHz")
    assert "not reported" in shown
    for word in ("NVLink", "CUDA", "compute mode", "performance state", "SM"):
        assert word not in shown


def test_links_of_xgmi_are_shown_where_they_were_measured_and_asked_of_nobody_else() -> None:
    amd = replace(make(DeviceActivity(sm_clock_mhz=2101), DeviceHardware()), name="AMD Instinct MI300X")
    assert "XGMI" not in words_of(amd)
    assert "XGMI" not in words_of(make())
    idle = DeviceActivity(xgmi_sent_bytes_per_s=0.0, xgmi_received_bytes_per_s=150e9)
    shown, _, missing = words_of(replace(amd, activity=idle)).partition(" not reported ")
    assert "XGMI sent 0 B/s XGMI received 139.7 GiB/s" in shown
    assert "XGMI" not in missing
    reset = DeviceActivity(xgmi_sent_bytes_per_s=None, xgmi_received_bytes_per_s=150e9)
    assert "XGMI sent" in words_of(replace(amd, activity=reset)).partition(" not reported ")[2]
