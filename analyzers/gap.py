"""The gap between live tensors and device used, explained: what fills a device, part by part.

Device used is NVML's number for the whole device. Within a process it is the caching allocator's segments
(`memory_reserved`) and what is outside of them: the context, NCCL, cuBLAS workspaces. Terms as in PyTorch.
A server of models holds weights and a KV pool, as its plan says; how much of the pool is in use, it reports.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from typing import Literal, NamedTuple

import msgspec

from ..engine.model import AllocatorReading, DeviceSample, RankSample, ServerDevice, ServerSample
from ..engine.unmeasured import sum_all
from .serving_places import find_engine, find_rank_plan

PartKind = Literal[
    "weights",
    "kv_used",
    "kv_cached",
    "kv_free",
    "graphs",
    "workspace",
    "allocated",
    "awaiting_free",
    "stranded",
    "cached",
    "context",
    "other_processes",
    "unattributed",
]

NAMES: dict[PartKind, str] = {
    "weights": "weights",
    "kv_used": "KV in use",
    "kv_cached": "KV cached",
    "kv_free": "KV free",
    "graphs": "CUDA graphs",
    "workspace": "workspace",
    "allocated": "live tensors",
    "awaiting_free": "awaiting free",
    "stranded": "stranded",
    "cached": "cached",
    "context": "context and libraries",
    "other_processes": "other processes",
    "unattributed": "unattributed",
}
# Where ranks train in the host's memory, which holds no context.
HOST_NAMES = NAMES | {"context": "the rest of the processes", "other_processes": "other programs"}
_POOL: tuple[PartKind, ...] = ("kv_used", "kv_cached", "kv_free")
_SERVER: tuple[PartKind, ...] = ("weights", *_POOL, "graphs", "workspace", "context")
# What an allocator holds, and what comes after it.
_ALL: tuple[PartKind, ...] = tuple(kind for kind in NAMES if kind not in _SERVER or kind == "context")
# Shorter than the names of all of its parts.
_JOINED: dict[tuple[PartKind, ...], str] = {
    _POOL: "KV pool",
    _SERVER: "weights, KV pool and the rest of the server",
    _SERVER[:-1]: "weights, KV pool and workspace",
    ("weights", "graphs", "workspace", "context"): "weights and the rest of the server",
    ("graphs", "workspace", "context"): "graphs, workspace and context",
    ("workspace", "context"): "workspace and context",
}


class GapPart(msgspec.Struct, frozen=True):
    # One kind, or those that cannot be told apart.
    kinds: tuple[PartKind, ...]
    name: str
    size_bytes: int


class MemoryGap(msgspec.Struct, frozen=True):
    """What fills a device; None where unknown."""

    used_bytes: int | None
    # In the order of `NAMES`; they add up to `used_bytes` exactly. Empty where that is unknown.
    parts: tuple[GapPart, ...] = ()
    # Whether the readings fit together; those of driver and allocator are not of one instant. Where they do
    # not, the later parts were cut to what is used.
    is_consistent: bool = True
    # Internal fragmentation: bytes within live blocks beyond those requested (allocated − requested).
    internal_bytes: int | None = None
    # Most that the allocators here can really reserve: what they have and what is free, or their limit.
    capacity_bytes: int | None = None

    def size_of(self, kind: PartKind) -> int | None:
        """Return the bytes of a kind that is a part of its own; None where it is joined with others."""
        return next((part.size_bytes for part in self.parts if part.kinds == (kind,)), None)


class Activations(NamedTuple):
    """Activations, buffers and temporary tensors: the peak of a step less what the optimizers hold."""

    size_bytes: int
    # Whether the peak is exact; a sampled peak is a lower bound, and so is this.
    is_exact: bool


def explain_gap(
    device: DeviceSample, ranks: Sequence[RankSample], servers: Sequence[ServerSample] = ()
) -> MemoryGap:
    """Explain what fills a device; ranks and servers of other devices, or that have ended, are left out."""
    placed = [
        _Placed(server, place) for server in servers for place in server.devices if place.uuid == device.uuid
    ]
    serving = {pid for it in placed for pid in it.place.pids}
    living = [
        rank
        for rank in ranks
        if rank.device_uuid == device.uuid and rank.state != "ended" and rank.pid not in serving
    ]
    used = device.memory.used_bytes
    parts = tuple[GapPart, ...]()
    is_consistent = True
    if used is not None:
        names = HOST_NAMES if device.kind == "cpu" else NAMES
        parts, is_consistent = _fit(tuple(_split(device, living, placed)), used, names)
    allocated = _add(living, _read_allocated)
    requested = _add(living, lambda reading: reading.requested_bytes)
    return MemoryGap(
        used_bytes=used,
        parts=parts,
        is_consistent=is_consistent,
        internal_bytes=None if allocated is None or requested is None else max(0, allocated - requested),
        capacity_bytes=find_capacity(device, living),
    )


def find_activations(rank: RankSample) -> Activations | None:
    """Return the peak of a process's newest step less what its optimizers hold and what it keeps.

    Returns:
        None where one part is unknown, or more is held than the peak that was seen.
    """
    step = rank.step
    held = _sum_held(rank)
    if step is None or step.peak_bytes is None or held is None:
        return None
    rest = step.peak_bytes - held - (find_kept(rank) or 0)
    return Activations(rest, step.is_peak_exact) if rest >= 0 else None


def find_kept(rank: RankSample) -> int | None:
    """Return the bytes that a process keeps from step to step in addition to what its optimizers hold.

    That is the floor of its newest step less the model's state, as in the summary of a flight record. Where
    gradients are gone at the floor it is a lower bound. None where one of both is unknown.
    """
    held = _sum_held(rank)
    floor = None if rank.step is None else rank.step.floor_bytes
    return None if floor is None or held is None else max(0, floor - held)


def _sum_held(rank: RankSample) -> int | None:
    """Return what the optimizers hold; None where one part is unknown."""
    state = rank.model_state
    if state is None:
        return None
    held = sum_all((state.parameters_bytes, state.gradients_bytes, state.optimizer_bytes))
    return None if held is None else held + (state.grad_sample_bytes or 0)


def find_capacity(device: DeviceSample, ranks: Sequence[RankSample]) -> int | None:
    """Return the most bytes that the allocators of these processes can reserve together on their device.

    That is what they have reserved and what is free (others keep theirs), or the sum of their limits
    (`set_per_process_memory_fraction`) where that is less.
    """
    reserved = _add(ranks, lambda reading: reading.reserved_bytes)
    free = device.memory.free_bytes
    if reserved is None or free is None:
        return None
    limits = [rank.capacity_bytes for rank in ranks if rank.capacity_bytes is not None]
    reachable = reserved + free
    return min(reachable, sum(limits)) if len(limits) == len(ranks) else reachable


def find_own_gap(device: DeviceSample, rank: RankSample) -> int | None:
    """Return the bytes that one process holds on its device beyond live tensors; None where unknown."""
    allocator = rank.allocator or AllocatorReading()
    held = {process.pid: process.used_bytes for process in device.processes or ()}.get(rank.pid)
    if held is None or allocator.allocated_bytes is None:
        return None
    return max(0, held - allocator.allocated_bytes)


class _Part(NamedTuple):
    """Parts that cannot be separated; without a size they are all that is left, and come last."""

    kinds: tuple[PartKind, ...]
    size_bytes: int | None


class _Placed(NamedTuple):
    """A server, and its part on one device."""

    server: ServerSample
    place: ServerDevice


def _split(
    device: DeviceSample, ranks: Sequence[RankSample], placed: Sequence[_Placed] = ()
) -> Iterator[_Part]:
    if device.kind == "cpu":
        yield from _split_host(ranks)
        return
    pids = {pid for it in placed for pid in it.place.pids}
    inner = [part for it in placed for part in _split_server(device, it, is_alone=_is_alone(device, pids))]
    inner += _split_allocators(ranks) if ranks else ()
    yield from inner
    if all(part.size_bytes is not None for part in inner):
        yield from _split_outside(device, ranks, pids)


def _is_alone(device: DeviceSample, pids: Set[int]) -> bool:
    return device.processes is not None and all(it.pid in pids for it in device.processes)


def _split_server(device: DeviceSample, placed: _Placed, *, is_alone: bool) -> Iterator[_Part]:
    """Yield what a server holds on a device; what its plan does not say shares a name."""
    server, place = placed
    held = place.used_bytes
    if held is None and is_alone:
        held = device.memory.used_bytes
    if server.state == "asleep":
        yield _Part(("graphs", "workspace", "context"), held)
        return
    plan = find_rank_plan(server, place)
    parts = list(_split_plan(server, place)) if plan is not None else []
    if server.resident_bytes is not None and len(server.devices) == 1:
        parts = [_Part(_SERVER[:-1], server.resident_bytes)]
    yield from parts
    named = {kind for part in parts for kind in part.kinds}
    rest = tuple(kind for kind in _SERVER if kind not in named)
    known = sum(part.size_bytes or 0 for part in parts)
    yield _Part(rest, None if held is None else max(0, held - known))


def _split_plan(server: ServerSample, place: ServerDevice) -> Iterator[_Part]:
    plan = find_rank_plan(server, place)
    if plan is None:
        return
    if plan.weights_bytes is not None:
        yield _Part(("weights",), plan.weights_bytes)
    if plan.cache_bytes is not None:
        pool = plan.cache_bytes + (plan.states_bytes or 0)
        engine = find_engine(server, place)
        share = None if engine is None else engine.used_share
        if engine is None or share is None:
            yield _Part(_POOL, pool)
        else:
            used = round(share * pool)
            yield _Part(("kv_used",), used)
            if engine.cached_tokens is None or not engine.pool_tokens:
                yield _Part(("kv_cached", "kv_free"), pool - used)
            else:
                cached = min(pool - used, round(engine.cached_tokens / engine.pool_tokens * pool))
                yield _Part(("kv_cached",), cached)
                yield _Part(("kv_free",), pool - used - cached)
    if plan.graphs_bytes is not None:
        yield _Part(("graphs",), max(0, plan.graphs_bytes))


def _split_host(ranks: Sequence[RankSample]) -> Iterator[_Part]:
    """Yield the parts of host memory, whose allocator reports no cache."""
    allocated = _add(ranks, _read_allocated)
    residents = [rank.resident_bytes for rank in ranks]
    known = [resident for resident in residents if resident is not None]
    if allocated is not None:
        yield _Part(("allocated",), allocated)
    own: tuple[PartKind, ...] = ("context",) if allocated is not None else ("allocated", "context")
    if len(known) == len(residents):
        yield _Part(own, max(0, sum(known) - (allocated or 0)))
        yield _Part(("other_processes",), None)
    else:
        yield _Part((*own, "other_processes"), None)


def _split_allocators(ranks: Sequence[RankSample]) -> Iterator[_Part]:
    """Yield what the allocators hold; where they do not report how much, the last part gets all the rest."""
    allocated = _add(ranks, _read_allocated)
    reserved = _add(ranks, lambda reading: reading.reserved_bytes)
    if allocated is None:
        yield _Part(_ALL[: _ALL.index("context")] if reserved is not None else _ALL, reserved)
        return
    yield _Part(("allocated",), allocated)
    if reserved is None:
        yield _Part(_ALL[1:], None)
        return
    rest = reserved - allocated
    together = list[PartKind]()
    active = _add(ranks, lambda reading: reading.active_bytes)
    awaiting = None if active is None else active - allocated
    stranded = _add(ranks, lambda reading: reading.inactive_split_bytes)
    kinds: tuple[PartKind, PartKind] = ("awaiting_free", "stranded")
    for kind, size in zip(kinds, (awaiting, stranded), strict=True):
        if size is None:
            together.append(kind)
        else:
            yield _Part((kind,), size)
            rest -= max(0, size)
    yield _Part((*together, "cached"), rest)


def _split_outside(
    device: DeviceSample, ranks: Sequence[RankSample], served: Set[int] = frozenset()
) -> Iterator[_Part]:
    context = _find_context(device, ranks)
    others = _find_others(device, ranks, served)
    if context is None:
        yield _Part(("context", "other_processes", "unattributed"), None)
        return
    if ranks:
        yield _Part(("context",), context)
    if others is None:
        yield _Part(("other_processes", "unattributed"), None)
    else:
        yield _Part(("other_processes",), others)
        yield _Part(("unattributed",), None)


def _find_context(device: DeviceSample, ranks: Sequence[RankSample]) -> int | None:
    """Return what the processes hold outside of their allocators, according to the driver or the model."""
    if device.kind == "simulated":
        return sum(rank.context_bytes or 0 for rank in ranks)
    held = {process.pid: process.used_bytes for process in device.processes or ()}
    contexts = []
    for rank in ranks:
        used = held.get(rank.pid)
        reserved = (rank.allocator or AllocatorReading()).reserved_bytes
        if used is None or reserved is None:
            return None
        contexts.append(max(0, used - reserved))
    return sum(contexts)


def _find_others(device: DeviceSample, ranks: Sequence[RankSample], served: Set[int]) -> int | None:
    """Return what processes hold that neither report nor serve; None where the driver does not say."""
    if device.kind == "simulated":
        return 0
    pids = {rank.pid for rank in ranks} | served
    if device.processes is None:
        return None
    return sum_all(process.used_bytes for process in device.processes if process.pid not in pids)


def _fit(parts: Sequence[_Part], used: int, names: dict[PartKind, str]) -> tuple[tuple[GapPart, ...], bool]:
    """Return the parts cut to what is used, and whether nothing had to be cut."""
    fitted = []
    left = used
    is_consistent = True
    for kinds, size in parts:
        taken = left if size is None else min(max(0, size), left)
        is_consistent = is_consistent and size in (None, taken)
        left -= taken
        name = _JOINED.get(kinds) or _join([names[kind] for kind in kinds])
        fitted.append(GapPart(kinds, name, taken))
    return tuple(fitted), is_consistent


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _read_allocated(reading: AllocatorReading) -> int | None:
    return reading.allocated_bytes


def _add(ranks: Sequence[RankSample], read: Callable[[AllocatorReading], int | None]) -> int | None:
    """Return the sum over all processes; None without processes, or where one has not reported."""
    return sum_all(read(rank.allocator or AllocatorReading()) for rank in ranks) if ranks else None
