"""The plan of a server on one device, and the engine that its ranks belong to."""

import re
from collections.abc import Sequence

from ..engine.model import EngineReading, ServerDevice, ServerSample
from ..engine.model.serving import RankStart

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


def _is_like(one: RankStart, other: RankStart) -> bool:
    pairs = ((one.weights_bytes, other.weights_bytes), (one.cache_bytes, other.cache_bytes))
    return all(a is None or b is None or abs(a - b) <= _LIKE * max(abs(a), abs(b)) for a, b in pairs)
