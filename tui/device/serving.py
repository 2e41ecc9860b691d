"""The section of a device's page about the servers of models on it: load, KV pool, plan."""

from collections.abc import Iterator

from ...analyzers.serving.load import describe_server, sum_load
from ...analyzers.serving_places import find_engine, find_rank_plan
from ...engine.model import EngineReading, ServerDevice, ServerSample
from ...engine.units import format_bytes, format_share
from ..draw.bars import Part, draw_stacked_bar
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Span
from ..widgets.device_fields import join_facts
from ..widgets.device_view import DeviceView

_BAR = 24
# Width from which a pool has a bar.
_BAR_FROM = 60


def draw_servers(view: DeviceView, width: int, glyphs: Glyphs) -> list[Line]:
    """Return a few lines for each server on a device; empty without a server."""
    return [line for server in view.servers for line in _draw(server, view, width, glyphs)]


def _draw(server: ServerSample, view: DeviceView, width: int, glyphs: Glyphs) -> Iterator[Line]:
    yield [Span(" Serving ", "muted"), Span(describe_server(server).fit(max(10, width - 10)), "strong")]
    place = next(it for it in server.devices if it.uuid == view.device.uuid)
    for engine in server.engines:
        yield from _draw_pool(server, engine, width, glyphs)
    facts = list(_list_facts(server, place))
    while facts:
        line, rest = join_facts(facts, width - 4)
        line, rest = (line, rest) if line else (facts[0], facts[1:])
        yield [Span("   "), *line]
        facts = rest


def _draw_pool(server: ServerSample, engine: EngineReading, width: int, glyphs: Glyphs) -> Iterator[Line]:
    """Yield the pool of an engine as a bar with its tokens; nothing where its size is unknown."""
    pool = engine.pool_tokens
    if pool is None or engine.used_share is None:
        return
    used = round(engine.used_share * pool)
    cached = engine.cached_tokens
    parts = [
        Part("used", used, glyphs.hatched, "accent"),
        Part("cached", cached or 0, glyphs.cached, "accent"),
    ]
    name = "KV pool " if len(server.engines) == 1 else f"KV pool {engine.name} "
    line: Line = [Span(f"   {name}", "muted")]
    if width >= _BAR_FROM:
        line += [*draw_stacked_bar(parts, pool, min(_BAR, width // 4), glyphs), Span("  ")]
    line += [Span(f"{used:,}"), Span(f" of {pool:,} tokens used", "muted")]
    if cached is not None:
        line += [Span(f", {cached:,} cached, {max(0, pool - used - cached):,} free", "muted")]
    yield line


def _list_facts(server: ServerSample, place: ServerDevice) -> Iterator[Line]:
    load = sum_load(server)
    for name, value in (
        ("running", load.running),
        ("waiting", load.waiting),
        ("preempted", load.preemptions),
        ("refused", load.rejections),
    ):
        if value is not None:
            yield [Span(f"{name} ", "muted"), Span(f"{value:,}")]
    if load.hit_share is not None:
        yield [Span("prefix hits ", "muted"), Span(format_share(load.hit_share))]
    plan = find_rank_plan(server, place)
    if plan is not None:
        source = "its log" if server.plan_source == "log" else "its metrics"
        sizes = (("weights", plan.weights_bytes), ("KV", plan.cache_bytes), ("graphs", plan.graphs_bytes))
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes if size is not None)
        yield [Span(f"plan of {source} ", "muted"), Span(parts)]
        engine = find_engine(server, place)
        if plan.cache_bytes and engine is not None and engine.pool_tokens:
            yield [Span("a token ", "muted"), Span(format_bytes(plan.cache_bytes // engine.pool_tokens))]
    if server.utilization is not None:
        yield [Span("share of the device ", "muted"), Span(f"{server.utilization:g}")]
    if server.most_sequences is not None:
        yield [Span("most sequences ", "muted"), Span(f"{server.most_sequences:,}")]
    if server.longest is not None:
        yield [Span("longest ", "muted"), Span(f"{server.longest:,} tokens")]
