"""AMD's own binding on a pretend library: what it adds to the kernel's files; nobody else pays for it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.sources.conftest import SteppedClock
from tests.engine.sources.drm_root import DrmMachine
from tests.pretend_amdsmi.library import build_library
from vramscope.engine.model import DeviceHardware
from vramscope.engine.sources.drm.amd import AmdReader
from vramscope.engine.sources.drm.smi import AmdSmi, SmiReading, load_binding
from vramscope.engine.sources.drm.source import DrmSource

NAME = "AMD Instinct MI300X"


@pytest.fixture
def _is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """The binding looks for its library once, when it is imported."""
    for name in ("ROCM_PATH", "ROCM_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "amdsmi"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _is_fresh: None) -> Path:
    if importlib.util.find_spec("amdsmi") is None:
        pytest.skip("needs the package amdsmi")
    folder = build_library(tmp_path, NAME)
    monkeypatch.setenv("ROCM_PATH", str(folder))
    return folder


def read(machine: DrmMachine, clock: SteppedClock) -> tuple[str | None, DeviceHardware]:
    [reader] = DrmSource(machine.root, clock, load_smi=load_binding).discover()
    assert isinstance(reader, AmdReader)
    hardware = reader.read_hardware().hardware
    assert hardware is not None
    return reader.identity.name, hardware


@pytest.mark.usefixtures("rocm")
def test_it_names_a_gpu_and_knows_its_clock_limits(fake_root: Path, stepped_clock: SteppedClock) -> None:
    machine = DrmMachine(fake_root)
    folder = machine.add_mi300x(compute="CPX", memory="NPS4")
    (machine.root / folder / "product_name").unlink(missing_ok=True)
    name, hardware = read(machine, stepped_clock)
    assert name == f"{NAME} (CPX/NPS4)"
    assert (hardware.sm_clock_max_mhz, hardware.memory_clock_max_mhz) == (2100, 1300)


@pytest.mark.usefixtures("rocm")
def test_a_name_of_the_kernel_stays(fake_root: Path, stepped_clock: SteppedClock) -> None:
    machine = DrmMachine(fake_root)
    folder = machine.add_mi300x()
    machine.write(f"{folder}/product_name", "Somebody's MI300X")
    name, hardware = read(machine, stepped_clock)
    assert (name, hardware.sm_clock_max_mhz) == ("Somebody's MI300X", 2100)


@pytest.mark.usefixtures("rocm")
def test_a_gpu_that_the_library_does_not_know_has_nothing_of_it() -> None:
    smi = AmdSmi(load_binding)
    assert smi.read("0000:99:00.0") == SmiReading()
    assert smi.read("no address") == SmiReading()
    smi.close()


@pytest.mark.usefixtures("_is_fresh")
def test_without_the_library_nothing_is_imported_or_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert AmdSmi(load_binding).read("0000:05:00.0") == SmiReading()
    assert "amdsmi" not in sys.modules
    assert capsys.readouterr().out == ""


def test_a_node_without_amd_loads_nothing_of_it() -> None:
    code = (
        "import sys\n"
        "from vramscope.engine.sampling.live import open_node\n"
        "producer = open_node(); producer.start(); producer.take(); producer.stop()\n"
        "print([name for name in sys.modules if 'amdsmi' in name or name.endswith('drm.smi')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
