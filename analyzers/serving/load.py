"""A server in numbers over all of its engines, and in one sentence."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...engine.model import EngineReading, ServerSample
from ...engine.units import format_share
from ...engine.unmeasured import sum_all
from ..sentence import Sentence, count
from .arrivals import LARGE_SHARE

# Use from which it matters that a small pool ends without a warning.
CHANCE_SHARE = 0.5


class Load(NamedTuple):
    """All engines of a server; None where one of them does not say."""

    running: int | None
    waiting: int | None
    used_share: float | None
    """Of the fullest engine."""
    cached_share: float | None
    """Of the same engine."""
    pool_tokens: int | None
    preemptions: int | None
    rejections: int | None
    hit_share: float | None
    """Share of the prompt tokens that were found in the prefix cache since the start."""
    few: int | None
    """Sequences that fill the pool, where it is more than half full and so small that it ends by chance."""


def sum_load(server: ServerSample) -> Load:
    engines = server.engines
    fullest = max(engines, key=lambda it: -1.0 if it.used_share is None else it.used_share, default=None)
    cached = None
    if fullest is not None and fullest.cached_tokens is not None and fullest.pool_tokens:
        cached = fullest.cached_tokens / fullest.pool_tokens
    queries = _add(engines, lambda it: it.prefix_queries)
    hits = _add(engines, lambda it: it.prefix_hits)
    rates = [it.hit_rate for it in engines if it.hit_rate is not None]
    share = hits / queries if queries and hits is not None else None
    return Load(
        _add(engines, lambda it: it.running),
        _add(engines, lambda it: it.waiting),
        None if fullest is None else fullest.used_share,
        cached,
        _add(engines, lambda it: it.pool_tokens),
        _add(engines, lambda it: it.preemptions),
        _add(engines, lambda it: it.rejections),
        share if share is not None else sum(rates) / len(rates) if rates else None,
        None if fullest is None else _count_few(fullest),
    )


def _count_few(engine: EngineReading) -> int | None:
    # Engines that preempt nothing queue at the end of their pool instead.
    if not engine.running or engine.preemptions is None or (engine.used_share or 0.0) < CHANCE_SHARE:
        return None
    share = (engine.used_share or 0.0) / engine.running
    return round(1.0 / share) if share > LARGE_SHARE else None


def describe_server(server: ServerSample) -> Sentence:
    """Say what a server does now, the most important first."""
    return Sentence(tuple(_describe(server)))


def name_server(server: ServerSample) -> str:
    """Name a server in a sentence: `vLLM (Qwen3-8B)`, `SGLang`."""
    model = "" if server.model is None else f" ({server.model.rpartition('/')[2]})"
    return f"{server.kind or 'server'}{model}"


def _describe(server: ServerSample) -> Iterator[tuple[str, ...]]:
    kind = server.kind or "server"
    model = server.model or ""
    short = model.rpartition("/")[2]
    yield (f"{kind} {model}".strip(), f"{kind} {short}".strip(), kind)
    if server.is_simulated:
        yield ("simulated", "")
    if server.state == "silent":
        yield (f"silent: {server.reason or 'no reason is known'}", "silent")
    elif server.state != "ok":
        yield (server.state,)
    if server.state != "starting":
        yield from _describe_load(server)


def _describe_load(server: ServerSample) -> Iterator[tuple[str, ...]]:
    load = sum_load(server)
    if len(server.engines) > 1:
        yield (count(len(server.engines), "engine"), "")
    if load.running is not None:
        yield (f"{load.running:,} running", f"{load.running:,} run")
    if load.waiting is not None:
        yield (f"{load.waiting:,} waiting", f"{load.waiting:,} wait")
    if load.used_share is not None:
        tokens = "" if load.pool_tokens is None else f" of {load.pool_tokens:,} tokens"
        yield (f"KV {format_share(load.used_share)}{tokens}", f"KV {format_share(load.used_share)}")
    if load.cached_share is not None:
        yield (f"{format_share(load.cached_share)} cached", "")
    if load.preemptions:
        yield (
            f"{count(load.preemptions, 'preemption')} since its start",
            f"{load.preemptions:,} preempted",
            "",
        )
    if load.rejections:
        yield (f"{count(load.rejections, 'request')} refused", f"{load.rejections:,} refused", "")
    if load.few is not None:
        fills = f"about {count(load.few, 'sequence')} {'fills' if load.few == 1 else 'fill'} the pool"
        yield (f"{fills}: a warning may come late or not at all", fills, "")
    if load.hit_share is not None:
        yield (f"prefix hits {format_share(load.hit_share)}", "")
    if server.unmeasured is not None and server.resident_bytes is None and server.state != "starting":
        yield (f"memory unmeasured: {server.unmeasured}", "memory unmeasured", "")
    if server.url is not None:
        yield (server.url, "")


def _add(engines: tuple[EngineReading, ...], read: Callable[[EngineReading], int | None]) -> int | None:
    return sum_all(map(read, engines)) if engines else None
