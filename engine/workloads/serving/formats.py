"""What servers say of themselves over HTTP: the text of `/metrics` of each, `/slots` and `/api/ps`.

Names and labels are those of the servers; only what a reader of memory needs is written. Sources: vLLM's
`v1/metrics/loggers.py` and its documentation of metrics, SGLang's production metrics and its
`metrics_collector.py`, the README of llama.cpp's server, the metrics reference of Text Generation Inference
and its router, Ollama's API reference, the README of Triton's backend for TensorRT-LLM and the example of
Prometheus metrics of `trtllm-serve`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from ...units import GIB
from .server import SimulatedServer

Format = Literal["vllm", "vllm-old", "sglang", "triton", "trtllm", "llama.cpp", "tgi", "ollama"]
# Context of each slot of llama.cpp.
_SLOTS = 8


def answer(server: SimulatedServer, kind: Format, path: str) -> tuple[str, str] | None:
    """Return content type and body of what a server answers under a path; None for 404."""
    page = _PAGES[kind].get(path)
    return None if page is None else page(server)


def _text(lines: Iterable[str]) -> tuple[str, str]:
    return "text/plain; version=0.0.4; charset=utf-8", "\n".join(lines) + "\n"


def _write(kind: str, name: str, rows: Iterable[tuple[Mapping[str, str], float]]) -> list[str]:
    family = name.removesuffix("_total") if kind == "counter" else name
    written = [f"# HELP {family} Simulated.", f"# TYPE {family} {kind}"]
    for labels, value in rows:
        inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
        written.append(f"{name}{{{inside}}} {float(value)}" if inside else f"{name} {float(value)}")
    return written


def _write_vllm(server: SimulatedServer, *, is_old: bool) -> tuple[str, str]:
    setup = server.setup
    lines: list[str] = []

    def put(kind: str, name: str, read: Callable[[int], float], **more: str) -> None:
        rows = []
        for number in range(len(server.engines)):
            labels = {} if is_old else {"engine": str(number)}
            rows.append(({**labels, "model_name": setup.model, **more}, read(number)))
        lines.extend(_write(kind, f"vllm:{name}", rows))

    engines = server.engines
    counters = [engine.counters for engine in engines]
    put("gauge", "num_requests_running", lambda at: len(engines[at].running))
    put("gauge", "num_requests_waiting", lambda at: len(engines[at].waiting))
    usage = "gpu_cache_usage_perc" if is_old else "kv_cache_usage_perc"
    put("gauge", usage, lambda at: engines[at].used_share)
    queries = "gpu_prefix_cache" if is_old else "prefix_cache"
    put("counter", f"{queries}_queries_total", lambda at: counters[at].prefix_queries)
    put("counter", f"{queries}_hits_total", lambda at: counters[at].prefix_hits)
    put("counter", "num_preemptions_total", lambda at: counters[at].preemptions)
    put("counter", "prompt_tokens_total", lambda at: counters[at].prompt_tokens)
    put("counter", "generation_tokens_total", lambda at: counters[at].generation_tokens)
    put("counter", "request_success_total", lambda at: counters[at].finished, finished_reason="stop")
    config = {
        "block_size": str(setup.block_tokens),
        "cache_dtype": "auto",
        "enable_prefix_caching": "True",
        "gpu_memory_utilization": str(setup.plan.share),
        "num_gpu_blocks": str(setup.pool_blocks),
        "num_gpu_blocks_override": "None",
        "sliding_window": "None",
    }
    if is_old:
        lines += _write("gauge", "vllm:cache_config_info", [(config, 1)])
        return _text(lines)
    put(
        "counter",
        "admission_rejections_total",
        lambda at: counters[at].rejections,
        reason="max_num_queued_reqs",
    )
    put("gauge", "engine_sleep_state", lambda at: not engines[at].is_asleep, sleep_state="awake")
    put("gauge", "engine_sleep_state", lambda at: engines[at].is_asleep, sleep_state="weights_offloaded")
    put("gauge", "engine_sleep_state", lambda _: 0, sleep_state="discard_all")
    rows = [({**config, "engine": str(number)}, 1.0) for number in range(len(engines))]
    lines += _write("gauge", "vllm:cache_config_info", rows)
    histogram = [
        *(({"le": le, "model_name": setup.model}, counters[0].finished) for le in ("0.1", "1.0", "+Inf")),
    ]
    lines += _write("histogram", "vllm:time_to_first_token_seconds_bucket", histogram)
    return _text(lines)


def _write_sglang(server: SimulatedServer) -> tuple[str, str]:
    setup = server.setup
    plan = setup.plan
    lines: list[str] = []
    capacity = setup.pool_blocks * setup.block_tokens

    def put(kind: str, name: str, read: Callable[[int], float], **more: str) -> None:
        rows = [
            (
                {
                    "engine_type": "unified",
                    "model_name": setup.model,
                    "tp_rank": str(rank),
                    "pp_rank": "0",
                    **({"dp_rank": str(number)} if len(server.engines) > 1 else {}),
                    **more,
                },
                read(number),
            )
            for number in range(len(server.engines))
            for rank in range(setup.tensor)
        ]
        lines.extend(_write(kind, f"sglang:{name}", rows))

    engines = server.engines
    counters = [engine.counters for engine in engines]
    used = [engine.used_blocks * setup.block_tokens for engine in engines]
    cached = [engine.cached_blocks * setup.block_tokens for engine in engines]
    put("gauge", "num_running_reqs", lambda at: len(engines[at].running))
    put("gauge", "num_queue_reqs", lambda at: len(engines[at].waiting))
    put("gauge", "num_used_tokens", lambda at: used[at])
    put("gauge", "token_usage", lambda at: round(engines[at].used_share, 2))
    put("gauge", "max_total_num_tokens", lambda _: capacity)
    put("gauge", "kv_used_tokens", lambda at: used[at])
    put("gauge", "kv_evictable_tokens", lambda at: cached[at])
    put("gauge", "kv_available_tokens", lambda at: capacity - used[at] - cached[at])
    put("gauge", "cache_hit_rate", lambda at: counters[at].prefix_hits / max(1, counters[at].prefix_queries))
    put("gauge", "weight_memory_usage_gb", lambda _: plan.weights_bytes / GIB)
    put("gauge", "kv_cache_memory_usage_gb", lambda _: plan.pool_bytes / GIB)
    put("gauge", "graph_memory_usage_gb", lambda _: plan.graphs_bytes / GIB, phase="decode")
    put("counter", "num_retracted_requests_total", lambda at: counters[at].preemptions)
    put("counter", "prompt_tokens_total", lambda at: counters[at].prefix_queries)
    put("counter", "generation_tokens_total", lambda at: counters[at].generation_tokens)
    put("counter", "cached_tokens_total", lambda at: counters[at].prefix_hits, cache_source="device")
    return _text(lines)


def _write_llama(server: SimulatedServer) -> tuple[str, str]:
    engine = server.engines[0]
    lines: list[str] = []
    for kind, name, value in (
        ("counter", "prompt_tokens_total", engine.counters.prompt_tokens),
        ("counter", "tokens_predicted_total", engine.counters.generation_tokens),
        ("gauge", "requests_processing", len(engine.running)),
        ("gauge", "requests_deferred", len(engine.waiting)),
    ):
        lines += _write(kind, f"llamacpp:{name}", [({}, value)])
    return _text(lines)


def _write_slots(server: SimulatedServer) -> tuple[str, str]:
    engine = server.engines[0]
    context = server.setup.pool_blocks * server.setup.block_tokens // _SLOTS
    slots = []
    for number in range(_SLOTS):
        sequence = engine.running[number] if number < len(engine.running) else None
        tokens = 0 if sequence is None else min(context, int(sequence.computed))
        slots.append(
            {
                "id": number,
                "id_task": -1 if sequence is None else number,
                "n_ctx": context,
                "speculative": False,
                "is_processing": sequence is not None,
                "n_prompt_tokens": tokens,
                "n_prompt_tokens_processed": tokens,
                "n_prompt_tokens_cache": 0,
                "next_token": [{"has_next_token": True, "n_remain": -1, "n_decoded": 0}],
            }
        )
    return "application/json; charset=utf-8", json.dumps(slots)


def _write_triton(server: SimulatedServer) -> tuple[str, str]:
    """Write TensorRT-LLM behind Triton: a model for each replica."""
    setup = server.setup
    requests: list[tuple[Mapping[str, str], float]] = []
    blocks: list[tuple[Mapping[str, str], float]] = []
    for number, engine in enumerate(server.engines):
        model = {"model": "tensorrt_llm" if not number else f"tensorrt_llm_{number}", "version": "1"}
        for kind, count in (
            ("waiting", len(engine.waiting)),
            ("context", 0),
            ("scheduled", len(engine.running)),
            ("max", setup.most_sequences),
            ("active", len(engine.running) + len(engine.waiting)),
        ):
            requests.append(({**model, "request_type": kind}, count))
        for kind, size in (
            ("fraction", engine.used_share),
            ("tokens_per", setup.block_tokens),
            ("used", engine.used_blocks),
            ("free", setup.pool_blocks - engine.used_blocks),
            ("max", setup.pool_blocks),
        ):
            blocks.append(({**model, "kv_cache_block_type": kind}, size))
    return _text(
        [
            *_write("gauge", "nv_trt_llm_request_metrics", requests),
            *_write("gauge", "nv_trt_llm_kv_cache_block_metrics", blocks),
        ]
    )


def _write_trtllm(server: SimulatedServer) -> tuple[str, str]:
    setup = server.setup
    engine = server.engines[0]
    labels = {"engine_type": "trtllm", "model_name": setup.model}
    lines: list[str] = []
    for name, value in (
        ("num_requests_running", len(engine.running)),
        ("num_requests_waiting", len(engine.waiting)),
        ("kv_cache_utilization", engine.used_share),
        ("kv_cache_max_blocks", setup.pool_blocks),
        ("kv_cache_used_blocks", engine.used_blocks),
    ):
        lines += _write("gauge", f"trtllm_{name}", [(labels, value)])
    config = {**labels, "block_size": str(setup.block_tokens)}
    lines += _write("gauge", "trtllm_cache_config_info", [(config, 1)])
    finished = {**labels, "finished_reason": "stop"}
    lines += _write("counter", "trtllm_request_success_total", [(finished, engine.counters.finished)])
    return _text(lines)


def _write_tgi(server: SimulatedServer) -> tuple[str, str]:
    engine = server.engines[0]
    lines = [
        *_write("gauge", "tgi_queue_size", [({}, len(engine.waiting))]),
        *_write("gauge", "tgi_batch_current_size", [({}, len(engine.running))]),
        *_write(
            "gauge", "tgi_batch_current_max_tokens", [({}, engine.used_blocks * engine.setup.block_tokens)]
        ),
        *_write("counter", "tgi_request_count", [({}, engine.counters.finished + len(engine.waiting))]),
        *_write("counter", "tgi_request_failure", [({"err": "overloaded"}, engine.counters.rejections)]),
    ]
    return _text(lines)


def _write_ollama(server: SimulatedServer) -> tuple[str, str]:
    plan = server.setup.plan
    size = plan.weights_bytes + plan.pool_bytes + plan.activations_bytes
    model = {
        "name": server.setup.model,
        "model": server.setup.model,
        "size": size,
        "digest": "0" * 64,
        "details": {"format": "gguf", "family": "llama", "parameter_size": "8.0B"},
        "expires_at": "2030-01-01T00:00:00Z",
        "size_vram": size,
        "context_length": server.setup.longest,
    }
    return "application/json; charset=utf-8", json.dumps({"models": [] if server.is_asleep else [model]})


_PAGES: dict[Format, dict[str, Callable[[SimulatedServer], tuple[str, str]]]] = {
    "vllm": {"/metrics": lambda server: _write_vllm(server, is_old=False)},
    "vllm-old": {"/metrics": lambda server: _write_vllm(server, is_old=True)},
    "sglang": {"/metrics": _write_sglang},
    "triton": {"/metrics": _write_triton},
    "trtllm": {"/prometheus/metrics": _write_trtllm},
    "llama.cpp": {"/metrics": _write_llama, "/slots": _write_slots},
    "tgi": {"/metrics": _write_tgi},
    "ollama": {"/api/ps": _write_ollama},
}
