"""Which device a process uses and what its allocator says, asked by attribute of whatever torch has."""

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.probe.clocks import WoundClock
from tests.engine.probe.hub import listen
from tests.engine.probe.stand_in import MIB, StandInCuda, StandInOptimizer, make_torch
from tests.waiting import wait_until
from vramscope.engine.jobs.job_peaks import read_peaks
from vramscope.engine.probe.backends import NOTHING, find_backend, flatten, read_flat, read_nested
from vramscope.engine.probe.base import current
from vramscope.engine.probe.identity import TrainingDevice, find_capacity, identify_device
from vramscope.engine.probe.peak_file import FOLDER_VARIABLE
from vramscope.engine.probe.sampler import WATCH_S
from vramscope.engine.probe.session import Session
from vramscope.engine.ranks.messages import Hello


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
    assert (device.index, device.read().allocated_bytes) == (1, MIB)


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


@pytest.mark.parametrize(
    ("stats", "held"),
    [
        ({"allocated_bytes": {"current": 5}, "active_bytes": {"current": 2}}, 5),
        ({"allocated_bytes": {"current": 2}, "reserved_bytes": {"current": 5}}, 5),
        ({"allocated_bytes.current": 5, "active_bytes.current": 2}, 5),
        ({"allocated_bytes.current": 2, "reserved_bytes.current": 5}, 5),
        ({"allocated_bytes": {"current": 2}}, None),
        ({}, None),
    ],
)
def test_pinned_memory_is_what_is_held_by_whatever_name_and_shape(
    stats: dict[str, Any], held: int | None
) -> None:
    module: Any = SimpleNamespace(is_initialized=lambda: True, host_memory_stats=lambda: stats)
    backend = find_backend(SimpleNamespace(cuda=module), "cuda")
    assert backend is not None
    assert backend.read_pinned() == held


def plug_in(cuda: Any) -> list[int]:
    """Let the stand-in answer as an allocator that is plugged in; return the devices it was asked about."""
    asked: list[int] = []

    def refuse(device: int = -1) -> None:
        asked.append(device)
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")

    cuda.memory_stats_as_nested_dict = refuse
    cuda.host_memory_stats_as_nested_dict = refuse
    cuda.get_per_process_memory_fraction = refuse
    return asked


def test_an_allocator_that_tells_nothing_is_announced_without_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current, "failures", [])
    cuda, clock = StandInCuda(), WoundClock()
    asked = plug_in(cuda)
    with listen(tmp_path) as hub:
        session = Session(make_torch(cuda), str(tmp_path), None, is_explicit=False, clock=clock)
        monkeypatch.setattr(current, "session", session)
        for _ in range(100):
            session.meet_optimizer(StandInOptimizer())
            clock.advance(session._tick() or 0.0)
        (hello,) = hub.wait_for(Hello)
        assert hello.device is not None
        assert hello.device.uuid == "GPU-11111111-2222-3333-4444-000000000000"
        assert hello.notes == ("the allocator of this process reports no sizes",)
        wait_until(lambda: len(hub.readings()) >= 90)
        assert {row[1:9] for row in hub.readings()} == {(None,) * 8}
        assert asked.count(0) < 20
        assert current.failures == []
        session.end("exit")


def test_an_allocator_that_refused_once_is_asked_again() -> None:
    cuda: Any = StandInCuda()
    cuda.allocate(MIB)
    answer = cuda.memory_stats_as_nested_dict
    plug_in(cuda)
    backend = find_backend(make_torch(cuda), "cuda")
    assert backend is not None
    assert backend.read(0) == NOTHING
    assert backend.note() is not None
    backend._ask = answer  # type: ignore[attr-defined]
    assert backend.read(0).allocated_bytes == MIB
    assert backend.note() is None


def test_devices_that_hold_bytes_and_are_not_followed_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = StandInCuda(devices=3)
    with listen(tmp_path) as hub:
        session = Session(make_torch(cuda), str(tmp_path), None, is_explicit=False, clock=WoundClock())
        monkeypatch.setattr(current, "session", session)
        cuda.allocate(5 * 1024 * MIB, device=0)
        cuda.allocate(3 * 1024 * MIB + 102 * MIB, device=1)
        session._tick()
        (hello,) = hub.wait_for(Hello)
        assert hello.notes == ("also uses 3.1 GiB on GPU 1, which is not monitored",)
        session.end("exit")
    cuda.allocate(2 * MIB, device=2)
    others = session._device.describe_others()
    assert others == "also uses 3.1 GiB on GPU 1, 2.0 MiB on GPU 2, which are not monitored"


def test_a_demand_that_the_allocator_refuses_leaves_the_readings_going(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current, "failures", [])
    monkeypatch.setattr("vramscope.engine.probe.demands._PAUSE_S", 0.0)
    cuda: Any = StandInCuda()
    cuda.allocate(MIB)

    def refuse(**_: object) -> None:
        raise RuntimeError("CUDAPluggableAllocator does not yet support snapshot.")

    def snapshot(mempool_id: object = None, include_traces: bool = True) -> None:
        refuse()

    cuda.memory_snapshot = snapshot
    with listen(tmp_path) as hub:
        clock = WoundClock()
        session = Session(make_torch(cuda), str(tmp_path), None, is_explicit=False, clock=clock)
        monkeypatch.setattr(current, "session", session)
        session._tick()
        hub.wait_for(Hello)

        def fails_again(count: int) -> bool:
            clock.advance(1.0)
            session._tick()
            return len(current.failures) == count

        for count in range(1, 5):
            hub.ask_for("segments", request=count)
            wait_until(functools.partial(fails_again, count))
        assert "the demand for segments failed" in current.failures[0]
        assert (session._tick() or WATCH_S) < WATCH_S
        session.end("exit")


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


def test_a_process_that_freed_all_before_anybody_looked_leaves_its_peaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    cuda = StandInCuda(devices=2)
    session = Session(make_torch(cuda), str(tmp_path), None, is_explicit=False, clock=WoundClock())
    cuda.allocate(30 * MIB, 1)
    cuda.allocate(-30 * MIB, 1)
    session.end("exit")
    (peaks,) = read_peaks(tmp_path)
    assert (peaks.allocated_bytes, peaks.device and peaks.device.index) == (30 * MIB, 1)


def test_a_process_that_never_used_a_device_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    Session(make_torch(StandInCuda()), str(tmp_path), None, is_explicit=False, clock=WoundClock()).end("exit")
    assert read_peaks(tmp_path) == []
