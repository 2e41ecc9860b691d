"""What fills the device of a server, part by part; what cannot be told apart shares a name."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from vramscope.analyzers.gap import explain_gap
from vramscope.engine.files.serving_log import read_serving_log
from vramscope.engine.model import AllocatorReading, RankSample, ServerDevice, ServerSample
from vramscope.engine.units import GIB
from vramscope.engine.workloads.serving.formats import Format
from vramscope.engine.workloads.serving.pool import Rate, Traffic
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer

from .servers import describe_device, describe_server, plan_of


@pytest.fixture
def server() -> SimulatedServer:
    made = SimulatedServer(ServerSetup(), seed=1)
    made.advance(60.0)
    return made


def test_the_parts_add_up_and_are_those_of_the_plan(server: SimulatedServer) -> None:
    plan = server.setup.plan
    gap = explain_gap(describe_device(server), (), [describe_server(server, plan=plan_of(server))])
    assert sum(part.size_bytes for part in gap.parts) == gap.used_bytes == server.used_bytes
    assert gap.is_consistent
    assert gap.size_of("weights") == plan.weights_bytes
    assert gap.size_of("graphs") == plan.graphs_bytes
    assert gap.size_of("kv_used") == pytest.approx(server.engines[0].used_share * plan.pool_bytes, rel=1e-6)
    names = [part.name for part in gap.parts if part.size_bytes]
    assert names == ["weights", "KV in use", "KV cached and KV free", "CUDA graphs", "workspace and context"]
    rest = gap.parts[4].size_bytes
    assert rest == plan.activations_bytes + plan.libraries_bytes + plan.context_bytes


def test_the_parts_add_up_on_each_device_of_tensor_parallelism_at_all_times() -> None:
    """Ranks repeat what they say of the pool: each device has its own share of it, once."""
    setup = ServerSetup(tensor=2, traffic=Traffic(Rate(((0.0, 5.0), (300.0, 40.0)))))
    server = SimulatedServer(setup, seed=3)
    while server.now_s < 300.0:
        server.advance(server.now_s + 20.0)
        kinds: tuple[Format, ...] = ("vllm", "sglang")
        for kind in kinds:
            plan = plan_of(server) if kind == "vllm" else None
            told = describe_server(server, kind=kind, plan=plan)
            assert len(told.engines) == 1
            assert told.engines[0].running == len(server.engines[0].running)
            for at in range(2):
                gap = explain_gap(describe_device(server, at), (), [told])
                assert sum(part.size_bytes for part in gap.parts) == gap.used_bytes == server.used_bytes
                used = server.engines[0].used_share * setup.plan.pool_bytes
                assert gap.size_of("kv_used") == pytest.approx(used, rel=0.01, abs=1024)


def test_sglang_tells_cached_from_free(server: SimulatedServer) -> None:
    gap = explain_gap(describe_device(server), (), [describe_server(server, kind="sglang")])
    engine = server.engines[0]
    pool = server.setup.plan.pool_bytes
    assert gap.size_of("kv_cached") == pytest.approx(
        engine.cached_blocks / engine.setup.blocks * pool, rel=1e-6
    )
    assert gap.size_of("kv_free") == pytest.approx(engine.free_blocks / engine.setup.blocks * pool, rel=1e-6)


def test_the_plan_of_a_log_fits_within_a_hundredth(server: SimulatedServer, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(server.write_log())
    plan = server.setup.plan
    gap = explain_gap(
        describe_device(server), (), [describe_server(server, plan=read_serving_log(log).ranks)]
    )
    assert gap.size_of("weights") == pytest.approx(plan.weights_bytes, rel=0.01)
    pool = sum(gap.size_of(kind) or 0 for kind in ("kv_used",)) + gap.parts[2].size_bytes
    assert pool == pytest.approx(plan.pool_bytes, rel=0.01)
    assert sum(part.size_bytes for part in gap.parts) == gap.used_bytes


def test_without_a_plan_the_server_is_one_part(server: SimulatedServer) -> None:
    gap = explain_gap(describe_device(server), (), [describe_server(server, plan=())])
    assert [part.name for part in gap.parts if part.size_bytes] == [
        "weights, KV pool and the rest of the server"
    ]


def test_replicas_that_cannot_be_told_apart_leave_the_pool_whole() -> None:
    two = SimulatedServer(ServerSetup(engines=2))
    two.advance(60.0)
    sample = describe_server(two, plan=plan_of(two))
    gap = explain_gap(describe_device(two), (), [sample])
    assert [part.name for part in gap.parts][:2] == ["weights", "KV pool"]
    named = replace(sample, devices=(ServerDevice("GPU-0", (4711,), "DP1_TP0", two.used_bytes),))
    share = two.engines[1].used_share
    expected = pytest.approx(share * two.setup.plan.pool_bytes, rel=1e-6)
    assert explain_gap(describe_device(two), (), [named]).size_of("kv_used") == expected


def test_a_trainer_next_to_the_server_is_told_apart(server: SimulatedServer) -> None:
    device = describe_device(server, other_bytes=4 * GIB)
    trainer = RankSample(
        99,
        device_uuid="GPU-0",
        allocator=AllocatorReading(allocated_bytes=2 * GIB, reserved_bytes=3 * GIB),
    )
    gap = explain_gap(device, [trainer], [describe_server(server, plan=plan_of(server))])
    assert gap.size_of("allocated") == 2 * GIB
    assert gap.size_of("context") == GIB
    assert gap.size_of("weights") == 15 * GIB
    assert sum(part.size_bytes for part in gap.parts) == gap.used_bytes


def test_other_processes_are_no_part_of_the_server(server: SimulatedServer) -> None:
    device = describe_device(server, other_bytes=4 * GIB)
    gap = explain_gap(device, (), [describe_server(server, plan=plan_of(server))])
    assert gap.size_of("other_processes") == 4 * GIB


def test_a_sleeping_server_holds_neither_weights_nor_pool(server: SimulatedServer) -> None:
    server.sleep()
    gap = explain_gap(describe_device(server), (), [describe_server(server, plan=plan_of(server))])
    assert [part.name for part in gap.parts if part.size_bytes] == ["graphs, workspace and context"]


def test_ollama_says_one_number(server: SimulatedServer) -> None:
    device = describe_device(server)
    ollama = ServerSample(
        "Ollama",
        "x",
        devices=(ServerDevice("GPU-0", (4711,), None, server.used_bytes),),
        resident_bytes=9 * GIB,
    )
    gap = explain_gap(device, (), [ollama])
    assert [(part.name, part.size_bytes) for part in gap.parts if part.size_bytes] == [
        ("weights, KV pool and workspace", 9 * GIB),
        ("context and libraries", server.used_bytes - 9 * GIB),
    ]
