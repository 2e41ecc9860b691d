"""Which device a process uses and what its allocator says, asked by attribute of whatever torch has."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.probe.stand_in import MIB, StandInCuda, StandInOptimizer, make_torch
from vramscope.engine.probe.backends import NOTHING, Reading, find_backend
from vramscope.engine.probe.backends.reading import flatten, read_flat, read_nested
from vramscope.engine.probe.device_identity import find_capacity, identify_device
from vramscope.engine.probe.training_device import TrainingDevice


def read(device: TrainingDevice) -> Reading:
    backend, taken = device.take()
    assert backend is not None
    return backend.understand(taken)


def test_nothing_is_asked_before_the_program_has_initialised_the_device() -> None:
    cuda = StandInCuda()
    cuda.is_ready = False
    assert find_backend(make_torch(cuda), None) is None
    host = find_backend(make_torch(cuda), "cpu")
    assert host is not None
    assert (host.name, host.read(None)) == ("cpu", NOTHING)


def test_nested_and_flat_statistics_give_the_same_reading() -> None:
    cuda = StandInCuda()
    cuda.allocate(30 * MIB)
    cuda.allocate(-10 * MIB)
    nested = cuda.memory_stats_as_nested_dict(0)
    flat = flatten(nested)
    assert len(flat) == 122
    assert read_nested(nested) == read_flat(flat)
    reading = read_nested(nested)
    assert (reading.allocated_bytes, reading.peak_bytes, reading.reserved_bytes) == (
        20 * MIB,
        30 * MIB,
        30 * MIB,
    )
    assert reading.allocations == 1
    assert read_nested({}) == read_flat({}) == NOTHING


def test_older_statistics_without_some_figures_leave_them_unmeasured() -> None:
    stats = {"allocated_bytes": {"all": {"current": 5}}, "num_ooms": 0}
    reading = read_nested(stats)
    assert (reading.allocated_bytes, reading.ooms) == (5, 0)
    assert (reading.requested_bytes, reading.retries, reading.peak_bytes) == (None, None, None)


def test_the_device_is_that_of_the_parameters_else_the_one_that_holds_most() -> None:
    cuda = StandInCuda(devices=4)
    device = TrainingDevice(make_torch(cuda))
    assert not device.look()
    cuda.allocate(2 * MIB, device=3)
    cuda.allocate(1 * MIB, device=1)
    assert device.look()
    assert device.index == 3
    device.note_optimizer(StandInOptimizer(index=1))
    assert (device.index, read(device).allocated_bytes) == (1, MIB)


def test_parameters_that_are_offloaded_to_the_host_do_not_hide_the_device() -> None:
    cuda = StandInCuda()
    device = TrainingDevice(make_torch(cuda))
    device.note_optimizer(StandInOptimizer("cpu", None))
    assert device.backend is not None
    assert device.backend.name == "cpu"
    cuda.allocate(MIB)
    device.look_again()
    assert (device.backend.name, device.index) == ("cuda", 0)


def test_rocm_answers_by_the_names_of_cuda() -> None:
    cuda = StandInCuda()
    torch = make_torch(cuda)
    torch.version.hip = "6.0"
    backend = find_backend(torch, "cuda")
    assert backend is not None
    assert backend.name == "rocm"


def test_other_accelerators_are_found_by_what_they_have() -> None:
    xpu = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 1,
        memory_stats=lambda device: {"allocated_bytes.all.current": 7, "reserved_bytes.all.current": 9},
    )
    accelerator = SimpleNamespace(
        current_accelerator=lambda: SimpleNamespace(type="npu"),
        device_count=lambda: 1,
        memory_stats=lambda device: {"allocated_bytes.all.current": 11},
    )
    mps = SimpleNamespace(current_allocated_memory=lambda: 13, driver_allocated_memory=lambda: 17)
    torch = SimpleNamespace(xpu=xpu, accelerator=accelerator, mps=mps, npu=SimpleNamespace())
    found = {kind: find_backend(torch, kind) for kind in ("xpu", "npu", "mps")}
    told = {
        kind: (backend.name, backend.read(0).allocated_bytes, backend.read(0).reserved_bytes)
        for kind, backend in found.items()
        if backend is not None
    }
    assert told == {"xpu": ("xpu", 7, 9), "npu": (None, 11, None), "mps": ("mps", 13, 17)}
    assert found["npu"] is not None
    assert "npu" in str(found["npu"].note())


def test_figures_that_nobody_counts_are_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = StandInCuda()
    cuda.allocate(MIB)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    expandable = find_backend(make_torch(cuda), "cuda")
    assert expandable is not None
    assert expandable.read(0).inactive_split_bytes is None
    assert expandable.read(0).requested_bytes == MIB
    asynchronous: Any = cuda
    asynchronous.get_allocator_backend = lambda: "cudaMallocAsync"
    backend = find_backend(make_torch(cuda), "cuda")
    assert backend is not None
    assert backend.read(0)[:7] == (MIB, None, None, MIB, None, None, None)
    assert "cudaMallocAsync" in str(backend.note())


def test_pinned_memory_is_read_in_both_shapes() -> None:
    cuda = StandInCuda()
    cuda.pinned = 5
    backend = find_backend(make_torch(cuda), "cuda")
    assert backend is not None
    assert backend.read_pinned() == 5
    older: Any = SimpleNamespace(is_initialized=lambda: True, host_memory_stats=lambda: {})
    older.host_memory_stats = lambda: {"allocated_bytes.current": 6}
    backend = find_backend(SimpleNamespace(cuda=older), "cuda")
    assert backend is not None
    assert backend.read_pinned() == 6


@pytest.mark.parametrize(
    ("visible", "uuid"),
    [
        ("", "GPU-11111111-2222-3333-4444-000000000001"),
        ("3,2", "GPU-11111111-2222-3333-4444-000000000001"),
        ("x,MIG-aaaa", "MIG-aaaa"),
    ],
)
def test_a_device_is_spelled_as_nvml_spells_it(
    monkeypatch: pytest.MonkeyPatch, visible: str, uuid: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    backend = find_backend(make_torch(StandInCuda(2)), "cuda")
    assert backend is not None
    assert identify_device(backend, 1) == {
        "index": 1,
        "uuid": uuid,
        "name": "Stand-in 24G",
        "total_bytes": 24 * 1024 * MIB,
        "pci_bus_id": "00000000:3C:00.0",
    }


def test_without_a_uuid_in_torch_the_one_that_was_made_visible_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = "GPU-99999999-2222-3333-4444-000000000001"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{whole},GPU-9999")
    cuda: Any = StandInCuda(2)
    cuda.get_device_properties = lambda index: SimpleNamespace(name="older", total_memory=5)
    backend = find_backend(make_torch(cuda), "cuda")
    assert backend is not None
    identities = [identify_device(backend, index) for index in (0, 1)]
    assert [identity["uuid"] for identity in identities if identity] == [whole, None]


def test_a_simulated_device_says_so_and_is_asked_nothing_else() -> None:
    cuda: Any = StandInCuda()
    cuda._vramscope_simulated = {"job": "j7", "index": 2, "total_bytes": 24, "context_bytes": 3, "notes": []}
    cuda.get_device_properties = None
    backend = find_backend(make_torch(cuda), "cuda")
    assert backend is not None
    identity = identify_device(backend, 0)
    assert identity is not None
    assert (identity["uuid"], identity["total_bytes"]) == ("sim-j7-2", 24)


def test_capacity_is_told_only_where_the_program_has_limited_it() -> None:
    cuda = StandInCuda()
    backend = find_backend(make_torch(cuda), "cuda")
    assert backend is not None
    assert find_capacity(backend, 0, 1000) is None
    cuda.fraction = 0.5
    assert find_capacity(backend, 0, 1000) == 500
    assert find_capacity(backend, 0, None) is None
