"""The plan of a server on one device, and the engine that its ranks belong to."""

import re
from collections.abc import Sequence

from ..engine.model import DeviceSample, EngineReading, Sample, ServerDevice, ServerSample
from ..engine.model.serving import RankStart
from ..engine.units import format_share
from ..engine.unmeasured import sum_all

# The finding about a server's pool, which the verdict says even where it is mild: it is what runs out there.
POOL_KIND = "kv_exhaustion"
# Share of what is used of a device from which its servers explain that it is full.
MOST_SHARE = 0.5
# Ranks whose sizes differ by less are planned alike.
_LIKE = 0.02
_REPLICA = re.compile(r"DP(\d+)")


def find_rank_plan(server: ServerSample, place: ServerDevice) -> RankStart | None:
    """Return what was planned for the rank on a device; None where ranks differ and cannot be told apart."""
    if not server.plan:
        return None
    if place.rank is not None:
        for rank in server.plan:
            if rank.name.replace(" ", "_") == place.rank:
                return rank
    first = server.plan[0]
    return first if all(_is_like(first, rank) for rank in server.plan[1:]) else None


def find_engine(server: ServerSample, place: ServerDevice) -> EngineReading | None:
    """Return the engine whose cache is on a device; None where replicas cannot be told apart."""
    if len(server.engines) == 1:
        return server.engines[0]
    replica = None if place.rank is None else _REPLICA.search(place.rank)
    if replica is None:
        return None
    return next((engine for engine in server.engines if engine.name == replica[1]), None)


def list_on(servers: Sequence[ServerSample], uuid: str) -> list[tuple[ServerSample, ServerDevice]]:
    """Return the servers on a device, each with its part there."""
    return [(server, place) for server in servers for place in server.devices if place.uuid == uuid]


def list_elsewhere(sample: Sample) -> list[ServerSample]:
    """Return the servers that are on no device of the sample: on another host, or on none that is known."""
    if not sample.servers:
        return []
    here = {device.uuid for device in sample.devices}
    return [it for it in sample.servers if not any(place.uuid in here for place in it.devices)]


def is_served(sample: Sample, device: DeviceSample) -> bool:
    """Return whether servers hold most of what is used of a device, as far as the driver says."""
    if not sample.servers:
        return False
    places = [place for _, place in list_on(sample.servers, device.uuid)]
    used = device.memory.used_bytes
    held = sum_all(place.used_bytes for place in places)
    if not places or used is None or held is None:
        return bool(places)
    return held >= MOST_SHARE * used


def is_answered_for(sample: Sample, device: DeviceSample) -> bool:
    """Return whether servers hold most of a device and say how much of their pools they use, or sleep."""
    servers = [server for server, _ in list_on(sample.servers, device.uuid)]
    return (
        bool(servers)
        and all(
            it.state == "asleep"
            or (it.state == "ok" and bool(it.engines) and all(e.used_share is not None for e in it.engines))
            for it in servers
        )
        and is_served(sample, device)
    )


def describe_serving(sample: Sample, device: DeviceSample) -> tuple[str, ...]:
    """Say what the servers of a device do, from complete to shortest; empty where none is on it."""
    found = list_on(sample.servers, device.uuid)
    if not found:
        return ()
    server, place = found[0]
    engine = find_engine(server, place) or next(iter(server.engines), None)
    kind = server.kind or "a server"
    more = "" if len(found) == 1 else f" and {len(found) - 1} more"
    if server.state != "ok" or engine is None or engine.used_share is None:
        return (f"{kind}{more} {'serves' if server.state == 'ok' else server.state}", kind)
    use = f"{kind}{more} uses {format_share(engine.used_share)} of its KV pool"
    queue = "" if engine.waiting is None else f", {engine.waiting:,} waiting"
    return (f"{use}{queue}", use, f"KV {format_share(engine.used_share)}")


def _is_like(one: RankStart, other: RankStart) -> bool:
    pairs = ((one.weights_bytes, other.weights_bytes), (one.cache_bytes, other.cache_bytes))
    return all(a is None or b is None or abs(a - b) <= _LIKE * max(abs(a), abs(b)) for a, b in pairs)
