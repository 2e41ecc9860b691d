"""A program of JAX: a stand-in answers for its devices, in the shape that JAX documents.

The real package is tried in `tests/engine/probe/test_jax_itself.py`.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests import REPOSITORY
from tests.engine.probe.hub import listen
from tests.engine.probe.processes import PROBE_FOLDER, finish, start
from tests.engine.probe.stand_in import MIB, StandInCuda, make_torch
from vramscope.engine.paths import SHIM
from vramscope.engine.probe.backends import HostBackend, find_backend
from vramscope.engine.probe.identity import find_capacity, identify_device
from vramscope.engine.probe.jax_backend import JaxBackend, describe_preallocation, find_jax, read_profile
from vramscope.engine.ranks.messages import Readings, SegmentsPart

PROFILE = REPOSITORY / "tests" / "engine" / "files" / "jax" / "cpu.prof"


class Device:
    """One device; without statistics, as on the host, if `stats` is None."""

    def __init__(self, number: int, platform: str, stats: dict[str, int] | None) -> None:
        self.id = number
        self.platform = platform
        self.device_kind = "Stand-in card"
        self.client = SimpleNamespace(platform_version="cuda 12090")
        self.stats = stats

    def memory_stats(self) -> dict[str, int] | None:
        return self.stats


def array(device: Device, *shape: int, parts: int = 1) -> SimpleNamespace:
    """Return an array of float32 of which a device has one of some equal parts."""
    return SimpleNamespace(
        shape=shape,
        dtype=SimpleNamespace(itemsize=4),
        devices=lambda: {device},
        sharding=SimpleNamespace(shard_shape=lambda whole: (whole[0] // parts, *whole[1:])),
    )


def stats(allocated: int, peak: int) -> dict[str, int]:
    return {
        "bytes_in_use": allocated * MIB,
        "peak_bytes_in_use": peak * MIB,
        "bytes_limit": 60 * MIB,
        "pool_bytes": 60 * MIB,
        "num_allocs": 7,
    }


Install = Callable[..., Any]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return what puts a stand-in of JAX among the loaded modules."""

    def put(devices: list[Device], *, is_up: bool = True, arrays: tuple[Any, ...] = ()) -> Any:
        def list_devices() -> list[Device]:
            assert is_up, "asking would make JAX take the devices"
            return devices

        jax: Any = ModuleType("jax")
        jax.__version__ = "0.0.stand-in"
        jax.local_devices = list_devices
        jax.live_arrays = lambda: list(arrays)
        jax.profiler = SimpleNamespace(device_memory_profile=PROFILE.read_bytes)
        bridge: Any = ModuleType("jax._src.xla_bridge")
        bridge.backends_are_initialized = lambda: is_up
        monkeypatch.setitem(sys.modules, "jax", jax)
        monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
        return jax

    return put


def test_nothing_is_asked_before_the_program_has_used_a_device(install: Install) -> None:
    jax = install([Device(0, "gpu", stats(1, 1))], is_up=False)
    assert find_jax() is None
    assert find_backend(jax, None) is None


def test_a_gpu_is_read_by_the_statistics_of_its_allocator(install: Install) -> None:
    jax = install([Device(0, "gpu", stats(0, 0)), Device(1, "gpu", stats(12, 30))])
    backend = find_backend(jax, None)
    assert backend is not None
    assert (backend.name, backend.find_device()) == ("cuda", 1)
    reading = backend.read(1)
    assert (reading.allocated_bytes, reading.reserved_bytes, reading.peak_bytes) == (
        12 * MIB,
        60 * MIB,
        30 * MIB,
    )
    # What JAX will take is known, what the card has is not.
    assert find_capacity(backend, 1, None) == 60 * MIB
    identity = identify_device(backend, 1)
    assert identity is not None
    assert (identity["name"], identity["total_bytes"]) == ("Stand-in card", None)


def test_torch_comes_first_where_it_trains(install: Install) -> None:
    device = Device(0, "cpu", None)
    install([device], arrays=(array(device, 1024, 1024),))
    cuda = StandInCuda()
    cuda.allocate(MIB)
    on_gpu, on_host = find_backend(make_torch(cuda), "cuda"), find_backend(make_torch(StandInCuda()), "cpu")
    assert on_gpu is not None
    assert on_gpu.module is cuda
    assert isinstance(on_host, HostBackend)


def test_rocm_is_told_from_cuda(install: Install) -> None:
    device = Device(0, "gpu", stats(1, 1))
    device.client.platform_version = "PJRT C API\nrocm 60300"
    assert JaxBackend(install([device])).name == "rocm"


def test_without_statistics_the_arrays_are_added_up(install: Install) -> None:
    device, other = Device(0, "cpu", None), Device(1, "cpu", None)
    arrays = (array(device, 1024, 1024), array(device, 1024, 1024, parts=4), array(other, 5))
    backend = JaxBackend(install([device, other], arrays=arrays))
    assert [it.allocated_bytes for it in backend.read_all()] == [5 * MIB, 20]
    assert (backend.name, backend.note()) == ("cpu", None)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "JAX preallocated 75 % of the device"),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".50"}, "JAX preallocated 50 % of the device"),
        ({"XLA_CLIENT_MEM_FRACTION": "0.9"}, "JAX preallocated 90 % of the device"),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "much"}, "JAX preallocated 75 % of the device"),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, "JAX takes device memory when it needs it"),
        ({"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, "JAX takes and frees each array at the driver"),
    ],
)
def test_a_note_explains_why_a_device_looks_full(variables: dict[str, str], said: str) -> None:
    assert describe_preallocation(variables).startswith(said)


def test_stacks_are_those_of_the_profile_that_jax_writes(install: Install) -> None:
    """The profile is one that JAX wrote on a host."""
    stacks = read_profile(PROFILE.read_bytes(), 0)
    assert stacks
    assert [size for size, _, _ in stacks] == sorted((size for size, _, _ in stacks), reverse=True)
    assert all(count > 0 and frames[0][1] > 0 for _, count, frames in stacks)
    assert read_profile(PROFILE.read_bytes(), 5) == []
    ours = JaxBackend(install([Device(0, "cpu", None)])).find_live_stacks(0)
    assert ours is not None
    assert not any("site-packages/jax/" in frames[0][0] for _, _, frames in ours)


PACKAGE = """
import sys, types
__version__ = "0.0.stand-in"
bridge = sys.modules["jax._src.xla_bridge"] = types.ModuleType("jax._src.xla_bridge")
bridge.is_up = False
bridge.backends_are_initialized = lambda: bridge.is_up
class Device:
    id, platform, device_kind, client = 0, "gpu", "Stand-in card", None
    def memory_stats(self):
        return {"bytes_in_use": 5 << 20, "peak_bytes_in_use": 9 << 20, "bytes_limit": 60 << 20}
device = Device()
def local_devices():
    assert bridge.is_up
    return [device]
class profiler:
    @staticmethod
    def device_memory_profile():
        return open(PROFILE, "rb").read()
"""


def test_a_process_reports_once_it_has_arrays_and_never_starts_jax(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text(f"PROFILE = {str(PROFILE)!r}\n{PACKAGE}")
    script = """
    before = probe.is_running()
    import jax
    print(before, probe.is_running(), jax.bridge.is_up, flush=True)
    sys.stdin.readline()
    jax.bridge.is_up = True
    sys.stdin.readline()
    print(failures())
    """
    with listen(tmp_path) as hub:
        process = start(tmp_path, script, environ={"XLA_PYTHON_CLIENT_MEM_FRACTION": ".4"})
        assert process.stdout is not None
        assert process.stdout.readline() == "False True False\n"
        assert hub.connections == []
        _press_enter(process)
        hub.wait_for(Readings)
        hello = hub.hello()
        assert (hello.jax, hello.torch, hello.backend) == ("0.0.stand-in", None, "cuda")
        assert hello.capacity_bytes == 60 * MIB
        assert hello.notes[0].startswith("JAX preallocated 40 % of the device")
        assert hub.readings()[-1][1] == 5 * MIB
        hub.ask_for("segments", request=3)
        assert hub.wait_for(SegmentsPart)[0].request == 3
        _press_enter(process)
        assert finish(process) == "[]\n"


def test_a_job_of_run_that_never_looks_for_torch_reports_too(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text(f"PROFILE = {str(PROFILE)!r}\n{PACKAGE}")
    job = {
        "PYTHONPATH": str(SHIM),
        "VRAMSCOPE_PROBE": str(PROBE_FOLDER),
        "VRAMSCOPE_RUNTIME_DIR": str(tmp_path),
    }
    with listen(tmp_path) as hub:
        script = "import jax, sys; jax.bridge.is_up = True; sys.stdin.readline()"
        process = start(tmp_path, script, prelude="", environ=job)
        hub.wait_for(Readings)
        assert (hub.hello().jax, hub.hello().torch) == ("0.0.stand-in", None)
        _press_enter(process)
        finish(process)


def _press_enter(process: Any) -> None:
    process.stdin.write("\n")
    process.stdin.flush()
