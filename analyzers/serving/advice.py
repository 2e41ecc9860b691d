"""What to change about a server, with numbers computed from its plan and its present load."""

import math
from collections.abc import Iterator
from typing import Final, Literal

from ...engine.model import DeviceSample, EngineReading, ServerDevice, ServerKind, ServerSample
from ...engine.model.serving import RankStart
from ...engine.units import GIB, MIB, format_bytes, format_share
from ..serving_places import find_rank_plan

Setting = Literal["share", "sequences", "longest", "pool"]
_FLAGS: Final[dict[ServerKind, dict[Setting, str]]] = {
    "vLLM": {
        "share": "--gpu-memory-utilization",
        "sequences": "--max-num-seqs",
        "longest": "--max-model-len",
        "pool": "--kv-cache-memory",
    },
    "SGLang": {
        "share": "--mem-fraction-static",
        "sequences": "--max-running-requests",
        "longest": "--context-length",
    },
    # Its share is one of what weights leave free, so no number of ours would be right.
    "TensorRT-LLM": {"sequences": "--max_batch_size", "longest": "--max_seq_len"},
    "llama.cpp": {"sequences": "--parallel", "longest": "--ctx-size"},
}
# What a server takes outside of its pool while it runs: a CUDA context, graphs, communication, the heap of
# the allocator. Less than this left free is where servers run out.
LEAST_OUTSIDE_BYTES = 512 * MIB
# What is left free when more is given to the pool.
SPARE_BYTES = GIB
# Share of the pool that sequences may fill on average, so that their fluctuation still fits.
COMFORTABLE_SHARE = 0.85
_LEAST_GAIN = 0.01


def name_flag(server: ServerSample, setting: Setting) -> str | None:
    """Return the flag of a server's command line; None where it has none."""
    return None if server.kind is None else _FLAGS.get(server.kind, {}).get(setting)


def advise_pool(server: ServerSample, engine: EngineReading, devices: dict[str, DeviceSample]) -> str:
    """Say what would keep the pool of an engine from being exhausted, in one sentence."""
    found = [*_use_free(server, devices), *_limit_sequences(server, engine), *_limit_length(server, engine)]
    if not found:
        return "Send some of the requests to another replica, or serve it with more tensor parallelism"
    return "; or ".join(found)


def _use_free(server: ServerSample, devices: dict[str, DeviceSample]) -> Iterator[str]:
    """Advise to give free memory of the devices to the pool."""
    flag = name_flag(server, "share")
    now = server.utilization
    rooms = []
    for place in server.devices:
        device = devices.get(place.uuid)
        if device is None or device.memory.free_bytes is None or not device.memory.total_bytes:
            return
        rooms.append(((device.memory.free_bytes - SPARE_BYTES) / device.memory.total_bytes, device, place))
    if flag is None or now is None or not rooms:
        return
    gain, device, place = min(rooms, key=lambda room: room[0])
    value = math.floor(100 * (now + gain)) / 100
    if value < now + _LEAST_GAIN or not device.memory.total_bytes:
        return
    more_bytes = round((value - now) * device.memory.total_bytes)
    tokens = _count_tokens(server, find_rank_plan(server, place), more_bytes)
    yield (
        f"{flag} {value:g} (now {now:g}) gives the pool {format_bytes(more_bytes)} more{tokens} and leaves "
        f"{format_bytes(SPARE_BYTES)} or more free"
    )


def _count_tokens(server: ServerSample, plan: RankStart | None, size_bytes: int) -> str:
    pool = None if len(server.engines) != 1 else server.engines[0].pool_tokens
    if plan is None or not plan.cache_bytes or not pool:
        return ""
    return f", {size_bytes * pool // plan.cache_bytes:,} tokens"


def _limit_sequences(server: ServerSample, engine: EngineReading) -> Iterator[str]:
    """Advise the number of sequences that fit by their present mean length."""
    flag = name_flag(server, "sequences")
    running = engine.running
    if flag is None or not running or not engine.used_share or engine.used_share < 0.3:
        return
    most = max(1, int(COMFORTABLE_SHARE * running / engine.used_share))
    if server.most_sequences is not None and most >= server.most_sequences:
        return
    now = "" if server.most_sequences is None else f" (now {server.most_sequences:,})"
    yield (
        f"{flag} {most:,}{now} keeps sequences of their present length within "
        f"{format_share(COMFORTABLE_SHARE)} of the pool: others wait instead of being computed twice"
    )


def _limit_length(server: ServerSample, engine: EngineReading) -> Iterator[str]:
    """Advise a shorter longest sequence where not even two of the longest fit at once."""
    flag = name_flag(server, "longest")
    pool = engine.pool_tokens
    if flag is None or server.longest is None or not pool or pool >= 2 * server.longest:
        return
    yield f"{flag} {pool // 2:,} (now {server.longest:,}) lets two of the longest requests fit at once"


def advise_outside(server: ServerSample, place: ServerDevice, device: DeviceSample) -> str:
    """Say how to leave room outside of the pool, in one sentence."""
    free = device.memory.free_bytes
    total = device.memory.total_bytes
    share = name_flag(server, "share")
    pool = name_flag(server, "pool")
    plan = find_rank_plan(server, place)
    if free is None or not total:
        return "Start nothing else on this device"
    missing = max(0, SPARE_BYTES - free)
    found = []
    if share is not None and server.utilization is not None:
        value = math.floor(100 * (server.utilization - missing / total)) / 100
        found.append(f"{share} {value:g} (now {server.utilization:g})")
    if pool is not None and plan is not None and plan.cache_bytes is not None and plan.cache_bytes > missing:
        found.append(f"{pool} {plan.cache_bytes - missing} (now {plan.cache_bytes} bytes)")
    if not found:
        return f"Give the server {format_bytes(missing)} less of the device, and start nothing else on it"
    return f"Restart with {' or '.join(found)}, which leaves {format_bytes(SPARE_BYTES)} free"
