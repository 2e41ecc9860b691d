"""What a scrape reads of devices, processes, forecasts and findings, and what it does not."""

import msgspec
import pytest

from tests.exporters.prometheus.scraped import make_picture, make_training, scrape
from tests.tui.canned import NODE, make_device, make_finding, make_sample, make_snapshot
from tests.tui.canned_ranks import make_allocator, make_simulated
from vramscope.engine.model import (
    DeviceActivity,
    DeviceAllocation,
    DeviceHardware,
    MemoryReading,
    ProcessOwner,
    ProcessReading,
)
from vramscope.engine.units import GIB
from vramscope.exporters.recording.openmetrics import FAMILIES


def test_figures_have_the_names_of_recordings_and_the_labels_of_their_device() -> None:
    told = scrape(make_picture(make_training()))
    (labels,) = [it for it in told.labels("vramscope_device_used_bytes") if it["device"] == "1"]
    assert labels == {"node": NODE, "device": "1", "uuid": "GPU-0001"}
    recorded = {it.name + ("_total" if it.kind == "counter" else "") for it in FAMILIES}
    assert recorded <= told.names


def test_clocks_limits_and_errors_are_told_in_base_units() -> None:
    activity = DeviceActivity(
        memory_bandwidth_percent=25.0,
        sm_clock_mhz=1755,
        performance_state=2,
        throttle_reasons=("power cap",),
        pcie_sent_bytes_per_s=12e6,
        xgmi_sent_bytes_per_s=1.5e11,
        xgmi_received_bytes_per_s=0.0,
    )
    hardware = DeviceHardware(
        driver_version="580.95.05",
        cuda_version="13.0",
        power_limit_w=700.0,
        fan_percent=40.0,
        compute_mode="default",
        ecc_corrected=12,
        remapped_rows=2,
        is_repair_pending=False,
    )
    device = msgspec.structs.replace(make_device(0), activity=activity, hardware=hardware)
    told = scrape(make_picture(make_snapshot(sample=make_sample((device, make_device(1))))))
    expected = {
        "memory_bandwidth_ratio": 0.25,
        "sm_clock_hertz": 1.755e9,
        "performance_state": 2,
        "pcie_sent_bytes_per_second": 12e6,
        "xgmi_sent_bytes_per_second": 1.5e11,
        "xgmi_received_bytes_per_second": 0,
        "power_limit_watts": 700,
        "fan_ratio": 0.4,
        "ecc_corrected_errors_total": 12,
        "remapped_rows": 2,
        "repair_pending": 0,
    }
    assert {name: told.of(f"vramscope_device_{name}") for name in expected} == {
        name: [value] for name, value in expected.items()
    }, "and nothing of the device that has none of it"
    assert told.of("vramscope_device_throttled", reason="power cap") == [1]
    assert told.of("vramscope_device_throttled", reason="thermal slowdown") == [0]
    (info,) = told.labels("vramscope_device_driver_info")
    assert (info["driver_version"], info["cuda_version"], info["compute_mode"]) == (
        "580.95.05",
        "13.0",
        "default",
    )
    silent = {"memory_clock_hertz", "nvlink_sent_bytes_per_second", "retired_pages"}
    assert not {f"vramscope_device_{name}" for name in silent} & told.names


def test_a_process_is_told_by_rank_with_its_place_in_the_layout() -> None:
    told = scrape(make_picture(make_training()))
    assert told.of("vramscope_rank_allocated_bytes", rank="1") == [51 * GIB]
    assert told.of("vramscope_rank_steps_total", rank="1", pid="4010") == [1842]
    (info,) = [it for it in told.labels("vramscope_rank_info") if it["rank"] == "1"]
    assert (info["tp"], info["pp"], info["world_size"], info["simulated"]) == ("1", "0", "2", "false")


def test_a_forecast_is_told_from_the_moment_of_the_scrape_on() -> None:
    told = scrape(make_picture(make_training(), age_s=2.0))
    assert told.of("vramscope_oom_risk_level", rank="1", level="high") == [1]
    assert told.of("vramscope_oom_risk_level", rank="1", level="low") == [0]
    assert told.of("vramscope_oom_probability_ratio", rank="1") == [0.4]
    assert told.of("vramscope_oom_in_seconds", rank="1") == [88.0]
    assert told.of("vramscope_oom_in_seconds", rank="0") == []


def test_open_findings_are_counted_and_closed_ones_are_not() -> None:
    findings = (make_finding(0), make_finding(0, opened_s=5.0), make_finding(1, closed_s=9.0))
    told = scrape(make_picture(make_snapshot(2, findings=findings)))
    assert told.of("vramscope_findings", kind="pressure") == [2]


def test_a_lost_device_stays_and_says_so_without_old_figures() -> None:
    lost = msgspec.structs.replace(make_device(1), state="lost", reason="fell off the bus", age_s=40.0)
    told = scrape(make_picture(make_snapshot(sample=make_sample((make_device(0), lost)))))
    assert told.of("vramscope_device_up", device="0") == [1]
    assert told.of("vramscope_device_up", device="1") == [0]
    assert told.of("vramscope_device_age_seconds", device="1") == [40.5]
    measured = [name for name in told.names if name.startswith("vramscope_device") and "capacity" in name]
    assert measured
    assert [told.of(name, device="1") for name in measured] == [[]]


@pytest.mark.parametrize("is_lost", [True, False])
def test_an_agent_that_is_silent_leaves_no_figures_of_the_past(is_lost: bool) -> None:
    snapshot = make_training()
    if is_lost:
        snapshot = msgspec.structs.replace(snapshot, connection="lost")
    told = scrape(make_picture(snapshot, age_s=1.0 if is_lost else 60.0))
    assert told.of("vramscope_agent_up") == [0]
    assert told.of("vramscope_device_up") == [0, 0]
    assert not {"vramscope_device_used_bytes", "vramscope_rank_up", "vramscope_oom_risk_level"} & told.names


def test_what_is_unmeasured_has_no_series_and_is_not_zero() -> None:
    bare = msgspec.structs.replace(
        make_device(0), memory=MemoryReading(used_bytes=GIB), temperature_c=None, age_s=None
    )
    told = scrape(make_picture(make_snapshot(sample=make_sample((bare,)))))
    assert told.of("vramscope_device_used_bytes") == [GIB]
    silent = {"capacity_bytes", "free_bytes", "temperature_celsius", "age_seconds"}
    assert not {f"vramscope_device_{name}" for name in silent} & told.names


def test_a_modelled_card_is_labelled_so() -> None:
    devices, ranks = make_simulated()
    sample = msgspec.structs.replace(make_sample(tuple(devices)), ranks=tuple(ranks))
    told = scrape(make_picture(make_snapshot(sample=sample)))
    assert {it["kind"] for it in told.labels("vramscope_device_info")} == {"simulated"}
    assert {it["device"] for it in told.labels("vramscope_device_used_bytes")} == {"sim0", "sim1"}
    assert {it["simulated"] for it in told.labels("vramscope_rank_info")} == {"true"}


def test_a_process_that_ended_leaves_its_counters_as_a_last_word() -> None:
    devices, ranks = make_simulated(1)
    allocator = make_allocator(50.0, ooms=1)
    ended = msgspec.structs.replace(ranks[0], state="ended", allocator=allocator)
    card = msgspec.structs.replace(devices[0], state="ended")
    sample = msgspec.structs.replace(make_sample((card,)), ranks=(ended,))
    told = scrape(make_picture(make_snapshot(sample=sample)))
    assert told.of("vramscope_rank_ooms_total", rank="0", device="sim0") == [1]
    assert not {"vramscope_rank_allocated_bytes", "vramscope_device_up"} & told.names


def test_labels_of_any_text_stay_a_sound_scrape() -> None:
    odd = msgspec.structs.replace(make_device(0), name='a "quoted"\nname \\ \udcff')
    told = scrape(make_picture(make_snapshot(sample=make_sample((odd,)))))
    assert [it["name"] for it in told.labels("vramscope_device_info")] == ['a "quoted"\nname \\ ?']


def test_memory_of_processes_has_whose_it_is_and_no_command() -> None:
    process = ProcessReading(
        pid=7, user="ada", command="train --token s3cret", used_bytes=GIB, pod="8a7b", slurm_job="812"
    )
    hidden = ProcessReading(pid=8)
    device = msgspec.structs.replace(make_device(0), processes=(process, hidden))
    told = scrape(make_picture(make_snapshot(sample=make_sample((device,)))))
    assert told.of("vramscope_process_used_bytes") == [GIB]
    [labels] = told.labels("vramscope_process_used_bytes")
    assert (labels["pid"], labels["user"], labels["pod_uid"], labels["slurm_job"]) == (
        *("7", "ada", "8a7b", "812"),
    )
    assert labels["pod"] == labels["container"] == labels["slurm_step"] == ""
    assert not any("s3cret" in value for value in labels.values())


def test_names_of_owners_are_labels_and_their_number_is_bounded() -> None:
    owner = ProcessOwner("ml", "llama-0", "trainer")
    processes = tuple(
        ProcessReading(pid, used_bytes=GIB, pod="8a7b", container="3f4e01234567", owner=owner)
        for pid in range(1000)
    )
    given = tuple(DeviceAllocation("ml", f"p-{at % 100}", "main", "nvidia.com/gpu", 1) for at in range(300))
    devices = (
        msgspec.structs.replace(make_device(0), processes=processes, allocations=given),
        msgspec.structs.replace(make_device(1), processes=(), allocations=given[:1]),
    )
    told = scrape(make_picture(make_snapshot(sample=make_sample(devices))))
    found = told.labels("vramscope_process_used_bytes")
    assert len(found) == 256
    assert {(it["namespace"], it["pod"], it["pod_uid"], it["container"]) for it in found} == {
        ("ml", "llama-0", "8a7b", "trainer")
    }
    allocated = told.labels("vramscope_device_allocation_info")
    assert len(allocated) == 65
    assert allocated[-1]["pod"] == "p-0"
    assert allocated[-1]["resource"] == "nvidia.com/gpu"
