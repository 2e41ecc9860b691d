"""Samples of nodes with simulated servers."""

from vramscope.engine.model import (
    DeviceSample,
    MemoryReading,
    ProcessReading,
    Sample,
    ServerDevice,
    ServerSample,
)
from vramscope.engine.model.serving import RankStart, ServerKind, ServerState
from vramscope.engine.sources.serving.answers import read_answer
from vramscope.engine.workloads.serving.formats import Format, answer
from vramscope.engine.workloads.serving.server import SimulatedServer

NODE = "node"
PID = 4711
KINDS: dict[Format, ServerKind] = {"vllm": "vLLM", "sglang": "SGLang"}


def describe_server(
    server: SimulatedServer,
    *,
    kind: Format = "vllm",
    plan: tuple[RankStart, ...] | None = None,
    state: ServerState | None = None,
    has_sizes: bool = True,
) -> ServerSample:
    """Return what a reader makes of a simulated server: its real text, parsed."""
    page = answer(server, kind, "/metrics")
    assert page is not None
    found = read_answer(KINDS[kind], {"/metrics": page[1].encode()})
    tensor = server.setup.tensor
    return ServerSample(
        KINDS[kind],
        "http://127.0.0.1:8000",
        url="http://127.0.0.1:8000",
        state=state or ("asleep" if server.is_asleep else "ok"),
        pid=PID,
        model=found.model,
        is_simulated=True,
        engines=found.engines,
        devices=tuple(
            ServerDevice(f"GPU-{at}", (PID + at,), None, server.used_bytes if has_sizes else None)
            for at in range(tensor)
        ),
        plan=found.ranks if plan is None else plan,
        plan_source="metrics" if found.ranks else None if plan is None else "log",
        utilization=found.utilization or server.setup.plan.share,
        longest=server.setup.longest,
        most_sequences=server.setup.most_sequences,
    )


def plan_of(server: SimulatedServer) -> tuple[RankStart, ...]:
    """Return the plan of each rank, as its start-up log says."""
    plan = server.setup.plan
    return tuple(
        RankStart(
            f"TP{rank}" if server.setup.tensor > 1 else "0",
            weights_bytes=plan.weights_bytes,
            activations_bytes=plan.activations_bytes,
            cache_bytes=plan.pool_bytes,
            graphs_bytes=plan.graphs_bytes,
            device_bytes=plan.total_bytes,
            share_bytes=plan.share_bytes,
        )
        for rank in range(server.setup.tensor)
    )


def describe_device(server: SimulatedServer, at: int = 0, *, other_bytes: int = 0) -> DeviceSample:
    total = server.setup.plan.total_bytes
    used = min(total, server.used_bytes + other_bytes)
    others = (ProcessReading(99, command="python train.py", used_bytes=other_bytes),) if other_bytes else ()
    held = ProcessReading(PID + at, command="VLLM::EngineCore", used_bytes=server.used_bytes)
    return DeviceSample(
        f"GPU-{at}",
        at,
        age_s=0.0,
        memory=MemoryReading(total, used, total - used),
        processes=(held, *others),
    )


def make_sample(server: SimulatedServer, seq: int, *, kind: Format = "vllm", other_bytes: int = 0) -> Sample:
    """Return the node at the moment that the simulation has reached."""
    return Sample(
        NODE,
        seq,
        1_000_000.0 + server.now_s,
        1.0,
        devices=tuple(
            describe_device(server, at, other_bytes=other_bytes) for at in range(server.setup.tensor)
        ),
        servers=(describe_server(server, kind=kind, plan=plan_of(server)),),
    )
