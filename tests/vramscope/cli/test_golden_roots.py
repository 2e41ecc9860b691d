"""The program itself on machines made of files: GPUs of several vendors in `--once`, `doctor`, Prometheus."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests import REPOSITORY
from tests.engine.sources.drm_root import GIB, DrmMachine
from tests.engine.sources.pretend_kubelet import write_links
from tests.engine.sources.test_drm import i915_client, xe_client
from tests.exporters.prometheus.scraped import make_picture, scrape
from tests.pretend_nvml.driver import PretendDriver
from tests.pretend_nvml.layout import FunctionClass
from tests.tui.canned import make_snapshot
from tests.waiting import wait_until
from vramscope.engine.model import Sample
from vramscope.engine.sampling.live import open_node

from .running import Outcome, no_library, run, start

SCHEMA: dict[str, Any] = json.loads((REPOSITORY / "docs/status.schema.json").read_text(encoding="utf-8"))


@pytest.fixture
def machine(tmp_path: Path) -> DrmMachine:
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    machine = DrmMachine(root)
    machine.add_pci_names()
    machine.write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 41943040 kB")
    machine.host.add_process(20)
    return machine


def add_arc_on_i915(machine: DrmMachine) -> None:
    machine.add_arc_i915()
    machine.add_drawing(20, 4, i915_client(3, local="1536 MiB"))


def add_arc_on_xe(machine: DrmMachine) -> None:
    machine.add_arc_xe()
    machine.add_drawing(20, 4, xe_client(3, vram="2 GiB"))


def add_mixed(machine: DrmMachine) -> None:
    machine.add_battlemage()
    machine.add_mi300x("0000:c5:00.0")


def look(machine: DrmMachine, *arguments: str) -> Outcome:
    """Run the program with this machine in the place of the real one, and without NVIDIA's library."""
    return run(*arguments, VRAMSCOPE_ROOT=str(machine.root), **no_library(machine.root.parent))


Row = tuple[str, str, int | None, int | None, bool]


@pytest.mark.parametrize(
    ("add", "expected"),
    [
        (DrmMachine.add_mi300x, [("AMD Instinct MI300X OAM", "gpu", 192 * GIB, 40 * GIB, False)]),
        (DrmMachine.add_navi, [("AMD GPU 744c", "gpu", 24 * GIB, 6 * GIB, False)]),
        (DrmMachine.add_apu, [("AMD GPU 15bf", "unified", 16 * GIB, 3 * GIB, False)]),
        (add_arc_on_i915, [("Intel Arc A770", "gpu", None, 3 * GIB // 2, True)]),
        (add_arc_on_xe, [("Intel Arc A770", "gpu", 16 * GIB, 2 * GIB, True)]),
        (DrmMachine.add_battlemage, [("Intel Arc B580", "gpu", 12 * GIB, 3 * GIB, False)]),
        (
            add_mixed,
            [
                ("AMD Instinct MI300X OAM", "gpu", 192 * GIB, 40 * GIB, False),
                ("Intel Arc B580", "gpu", 12 * GIB, 3 * GIB, False),
            ],
        ),
    ],
)
def test_once_as_json(machine: DrmMachine, add: Callable[[DrmMachine], object], expected: list[Row]) -> None:
    add(machine)
    outcome = look(machine, "--once", "--json")
    assert (outcome.code, outcome.stderr) == (0, "")
    (status,) = outcome.lines
    jsonschema.validate(status, SCHEMA)
    found = [
        (
            device["name"],
            device["kind"],
            device["memory"]["total_bytes"],
            device["memory"]["used_bytes"],
            device["memory"]["is_lower_bound"],
        )
        for device in status["devices"]
    ]
    assert found == expected
    assert all(device["state"] == "ok" for device in status["devices"])
    assert status["host"]["total_bytes"] == 64 * GIB
    assert any("VRAMSCOPE_ROOT" in note for note in status["notes"]), "it is not this machine"


def test_an_agent_that_reads_another_root_is_named_and_not_asked(machine: DrmMachine) -> None:
    DrmMachine.add_navi(machine)
    agent = start("agent", **no_library(machine.root.parent))
    try:
        assert agent.stderr is not None
        assert "serving" in agent.stderr.readline()
        outcome = look(machine, "--once", "--json")
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=60)
    [status] = outcome.lines
    assert [device["name"] for device in status["devices"]] == ["AMD GPU 744c"]
    assert status["agent"] is None
    assert "reads devices below /, not below VRAMSCOPE_ROOT=" in outcome.stderr
    assert "sampling in this process instead" in outcome.stderr


def test_names_of_pods_are_in_the_first_look_and_bad_files_change_nothing(machine: DrmMachine) -> None:
    """A node of Kubernetes made of files: links of logs, a file of the kubelet that is none, no socket."""
    container, uid = "3f4e01234567" + "0" * 52, "8a7b1c2d-3e4f-5a6b-7c8d-9e0f1a2b3c4d"
    group = f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{container}.scope\n"
    machine.add_mi300x()
    machine.host.add_process(30, cgroup=group, namespaced_pids="30\t1")
    machine.add_computing(30, vram_5000=8 * GIB)
    write_links(machine.root, "ml", "llama-0", "trainer", container, uid)
    machine.write("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", os.urandom(64))
    (status,) = look(machine, "--once", "--json").lines
    jsonschema.validate(status, SCHEMA)
    (process,) = status["devices"][0]["processes"]
    assert process["pod"] == uid
    assert process["owner"] == {
        "namespace": "ml",
        "pod_name": "llama-0",
        "container_name": "trainer",
        "slurm_job_name": None,
        "slurm_partition": None,
    }
    assert status["devices"][0]["allocations"] is None
    assert "[pod ml/llama-0] python train.py" in " ".join(look(machine, "--once").stdout.split())


def test_a_lower_bound_is_labelled_wherever_a_person_reads_it(machine: DrmMachine) -> None:
    add_arc_on_xe(machine)
    shown = " ".join(look(machine, "--once").stdout.split())
    assert "≥2.0/16.0" in shown
    assert "at least 2.0/16.0 GiB" in shown
    assert "what the processes that this user may see hold" in shown
    assert "free" not in shown


def test_a_node_whose_only_gpu_sleeps_is_looked_at_without_waking_it(machine: DrmMachine) -> None:
    folder = machine.add_battlemage()
    machine.write(f"{folder}/power/runtime_status", "suspended")
    (status,) = look(machine, "--once", "--json").lines
    (device,) = status["devices"]
    assert device["state"] == "unsupported"
    assert "sleeps" in device["reason"]


def test_prometheus_has_gpus_of_all_vendors(machine: DrmMachine) -> None:
    add_mixed(machine)
    producer = open_node(interval_s=0.1, memory_interval_s=0.05, has_plugins=False, root=machine.root)
    producer.start()
    taken: list[Sample] = []

    def has_hardware() -> bool:
        taken.extend(producer.take())
        return bool(taken) and len([it for it in taken[-1].devices if it.hardware is not None]) == 2

    try:
        wait_until(has_hardware, what="clocks and limits of both")
    finally:
        producer.stop()
    told = scrape(make_picture(make_snapshot(sample=taken[-1])))
    assert told.of("vramscope_device_used_bytes", device="0") == [40 * GIB]
    assert told.of("vramscope_device_capacity_bytes", device="1") == [12 * GIB]
    assert told.of("vramscope_device_ecc_uncorrected_errors_total", device="0") == [1]
    assert told.of("vramscope_device_sm_clock_hertz", device="1") == [2400e6]
    assert told.of("vramscope_device_used_is_lower_bound") == []
    uuids = {it["uuid"] for it in told.labels("vramscope_device_used_bytes")}
    assert uuids == {"GPU-b7f8a1c2d3e4f506", "xe-0000:03:00.0"}


def test_doctor_checks_every_gpu(machine: DrmMachine) -> None:
    add_mixed(machine)
    (report,) = look(machine, "doctor", "--json").lines
    found = {check["name"]: check for check in report["checks"]}
    assert "192.0 GiB used" in found["device 0"]["found"]
    assert found["device 0"]["status"] == "warning", "it has an uncorrected memory error"
    assert "rocm-smi" in found["device 0"]["advice"]
    assert "Intel Arc B580" in found["device 1"]["found"]
    assert found["library"]["status"] == "note", "no GPU here needs NVIDIA's library"


def test_doctor_reads_what_drivers_have_reported_since_boot(machine: DrmMachine) -> None:
    machine.add_battlemage()
    lines = ["6,1,1000,-;usb 1-1: new device", "4,2,2000,-;xe 0000:03:00.0: [drm] GT0: Engine reset: x"]
    machine.write("dev/kmsg", "\n".join(lines))
    (report,) = look(machine, "doctor", "--json").lines
    [check] = [check for check in report["checks"] if check["name"] == "kernel log"]
    assert check["status"] == "warning"
    assert "reset of the GPU at 0000:03:00.0" in check["found"]


def test_a_gb10_has_the_memory_and_the_stalls_of_its_host(
    machine: DrmMachine, pretend_nvml: PretendDriver
) -> None:
    pretend_nvml.add_device(name="NVIDIA GB10").fail(FunctionClass.MEMORY, 3)
    machine.write("proc/pressure/memory", "some avg10=0 total=9\nfull avg10=0.00 total=4")
    machine.write("proc/vmstat", "pswpin 4\npswpout 5")
    producer = open_node(interval_s=0.1, memory_interval_s=0.05, has_plugins=False, root=machine.root)
    producer.start()
    taken: list[Sample] = []

    def has_stalls() -> bool:
        taken.extend(producer.take())
        host = taken[-1].host if taken else None
        return host is not None and host.stall_percent is not None

    try:
        wait_until(has_stalls, what="a second reading of the pressure")
    finally:
        producer.stop()
    [device], host = taken[-1].devices, taken[-1].host
    assert (device.kind, device.memory.source, device.memory.total_bytes) == ("unified", "host", 64 * GIB)
    assert host is not None
    assert (host.stall_percent, host.swap_in_bytes_per_s) == (0.0, 0.0)
