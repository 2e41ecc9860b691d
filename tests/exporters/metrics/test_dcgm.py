"""Names, units and labels of dcgm-exporter, as a scrape reads them and as our own reader of DCGM does."""

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.exporters.prometheus.scraped import Series, make_picture
from tests.tui.canned import NODE, make_device, make_finding, make_sample, make_snapshot
from tests.tui.canned_ranks import make_simulated
from vramscope.engine.model import (
    DeviceActivity,
    DeviceAllocation,
    DeviceHardware,
    DeviceSample,
    Evidence,
    Finding,
    MemoryReading,
    ProcessOwner,
    ProcessReading,
)
from vramscope.engine.prometheus.readings import METRICS
from vramscope.engine.units import GIB, MIB
from vramscope.exporters.metrics.dcgm import collect_dcgm
from vramscope.exporters.prometheus.text import PictureCollector

FULL = msgspec.structs.replace(
    make_device(0),
    name="NVIDIA H100 80GB HBM3",
    memory=MemoryReading(total_bytes=80 * GIB, used_bytes=30 * GIB + 5, free_bytes=49 * GIB),
    utilization_percent=97.0,
    temperature_c=61.0,
    power_w=640.5,
    pci_address="0000:9b:00.0",
    activity=DeviceActivity(memory_bandwidth_percent=41.0, sm_clock_mhz=1755, memory_clock_mhz=2619),
    hardware=DeviceHardware(driver_version="580.95.05", ecc_corrected=12, ecc_uncorrected=0),
)


def scrape(*devices: DeviceSample, findings: tuple[Finding, ...] = (), age_s: float = 0.5) -> Series:
    """Return what Prometheus reads with its older text format, as dcgm-exporter writes it."""
    picture = make_picture(make_snapshot(sample=make_sample(devices), findings=findings), age_s)
    registry = CollectorRegistry()
    registry.register(PictureCollector(lambda: picture, has_dcgm_names=True))
    return Series(text_string_to_metric_families(generate_latest(registry).decode()))


def xid(code: int, last_s: float, **changes: object) -> Finding:
    evidence = (Evidence("error", f"XID {code}"), Evidence("last", last_s, "s"))
    return msgspec.structs.replace(make_finding(0), kind="device_error", evidence=evidence, **changes)


def test_values_have_the_units_and_labels_of_dcgm_exporter() -> None:
    told = scrape(FULL)
    expected = {
        "FB_USED": 30 * 1024,
        "FB_FREE": 49 * 1024,
        "FB_RESERVED": 1023,
        "GPU_UTIL": 97,
        "MEM_COPY_UTIL": 41,
        "GPU_TEMP": 61,
        "POWER_USAGE": 640.5,
        "SM_CLOCK": 1755,
        "MEM_CLOCK": 2619,
        "ECC_SBE_VOL_TOTAL": 12,
        "ECC_DBE_VOL_TOTAL": 0,
    }
    assert {it: told.of(f"DCGM_FI_DEV_{it}") for it in expected} == {
        it: [value] for it, value in expected.items()
    }
    (labels,) = told.labels("DCGM_FI_DEV_FB_USED")
    assert {name: text for name, text in labels.items() if text} == {
        "gpu": "0",
        "UUID": FULL.uuid,
        "pci_bus_id": "00000000:9B:00.0",
        "device": "nvidia0",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": NODE,
        "DCGM_FI_DRIVER_VERSION": "580.95.05",
    }


def test_our_own_reader_of_dcgm_reads_the_same_values_back() -> None:
    told = {
        it.name: it.rows[0][1]
        for it in collect_dcgm(make_picture(make_snapshot(sample=make_sample((FULL,)))))
    }
    read = {
        METRICS[name].field: value * METRICS[name].factor for name, value in told.items() if name in METRICS
    }
    assert read["used"] == 30 * GIB
    assert read["used"] + read["free"] + read["reserved_by_driver"] == 80 * GIB - MIB
    assert (read["utilization"], read["power"], read["sm_clock"]) == (97, 640.5, 1755)


def test_what_is_unmeasured_a_lower_bound_modelled_or_old_has_no_series() -> None:
    bound = MemoryReading(total_bytes=16 * GIB, used_bytes=GIB, is_lower_bound=True)
    arc = msgspec.structs.replace(make_device(1), memory=bound, activity=None, hardware=None, power_w=None)
    told = scrape(arc)
    assert "DCGM_FI_DEV_GPU_TEMP" in told.names
    silent = {
        "FB_USED",
        "FB_FREE",
        "FB_RESERVED",
        "POWER_USAGE",
        "SM_CLOCK",
        "ECC_SBE_VOL_TOTAL",
        "XID_ERRORS",
    }
    assert not {f"DCGM_FI_DEV_{name}" for name in silent} & told.names
    whole = MemoryReading(total_bytes=3 * GIB, used_bytes=GIB, free_bytes=2 * GIB)
    assert scrape(msgspec.structs.replace(FULL, memory=whole)).of("DCGM_FI_DEV_FB_RESERVED") == []
    devices, _ = make_simulated()
    assert not any(name.startswith("DCGM") for name in scrape(*devices).names | scrape(FULL, age_s=60).names)


def test_a_pod_is_named_where_it_alone_was_given_the_device_or_uses_it() -> None:
    owner = ProcessOwner("ml", "llama-0", "trainer")
    named = tuple(ProcessReading(pid, pod="8a7b", owner=owner) for pid in (1, 2))
    idle = DeviceAllocation("ml", "idle-0", "main", "nvidia.com/gpu")
    other = msgspec.structs.replace(idle, pod_name="other")

    def names_of(
        processes: tuple[ProcessReading, ...], allocations: tuple[DeviceAllocation, ...] | None
    ) -> str:
        device = msgspec.structs.replace(FULL, processes=processes, allocations=allocations)
        (labels,) = scrape(device).labels("DCGM_FI_DEV_FB_USED")
        return "/".join((labels["namespace"], labels["pod"], labels["container"]))

    assert names_of(named, None) == "ml/llama-0/trainer"
    assert names_of((), (idle,)) == "ml/idle-0/main"
    assert names_of((*named, ProcessReading(3)), None) == "//"
    assert names_of(named, (idle, other)) == "//"
    assert names_of((), ()) == "//"


@pytest.mark.parametrize(
    ("jobs", "expected"), [(("812", "812"), "812"), (("812", "900"), ""), (("812", None), ""), ((), "")]
)
def test_the_slurm_job_is_named_where_it_alone_uses_the_device(
    jobs: tuple[str | None, ...], expected: str
) -> None:
    processes = tuple(ProcessReading(pid, slurm_job=job) for pid, job in enumerate(jobs))
    (labels,) = scrape(msgspec.structs.replace(FULL, processes=processes)).labels("DCGM_FI_DEV_FB_USED")
    assert labels["hpc_job"] == expected


def test_the_pod_is_named_where_it_alone_uses_the_device() -> None:
    def of_pods(*pods: str | None) -> str:
        processes = tuple(ProcessReading(pid=number, pod=pod) for number, pod in enumerate(pods))
        (labels,) = scrape(msgspec.structs.replace(FULL, processes=processes)).labels("DCGM_FI_DEV_FB_USED")
        return labels["pod_uid"]

    assert of_pods("8a7b", "8a7b") == "8a7b"
    assert of_pods("8a7b", "11cd") == of_pods("8a7b", None) == of_pods() == ""


def test_of_a_gpu_with_mig_instances_only_these_are_there() -> None:
    instance = msgspec.structs.replace(
        FULL,
        uuid="MIG-1",
        kind="mig",
        parent_uuid=FULL.uuid,
        mig_index=1,
        gpu_instance_id=9,
        name="NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        memory=MemoryReading(used_bytes=GIB),
    )
    told = scrape(FULL, instance)
    assert told.of("DCGM_FI_DEV_FB_USED") == [1024]
    (labels,) = told.labels("DCGM_FI_DEV_FB_USED")
    assert (labels["gpu"], labels["UUID"], labels["GPU_I_PROFILE"]) == ("0", "MIG-1", "1g.10gb")
    assert labels["GPU_I_ID"] == "9", "the number that the driver has for the instance, and not its position"
    assert labels["modelName"] == "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize("state", ["ok", "lost"])
def test_the_last_xid_is_the_newest_that_holds_on_a_lost_device_too(state: str) -> None:
    device = msgspec.structs.replace(FULL, state=state)
    older = xid(31, 50.0, device_uuid=FULL.uuid)
    newer = xid(79, 90.0, device_uuid=FULL.uuid)
    told = scrape(device, findings=(newer, older))
    assert told.of("DCGM_FI_DEV_XID_ERRORS", UUID=FULL.uuid) == [79]
    assert bool(told.of("DCGM_FI_DEV_FB_USED")) == (state == "ok")
    other = xid(13, 99.0, device_uuid="GPU-elsewhere")
    assert scrape(device, findings=(other,)).of("DCGM_FI_DEV_XID_ERRORS") == []
