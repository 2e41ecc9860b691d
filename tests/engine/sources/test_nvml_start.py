"""NVML that cannot be started: one sentence each, with what to do and the right exit code."""

import os
import subprocess
import sys
import types
from ctypes.util import find_library
from pathlib import Path

import pytest

from tests.pretend_nvml.driver import PretendDriver
from vramscope.engine.errors import (
    AccessDeniedError,
    DriverMismatchError,
    DriverNotLoadedError,
    LibraryMissingError,
    SourceUnavailableError,
)
from vramscope.engine.sources.nvml import NvmlSource
from vramscope.engine.sources.nvml.driver import NvmlLibrary

START_ERRORS = [
    (4, AccessDeniedError, 6, ["/dev/nvidiactl", "NVML error 4"]),
    (9, DriverNotLoadedError, 5, ["modprobe nvidia", "NVML error 9"]),
    (12, LibraryMissingError, 4, ["libnvidia-ml.so.1", "install the NVIDIA driver"]),
    (13, SourceUnavailableError, 4, ["too old", "update"]),
    (
        18,
        DriverMismatchError,
        5,
        ["mismatch", "NVML error 18", "580.95.05", "reboot", "restart the container"],
    ),
    (999, SourceUnavailableError, 4, ["NVML error 999", "restart the container"]),
    (8, SourceUnavailableError, 4, ["NVML error 8", "nvidia-smi"]),
]


@pytest.mark.parametrize(("code", "error", "exit_code", "words"), START_ERRORS)
def test_each_failure_has_its_sentence_and_its_exit_code(
    nvml_source: NvmlSource,
    pretend_nvml: PretendDriver,
    code: int,
    error: type[SourceUnavailableError],
    exit_code: int,
    words: list[str],
) -> None:
    pretend_nvml.add_device()
    pretend_nvml.raw.init_error = code
    with pytest.raises(SourceUnavailableError) as caught:
        nvml_source.discover()
    assert type(caught.value) is error
    assert caught.value.exit_code == exit_code
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mismatch_names_both_versions(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_root: Path
) -> None:
    version = fake_root / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
        "GCC version:  gcc version 12.2.0\n"
    )
    pretend_nvml.raw.init_error = 18
    with pytest.raises(DriverMismatchError, match=r"is 580\.95\.05.*driver is 570\.86\.15"):
        nvml_source.discover()


def test_a_failure_is_not_for_good(nvml_source: NvmlSource, pretend_nvml: PretendDriver) -> None:
    pretend_nvml.add_device()
    pretend_nvml.raw.init_error = 9
    with pytest.raises(DriverNotLoadedError):
        nvml_source.discover()
    pretend_nvml.raw.init_error = 0
    assert len(nvml_source.discover()) == 1


def test_a_driver_without_devices_says_so(nvml_source: NvmlSource, pretend_nvml: PretendDriver) -> None:
    with pytest.raises(SourceUnavailableError, match="reports no device") as caught:
        nvml_source.discover()
    assert caught.value.exit_code == 4
    assert pretend_nvml.raw.inits == pretend_nvml.raw.shutdowns == 1


def test_nvml_that_a_container_lost_is_started_anew(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver
) -> None:
    pretend_nvml.add_device()
    nvml_source.discover()
    pretend_nvml.raw.driver_error = pretend_nvml.raw.init_error = 999
    with pytest.raises(SourceUnavailableError, match="restart the container"):
        nvml_source.discover()
    pretend_nvml.raw.driver_error = pretend_nvml.raw.init_error = 0
    assert nvml_source.discover()[0].read_memory().used_bytes is not None


def test_the_description_tells_versions_and_files(pretend_nvml: PretendDriver) -> None:
    library = NvmlLibrary()
    library.open()
    description = library.describe()
    library.close()
    assert (description.driver_version, description.nvml_version) == ("580.95.05", "13.580.95.05")
    assert description.cuda_version == "13.0"
    assert (description.module_file or "").endswith("pynvml.py")


def test_another_module_named_pynvml_is_called_out(monkeypatch: pytest.MonkeyPatch) -> None:
    impostor = types.ModuleType("pynvml")
    impostor.__file__ = "/usr/lib/python3/dist-packages/pynvml.py"
    monkeypatch.setitem(sys.modules, "pynvml", impostor)
    with pytest.raises(SourceUnavailableError, match=r"dist-packages/pynvml\.py.*nvidia-ml-py"):
        NvmlSource().discover()


def test_a_machine_without_the_library_says_what_was_looked_for() -> None:
    if find_library("nvidia-ml") is not None:
        pytest.skip("this machine has an NVIDIA driver library")
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    program = (
        "from vramscope.engine.errors import LibraryMissingError\n"
        "from vramscope.engine.sources.nvml import NvmlSource\n"
        "try:\n    NvmlSource().discover()\n"
        "except LibraryMissingError as error:\n    print(error.exit_code, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("4 ")
    assert "libnvidia-ml.so.1 was not found" in done.stdout


def test_importing_the_source_does_not_load_pynvml() -> None:
    program = "import sys, vramscope.engine.sources.nvml; print('pynvml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
