"""`vramscope doctor`: what was found, what is wrong, what to do."""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vramscope.cli.doctor import (
    Check,
    Examination,
    Patient,
    examine_device_files,
    examine_devices,
    examine_driver,
    examine_host,
    examine_module,
    examine_names,
    examine_other_devices,
    examine_sandbox,
)
from vramscope.engine.errors import LibraryMissingError
from vramscope.engine.sandbox import Protection
from vramscope.engine.sources.nvml.driver import NvmlLibrary
from vramscope.engine.sources.processes import INITIAL_PID_NAMESPACE, ProcessTable

from ...engine.sources.drm_root import DrmMachine
from ...engine.sources.pretend_kubelet import write_links
from ...engine.sources.test_nvml_discovery import write_gpu_folders
from ...pretend_nvml.driver import PretendDriver
from .running import GIB, Outcome, no_library, run
from .test_stream import agent


def checks_of(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """Return the checks of a JSON report by name."""
    (report,) = outcome.lines
    assert report["schema"] == "vramscope.doctor/1"
    assert report["exit_code"] == outcome.code
    assert outcome.stderr == ""
    return {check["name"]: check for check in report["checks"]}


def test_a_healthy_node_is_well(pretend_driver: PretendDriver, pretend_environment: dict[str, str]) -> None:
    device = pretend_driver.add_device(name="Card", used_bytes=2 * GIB)
    outcome = run("doctor", "--json")
    checks = checks_of(outcome)
    assert outcome.code == 0
    assert (
        "libnvidia-ml.so.1: NVML 13.580.95.05, driver 580.95.05, CUDA up to 13.0"
        in checks["library"]["found"]
    )
    assert checks["device 0"]["status"] == "ok"
    assert device.uuid in checks["device 0"]["found"]
    assert "2.0 GiB of 80.0 GiB used" in checks["device 0"]["found"]
    assert checks["ZeroMQ"]["status"] == "ok"
    assert checks["agent"]["status"] == "note"
    assert "pressure" in checks["analyzers"]["found"]
    assert checks["terminal"]["status"] == "note"
    assert f"Python {sys.version.split()[0]}" in checks["vramscope"]["found"]


def test_faults_of_the_hardware_are_warnings_with_advice(pretend_nvml: PretendDriver) -> None:
    device = pretend_nvml.add_device(name="Card")
    device.raw.ecc_uncorrected, device.raw.is_repair_pending = 3, 1
    device.raw.throttle_reasons, device.raw.compute_mode = 0x40 | 0x04, 2
    (check,) = examine_devices()
    assert check.status == "warning"
    for words in (
        "3 uncorrected memory errors",
        "still in use",
        "no process may compute",
        "hardware thermal",
    ):
        assert words in check.found
    for words in ("nvidia-smi -q -d ECC", "--gpu-reset", "-c DEFAULT", "cooling"):
        assert words in check.advice
    device.raw.ecc_uncorrected = device.raw.is_repair_pending = device.raw.compute_mode = 0
    device.raw.throttle_reasons = 0x04
    (check,) = examine_devices()
    assert check.status == "ok", "a power cap that is reached is no fault"


def test_the_report_for_people_says_the_same_in_the_width_it_has(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(name="Card")
    outcome = run("doctor", COLUMNS="70")
    assert outcome.code == 0
    assert max(map(len, outcome.stdout.splitlines())) <= 70
    assert outcome.stdout.splitlines()[0].startswith("ok       vramscope")


@pytest.mark.parametrize(("init_error", "code"), [(9, 5), (18, 5), (4, 6), (999, 4)])
def test_a_driver_that_does_not_start_is_a_problem_with_advice(
    init_error: int, code: int, pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.raw.init_error = init_error
    outcome = run("doctor", "--json")
    check = checks_of(outcome)["library"]
    assert outcome.code == code
    assert check["status"] == "problem"
    assert check["advice"]


def test_without_a_library_the_exit_code_is_4(tmp_path: Path) -> None:
    outcome = run("doctor", **no_library(tmp_path))
    assert outcome.code == 4
    assert "libnvidia-ml.so.1 was not found" in " ".join(outcome.stdout.split())
    assert "→ install the NVIDIA driver" in " ".join(outcome.stdout.split())


def test_a_driver_without_devices_is_a_problem(pretend_environment: dict[str, str]) -> None:
    outcome = run("doctor", "--json")
    check = checks_of(outcome)["devices"]
    assert outcome.code == 4
    assert check["status"] == "problem"
    assert check["advice"]


def test_a_device_that_does_not_answer_is_counted(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device()
    pretend_driver.add_device().lose()
    checks = checks_of(run("doctor", "--json"))
    told = [check for check in checks.values() if check["status"] == "warning"]
    assert any("device" in check["name"] for check in told)


def test_a_gpu_that_was_lost_before_is_listed_also_below_another_root(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], tmp_path: Path
) -> None:
    devices = [pretend_driver.add_device(name=f"Card {number}") for number in range(2)]
    write_gpu_folders(tmp_path / "host", pretend_driver, has_device_files=True)
    devices[1].detach()
    checks = checks_of(run("doctor", "--json", VRAMSCOPE_ROOT=str(tmp_path / "host")))
    assert checks["device 0"]["status"] == "ok"
    assert checks["device 1"]["status"] == "warning"
    assert "Card 1" in checks["device 1"]["found"]
    assert "fell off the bus" in checks["device 1"]["found"]


def test_a_running_agent_is_named(pretend_driver: PretendDriver, pretend_environment: dict[str, str]) -> None:
    pretend_driver.add_device()
    with agent() as process:
        check = checks_of(run("doctor", "--json"))["agent"]
    assert check["status"] == "ok"
    assert f"process {process.pid}, version " in check["found"]


def test_an_unsafe_runtime_folder_is_a_problem_of_permission(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], tmp_path: Path
) -> None:
    pretend_driver.add_device()
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(0o777)
    outcome = run("doctor", "--json", VRAMSCOPE_RUNTIME_DIR=str(folder))
    check = checks_of(outcome)["runtime folder"]
    assert outcome.code == 6
    assert check["found"].endswith("is open to other users (mode 0777, expected 0700)")
    assert check["advice"] == "run chmod 700 on it"


def test_settings_in_use_and_variables_that_mean_nothing_are_listed(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device()
    (report,) = run("doctor", "--json", VRAMSCOPE_THEME="light", VRAMSCOPE_THEEM="x").lines
    told = [check["found"] for check in report["checks"] if check["name"] == "settings"]
    assert "theme from VRAMSCOPE_THEME" in told[0]
    assert told[1] == "unknown variables: VRAMSCOPE_THEEM"


def test_a_broken_settings_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("them = 1\n")
    outcome = run("doctor", "--json", "--config", str(tmp_path / "broken.toml"))
    assert "unknown setting" in checks_of(outcome)["settings"]["found"]
    assert outcome.code != 0


@pytest.mark.waits
def test_a_driver_that_hangs_is_told_and_holds_nothing_up(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device()
    pretend_driver.raw.init_hang = 1
    outcome = run("doctor", "--json")
    (report,) = outcome.lines
    assert outcome.code == 5
    assert any("no answer within" in check["found"] for check in report["checks"])
    assert report["checks"][-1]["name"] == "terminal"


@pytest.mark.parametrize(
    ("protection", "environ", "status", "words"),
    [
        (Protection(7, has_seccomp=True), {}, "ok", "Landlock 7 and seccomp confine"),
        (
            Protection(2, has_seccomp=True),
            {},
            "note",
            "Landlock 2, seccomp: what reads files of others is not",
        ),
        (Protection(0, has_seccomp=False), {}, "note", "no Landlock, no seccomp filter for this machine"),
        (Protection(7, has_seccomp=True), {"VRAMSCOPE_SANDBOX": "off"}, "note", "switches it off"),
    ],
)
def test_what_the_kernel_cannot_forbid_is_said(
    protection: Protection, environ: dict[str, str], status: str, words: str
) -> None:
    (check,) = examine_sandbox(protection, environ)
    assert check.status == status
    assert words in check.found
    assert bool(check.advice) == (status == "note")


def test_an_examination_that_hangs_keeps_what_it_had_found() -> None:
    release = threading.Event()

    def examine() -> Iterator[Check]:
        yield Check("first", "ok", "fine")
        release.wait()
        yield Check("second", "ok", "never seen")

    patient = Patient()
    checks = patient.examine(Examination("subject", examine, deadline_s=0.2, exit_code=5))
    release.set()
    assert [(check.name, check.status) for check in checks] == [("first", "ok"), ("subject", "problem")]
    assert checks[1].exit_code == 5
    assert patient.is_hanging


def test_an_examination_that_fails_is_itself_a_problem() -> None:
    def examine() -> Iterator[Check]:
        raise ZeroDivisionError("oops")

    (check,) = Patient().examine(Examination("subject", examine))
    assert (check.status, check.found) == ("problem", "this check failed: ZeroDivisionError: oops")


@pytest.mark.parametrize(
    ("file", "content"), [("top_level.txt", "pynvml\n"), ("RECORD", "a.py,,\npynvml.py,,\n")], ids=str
)
def test_a_rival_module_of_the_same_name_is_named(
    file: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "pynvml-11.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pynvml\nVersion: 11.5\n")
    (info / file).write_text(content)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (check,) = examine_module()
    assert check.status == "warning"
    assert check.advice == "pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py"


def test_what_names_pods_is_examined_on_a_node_with_a_kubelet(tmp_path: Path) -> None:
    assert list(examine_names(tmp_path)) == []
    (tmp_path / "var/lib/kubelet").mkdir(parents=True)
    [check] = examine_names(tmp_path)
    assert check.status == "warning"
    assert "kubelet.sock is not there" in check.found
    assert "mount /var/log/containers" in check.advice
    write_links(tmp_path, "ml", "llama-0", "trainer", "3f4e01234567" + "0" * 52, "8a7b")
    [check] = examine_names(tmp_path)
    assert (check.status, check.advice) == ("note", "")
    assert check.found.startswith("/var/log/containers names 1 container; ")


def test_the_kernel_driver_is_read_from_proc(tmp_path: Path, pretend_nvml: PretendDriver) -> None:
    version = tmp_path / "driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue\nGCC version: 12\n")
    check = next(iter(examine_driver(tmp_path)))
    assert check.found == "NVIDIA kernel driver 580.95.05 is loaded"


def test_amd_gpus_are_examined_and_make_a_missing_nvidia_library_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = DrmMachine(tmp_path)
    machine.add_mi300x()
    [check] = examine_other_devices(tmp_path)
    assert check.status == "warning", "it has memory errors"
    assert "AMD Instinct MI300X OAM, gpu, GPU-b7f8a1c2d3e4f506, 40.0 GiB of 192.0 GiB used" in check.found
    assert "rocm-smi" in check.advice

    def refuse(_: NvmlLibrary) -> None:
        raise LibraryMissingError("No NVIDIA driver library; install it.")

    monkeypatch.setattr(NvmlLibrary, "open", refuse)
    assert [check.status for check in examine_driver(tmp_path / "proc")] == ["note", "note"]


def test_no_device_files_are_worth_a_note(tmp_path: Path) -> None:
    (check,) = examine_device_files(tmp_path)
    assert check.status == "note"


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device file takes root")
def test_device_files_are_counted(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "nvidia0", 0o20666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("device files cannot be made here")
    (check,) = examine_device_files(tmp_path)
    assert (check.status, check.found) == ("ok", f"1 file {tmp_path}/nvidia*, which this user can open")


@pytest.mark.parametrize("is_own", [True, False])
def test_the_note_on_containers_and_the_process_list_agree(is_own: bool, tmp_path: Path) -> None:
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    namespace = "pid:[4026532999]" if is_own else INITIAL_PID_NAMESPACE
    (tmp_path / "proc/self/ns/pid").symlink_to(namespace)
    checks = [check for check in examine_host(tmp_path / "proc") if "show only their pid" in check.found]
    process = ProcessTable(tmp_path, is_hidden=lambda _: False).read(99, None)
    assert [check.status for check in checks] == (["note"] if is_own else [])
    assert process.location == ("outside" if is_own else "gone")


def test_no_zeros_are_told(pretend_driver: PretendDriver, pretend_environment: dict[str, str]) -> None:
    pretend_driver.add_device()
    with agent("--interval", "0.2"):
        found = checks_of(run("doctor", "--json"))["worker"]["found"]
    assert found.startswith("worker analyzers: ")
    assert "restart" not in found
    pretend_driver.raw.init_error = 9
    last_line = run("doctor").stdout.splitlines()[-1]
    assert "problem" in last_line
    assert "0 " not in last_line
