"""Metrics of servers of models: each engine, with the names of its server and its number."""

from collections.abc import Callable, Iterator
from operator import attrgetter

from ...engine.model import EngineReading, ServerSample
from .families import Family, Metric, Picture, Row, label_text, make_info, make_rows, read_all

SERVER_LABELS = ("node", "server", "engine")
SERVER_UP_NAME = "vramscope_server_up"
SERVER_UP_HELP = "Whether the server of models answers."
SERVER_INFO_NAME = "vramscope_server"
SERVER_INFO_HELP = "The server of models: its kind and model."
SERVER_INFO_LABELS = ("kind", "model", "simulated")


def _of_pool(
    read: Callable[[EngineReading], float | None],
) -> Callable[[EngineReading], float | None]:
    def read_tokens(engine: EngineReading) -> float | None:
        share = read(engine)
        return None if share is None or engine.pool_tokens is None else share * engine.pool_tokens

    return read_tokens


ENGINE_FAMILIES = (
    *(
        Family[EngineReading](f"vramscope_server_{name}", "gauge", "", text, attrgetter(field))
        for name, field, text in (
            ("running_requests", "running", "Sequences that are computed."),
            ("waiting_requests", "waiting", "Requests in the queue."),
            ("pool_tokens", "pool_tokens", "Tokens for which the KV pool has room."),
            ("cached_tokens", "cached_tokens", "Tokens kept for later requests; evicted when needed."),
        )
    ),
    Family[EngineReading](
        "vramscope_server_pool_used_ratio",
        "gauge",
        "ratio",
        "Share of the KV pool that sequences use, without what is only cached, 0 to 1.",
        lambda it: it.used_share,
    ),
    Family[EngineReading](
        "vramscope_server_used_tokens",
        "gauge",
        "",
        "Tokens of the KV pool that sequences use.",
        _of_pool(lambda it: it.used_share),
    ),
    *(
        Family[EngineReading](f"vramscope_server_{name}", "counter", "", text, attrgetter(field))
        for name, field, text in (
            ("preemptions", "preemptions", "Sequences whose cache was taken away, to be computed again."),
            ("rejections", "rejections", "Requests that were refused because the queue was full."),
            ("finished_requests", "finished", "Requests that ended, however they did."),
            ("prompt_tokens", "prompt_tokens", "Prompt tokens."),
            ("generation_tokens", "generation_tokens", "Tokens that were generated."),
            ("prefix_query_tokens", "prefix_queries", "Prompt tokens looked up in the prefix cache."),
            ("prefix_hit_tokens", "prefix_hits", "Prompt tokens found in the prefix cache."),
        )
    ),
)


def collect_servers(picture: Picture) -> Iterator[Metric]:
    sample = picture.sample
    servers: tuple[ServerSample, ...] = () if sample is None or not picture.is_fresh else sample.servers
    labelled = [((label_text(picture.node), label_text(it.name)), it) for it in servers]
    infos = [
        (*labels, label_text(it.kind), label_text(it.model), str(it.is_simulated).lower())
        for labels, it in labelled
    ]
    labels_of_servers = SERVER_LABELS[:2]
    yield from make_info(SERVER_INFO_NAME, SERVER_INFO_HELP, (*labels_of_servers, *SERVER_INFO_LABELS), infos)
    ups: list[Row] = [(labels, float(it.state in ("ok", "asleep"))) for labels, it in labelled]
    yield from make_rows(SERVER_UP_NAME, "gauge", "", SERVER_UP_HELP, labels_of_servers, ups)
    engines = [
        ((*labels, label_text(engine.name)), engine)
        for labels, it in labelled
        if it.state in ("ok", "asleep")
        for engine in it.engines
    ]
    yield from read_all(ENGINE_FAMILIES, SERVER_LABELS, engines)
