"""What servers of models say of themselves, in the words of each, as readings.

Ranks of tensor and pipeline parallelism report what is one number for the engine; they are counted once. Each
data-parallel engine has a cache of its own, and is a reading of its own.
"""

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import msgspec

from ...errors import ServerUnreachableError
from ...model.serving import EngineReading, RankStart, ServerKind
from ...text import make_printable
from ...units import GIB
from ...unmeasured import sum_all

# Reads the text in which servers expose metrics to Prometheus; only the names that are asked for.
#
# The format is version 0.0.4 of Prometheus' text format: a name, labels in braces, a value, perhaps a time.
# What is malformed is left out: nothing of it is ever a number.


MOST_SERIES = 20_000
MOST_LABELS = 64
_LABEL = r'[a-zA-Z_]\w{0,99}="(?:[^"\\\n]|\\.){0,1000}"'
_LABELS = rf"(?:\{{[ \t]*((?:{_LABEL}[ \t]*,?[ \t]*){{0,{MOST_LABELS}}})\}})?"
_PAIR = re.compile(r'([a-zA-Z_]\w{0,99})="((?:[^"\\\n]|\\.){0,1000})"')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n"}


class Series(NamedTuple):
    labels: dict[str, str]
    value: float


@lru_cache(maxsize=16)
def _compile(names: frozenset[str]) -> re.Pattern[str]:
    known = "|".join(sorted(map(re.escape, names)))
    return re.compile(rf"^({known}){_LABELS}[ \t]+([-+.\w]{{1,40}})(?:[ \t]+-?\d{{1,20}})?[ \t\r]*$", re.M)


def read_series(text: str, names: Iterable[str]) -> dict[str, list[Series]]:
    """Return the finite values of some names, each with its labels."""
    found: dict[str, list[Series]] = {}
    for count, match in enumerate(_compile(frozenset(names)).finditer(text)):
        if count >= MOST_SERIES:
            break
        try:
            value = float(match[3])
        except ValueError:
            continue
        if math.isfinite(value):
            found.setdefault(match[1], []).append(Series(_read_labels(match[2] or ""), value))
    return found


def _read_labels(text: str) -> dict[str, str]:
    return {
        name: _ESCAPE.sub(lambda it: _ESCAPED.get(it[1], it[1]), value) if "\\" in value else value
        for name, value in _PAIR.findall(text)
    }


MOST_ENGINES = 64
_MOST_NAME = 200
_MOST_COUNT = float(2**62)
# Labels that number the ranks within one engine, and processes that answer for it in turn.
_RANKS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "pid"})

# The page that each server is read from, and a further one that may be missing.
PAGES: dict[ServerKind, tuple[str, ...]] = {
    "vLLM": ("/metrics",),
    "SGLang": ("/metrics",),
    "TensorRT-LLM": ("/prometheus/metrics", "/metrics"),
    "llama.cpp": ("/slots", "/metrics"),
    "TGI": ("/metrics",),
    "Ollama": ("/api/ps",),
}

# Of these only the first page that answers is read: `/metrics` of `trtllm-serve` hands statistics out once.
ALTERNATIVES: frozenset[ServerKind] = frozenset({"TensorRT-LLM"})

_VLLM = frozenset(
    f"vllm:{name}"
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "gpu_cache_usage_perc",
        "num_preemptions",
        "num_preemptions_total",
        "admission_rejections",
        "admission_rejections_total",
        "prompt_tokens",
        "prompt_tokens_total",
        "generation_tokens",
        "generation_tokens_total",
        "prefix_cache_queries",
        "prefix_cache_queries_total",
        "prefix_cache_hits",
        "prefix_cache_hits_total",
        "gpu_prefix_cache_queries_total",
        "gpu_prefix_cache_hits_total",
        "request_success",
        "request_success_total",
        "cache_config_info",
        "engine_sleep_state",
    )
)
_SGLANG = frozenset(
    f"sglang:{name}"
    for name in (
        "num_running_reqs",
        "num_queue_reqs",
        "token_usage",
        "num_used_tokens",
        "max_total_num_tokens",
        "kv_used_tokens",
        "kv_available_tokens",
        "kv_evictable_tokens",
        "num_retracted_requests_total",
        "num_requests_total",
        "num_aborted_requests_total",
        "realtime_tokens_total",
        "prompt_tokens_total",
        "generation_tokens_total",
        "cached_tokens_total",
        "cache_hit_rate",
        "weight_memory_usage_gb",
        "kv_cache_memory_usage_gb",
        "graph_memory_usage_gb",
    )
)
_LLAMA = frozenset(
    f"llamacpp:{name}"
    for name in (
        "requests_processing",
        "requests_deferred",
        "prompt_tokens_total",
        "tokens_predicted_total",
        "kv_cache_usage_ratio",
    )
)
_TGI = frozenset({"tgi_queue_size", "tgi_batch_current_size", "tgi_request_failure"})
# TensorRT-LLM: the names of Triton's backend, and those of `trtllm-serve`.
_TRITON = frozenset(f"nv_trt_llm_{name}_metrics" for name in ("request", "kv_cache_block"))
_TRTLLM = frozenset(
    f"trtllm_{name}"
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_utilization",
        "kv_cache_max_blocks",
        "kv_cache_used_blocks",
        "kv_cache_tokens_per_block",
        "cache_config_info",
        "request_success_total",
    )
)


class Answer(NamedTuple):
    """What one server answered."""

    engines: tuple[EngineReading, ...] = ()
    model: str | None = None
    ranks: tuple[RankStart, ...] = ()
    """Planned memory, the same on each rank, where the server reports bytes."""
    utilization: float | None = None
    resident_bytes: int | None = None


def recognize_answer(path: str, body: bytes) -> ServerKind | None:
    """Return the server that answered with a body; None for anything else."""
    if path == "/api/ps":
        return "Ollama" if b'"models"' in body[:200] else None
    if path == "/slots":
        return "llama.cpp" if b'"n_ctx"' in body[:4096] else None
    marks: tuple[tuple[ServerKind, bytes], ...] = (
        ("vLLM", b"vllm:"),
        ("SGLang", b"sglang:"),
        ("llama.cpp", b"llamacpp:"),
        ("TGI", b"tgi_"),
        ("TensorRT-LLM", b"nv_trt_llm_"),
        ("TensorRT-LLM", b"trtllm_"),
    )
    return next((kind for kind, mark in marks if body.startswith(mark) or b"\n" + mark in body), None)


def read_answer(kind: ServerKind, bodies: Mapping[str, bytes]) -> Answer:
    """Read the pages of a server.

    Raises:
        ServerUnreachableError: They are not what this server answers.
    """
    if kind == "Ollama":
        return _read_ollama(bodies["/api/ps"])
    if kind == "llama.cpp":
        return _read_llama(bodies)
    if kind == "TensorRT-LLM":
        return _read_tensorrt(bodies)
    text = bodies["/metrics"].decode("utf-8", "replace")
    answer = {"vLLM": _read_vllm, "SGLang": _read_sglang, "TGI": _read_tgi}[kind](text)
    if not answer.engines:
        raise ServerUnreachableError(f"answered without a metric of {kind}")
    return answer


class _Metrics:
    """The series of one answer, by engine."""

    def __init__(self, found: dict[str, list[Series]], engine_label: str) -> None:
        self._found = found
        self._label = engine_label
        names = {it.labels.get(engine_label, "0") for series in found.values() for it in series}
        self.engines = sorted(names, key=lambda name: (len(name), name))[:MOST_ENGINES]

    def list(self, *names: str) -> list[Series]:
        """Return the series of the first of some names that there is."""
        return next((self._found[name] for name in names if name in self._found), [])

    def read(self, engine: str, *names: str, adds: bool = False) -> float | None:
        """Return the value of an engine; with `adds` the sum over labels that divide it, else the most."""
        values: dict[tuple[tuple[str, str], ...], float] = {}
        for it in self.list(*names):
            if it.labels.get(self._label, "0") != engine:
                continue
            key = tuple(sorted((name, text) for name, text in it.labels.items() if name not in _RANKS))
            values[key] = max(values.get(key, it.value), it.value)
        if not values:
            return None
        return sum(values.values()) if adds else max(values.values())

    def count(self, engine: str, *names: str, adds: bool = False) -> int | None:
        value = self.read(engine, *names, adds=adds)
        return None if value is None else as_count(value)

    def find_label(self, label: str) -> str | None:
        return next(
            (
                make_printable(it.labels[label], _MOST_NAME)
                for series in self._found.values()
                for it in series
                if it.labels.get(label)
            ),
            None,
        )


def as_count(value: float) -> int | None:
    """Return a count; None for what cannot be one."""
    return int(value) if 0 <= value <= _MOST_COUNT else None


def as_share(value: float | None) -> float | None:
    """Return a share from 0 to 1; None for what cannot be one."""
    return None if value is None or not -1e-6 <= value <= 1.0 + 1e-6 else min(1.0, max(0.0, value))


def _read_vllm(text: str) -> Answer:
    metrics = _Metrics(read_series(text, _VLLM), "engine")
    config = {it.labels.get("engine", "0"): it.labels for it in metrics.list("vllm:cache_config_info")}
    engines = []
    for name in metrics.engines:
        of_engine = config.get(name) or config.get("0") or {}
        asleep = [
            it.value > 0
            for it in metrics.list("vllm:engine_sleep_state")
            if it.labels.get("engine", "0") == name and it.labels.get("sleep_state") != "awake"
        ]
        engines.append(
            EngineReading(
                name=make_printable(name, 40),
                running=metrics.count(name, "vllm:num_requests_running"),
                waiting=metrics.count(name, "vllm:num_requests_waiting"),
                pool_tokens=_count_tokens(of_engine),
                used_share=as_share(
                    metrics.read(name, "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
                ),
                preemptions=metrics.count(name, "vllm:num_preemptions_total", "vllm:num_preemptions"),
                rejections=metrics.count(
                    name, "vllm:admission_rejections_total", "vllm:admission_rejections", adds=True
                ),
                prompt_tokens=metrics.count(name, "vllm:prompt_tokens_total", "vllm:prompt_tokens"),
                generation_tokens=metrics.count(
                    name, "vllm:generation_tokens_total", "vllm:generation_tokens"
                ),
                prefix_queries=metrics.count(
                    name,
                    "vllm:prefix_cache_queries_total",
                    "vllm:prefix_cache_queries",
                    "vllm:gpu_prefix_cache_queries_total",
                ),
                prefix_hits=metrics.count(
                    name,
                    "vllm:prefix_cache_hits_total",
                    "vllm:prefix_cache_hits",
                    "vllm:gpu_prefix_cache_hits_total",
                ),
                is_asleep=any(asleep) if asleep else None,
                finished=metrics.count(name, "vllm:request_success_total", "vllm:request_success", adds=True),
            )
        )
    first = next(iter(config.values()), {})
    return Answer(
        tuple(engines),
        metrics.find_label("model_name"),
        utilization=as_share(_parse(first.get("gpu_memory_utilization"))),
    )


def _count_tokens(config: Mapping[str, str]) -> int | None:
    told = _parse(config.get("kv_cache_size_tokens"))
    if told:
        return as_count(told)
    blocks = _parse(config.get("num_gpu_blocks"))
    block = _parse(config.get("block_size"))
    return as_count(blocks * block) if blocks and block else None


def _parse(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _read_sglang(text: str) -> Answer:
    found = read_series(text, _SGLANG)
    # Hits in the host's memory and in storage save computing, but hold nothing of the device.
    cached = [it for it in found.pop("sglang:cached_tokens_total", []) if _is_of_device(it)]
    # Tokens as they are generated, where a version has them; the older counter rises when a request ends.
    decoded = [
        it for it in found.pop("sglang:realtime_tokens_total", []) if it.labels.get("mode") == "decode"
    ]
    for name, series in (("cached_tokens_total", cached), ("realtime_tokens_total", decoded)):
        if series:
            found[f"sglang:{name}"] = series
    metrics = _Metrics(found, "dp_rank")
    engines = []
    for name in metrics.engines:
        tokens = metrics.count(name, "sglang:max_total_num_tokens")
        used = metrics.read(name, "sglang:kv_used_tokens", "sglang:num_used_tokens")
        # `token_usage` is rounded to hundredths; counts of tokens are not.
        exact = used / tokens if used is not None and tokens else None
        engines.append(
            EngineReading(
                name=make_printable(name, 40),
                running=metrics.count(name, "sglang:num_running_reqs"),
                waiting=metrics.count(name, "sglang:num_queue_reqs"),
                pool_tokens=tokens,
                used_share=as_share(exact if exact is not None else metrics.read(name, "sglang:token_usage")),
                cached_tokens=metrics.count(name, "sglang:kv_evictable_tokens"),
                preemptions=metrics.count(name, "sglang:num_retracted_requests_total"),
                prompt_tokens=metrics.count(name, "sglang:prompt_tokens_total", adds=True),
                generation_tokens=metrics.count(
                    name, "sglang:realtime_tokens_total", "sglang:generation_tokens_total", adds=True
                ),
                prefix_queries=metrics.count(name, "sglang:prompt_tokens_total", adds=True),
                prefix_hits=metrics.count(name, "sglang:cached_tokens_total", adds=True),
                hit_rate=as_share(metrics.read(name, "sglang:cache_hit_rate")),
                finished=sum_all(
                    (
                        metrics.count(name, "sglang:num_requests_total", adds=True),
                        metrics.count(name, "sglang:num_aborted_requests_total", adds=True) or 0,
                    )
                ),
            )
        )
    return Answer(
        tuple(engines),
        # Until 0.4 the label was `name`.
        metrics.find_label("model_name") or metrics.find_label("name"),
        _read_sglang_plan(metrics),
    )


def _is_of_device(series: Series) -> bool:
    return series.labels.get("cache_source", "device") == "device"


def _read_sglang_plan(metrics: _Metrics) -> tuple[RankStart, ...]:
    """Return what SGLang planned for a rank; 0 is what a backend says that does not measure."""
    name = metrics.engines[0] if metrics.engines else "0"
    sizes = {
        field: metrics.read(name, f"sglang:{metric}_memory_usage_gb", adds=field == "graphs_bytes")
        for field, metric in (
            ("weights_bytes", "weight"),
            ("cache_bytes", "kv_cache"),
            ("graphs_bytes", "graph"),
        )
    }
    known = {field: as_count(size * GIB) for field, size in sizes.items() if size}
    if known.get("weights_bytes") is None or known.get("cache_bytes") is None:
        return ()
    return (RankStart("0", **known),)


_Count = Annotated[int, msgspec.Meta(ge=-1, le=2**62)]


class _Slot(msgspec.Struct):
    n_ctx: _Count
    is_processing: bool = False
    n_prompt_tokens: _Count | None = None


class _Model(msgspec.Struct):
    name: str
    size_vram: _Count = 0


class _Models(msgspec.Struct):
    models: list[_Model] | None = None


def _decode(body: bytes, kind: Any, server: ServerKind) -> Any:  # noqa: ANN401 - a type, and its value
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise ServerUnreachableError(f"answered with something else than {server} does") from None


def _read_llama(bodies: Mapping[str, bytes]) -> Answer:
    slots: list[_Slot] = _decode(bodies["/slots"], list[_Slot], "llama.cpp") if "/slots" in bodies else []
    text = bodies.get("/metrics", b"").decode("utf-8", "replace")
    metrics = _Metrics(read_series(text, _LLAMA), "")
    if not slots and not metrics.engines:
        raise ServerUnreachableError("answered without a slot or metric of llama.cpp")
    total = sum(max(0, slot.n_ctx) for slot in slots)
    tokens = [
        (slot.is_processing, min(max(0, slot.n_prompt_tokens), slot.n_ctx))
        for slot in slots
        if slot.n_prompt_tokens is not None
    ]
    is_known = bool(slots) and len(tokens) == len(slots) and total > 0
    used = sum(count for is_busy, count in tokens if is_busy)
    busy = sum(slot.is_processing for slot in slots)
    engine = EngineReading(
        running=metrics.count("0", "llamacpp:requests_processing") if not slots else busy,
        waiting=metrics.count("0", "llamacpp:requests_deferred"),
        pool_tokens=total or None,
        used_share=used / total if is_known else as_share(metrics.read("0", "llamacpp:kv_cache_usage_ratio")),
        cached_tokens=sum(count for is_busy, count in tokens if not is_busy) if is_known else None,
        prompt_tokens=metrics.count("0", "llamacpp:prompt_tokens_total"),
        generation_tokens=metrics.count("0", "llamacpp:tokens_predicted_total"),
    )
    return Answer((engine,))


def _read_tgi(text: str) -> Answer:
    metrics = _Metrics(read_series(text, _TGI), "")
    if not metrics.engines:
        return Answer()
    refused = [it.value for it in metrics.list("tgi_request_failure") if it.labels.get("err") == "overloaded"]
    engine = EngineReading(
        running=metrics.count("0", "tgi_batch_current_size"),
        waiting=metrics.count("0", "tgi_queue_size"),
        rejections=as_count(sum(refused)) if refused else None,
    )
    return Answer((engine,))


def _read_tensorrt(bodies: Mapping[str, bytes]) -> Answer:
    """Read TensorRT-LLM behind Triton, or as `trtllm-serve`; one engine for each model of Triton."""
    text = b"\n".join(bodies.values()).decode("utf-8", "replace")
    triton = _Metrics(read_series(text, _TRITON), "model")
    if triton.engines:
        return Answer(
            tuple(_read_triton(triton, name) for name in triton.engines), triton.find_label("model")
        )
    metrics = _Metrics(read_series(text, _TRTLLM), "")
    if not metrics.engines:
        raise ServerUnreachableError("answered without a metric of TensorRT-LLM")
    config = next((it.labels for it in metrics.list("trtllm_cache_config_info")), {})
    blocks = metrics.read("0", "trtllm_kv_cache_max_blocks")
    per_block = metrics.read("0", "trtllm_kv_cache_tokens_per_block") or _parse(config.get("block_size"))
    used = metrics.read("0", "trtllm_kv_cache_used_blocks")
    share = used / blocks if used is not None and blocks else metrics.read("0", "trtllm_kv_cache_utilization")
    engine = EngineReading(
        running=metrics.count("0", "trtllm_num_requests_running"),
        waiting=metrics.count("0", "trtllm_num_requests_waiting"),
        pool_tokens=as_count(blocks * per_block) if blocks and per_block else None,
        used_share=as_share(share),
        finished=metrics.count("0", "trtllm_request_success_total", adds=True),
    )
    return Answer((engine,), metrics.find_label("model_name"))


def _read_triton(metrics: _Metrics, name: str) -> EngineReading:
    def find(metric: str, label: str) -> dict[str, float]:
        found = metrics.list(f"nv_trt_llm_{metric}_metrics")
        return {it.labels.get(label, ""): it.value for it in found if it.labels.get("model") == name}

    requests = find("request", "request_type")
    blocks = find("kv_cache_block", "kv_cache_block_type")
    most = blocks.get("max")
    used = blocks.get("used")
    share = used / most if used is not None and most else blocks.get("fraction")
    per_block = blocks.get("tokens_per")
    active = requests.get("scheduled")
    waiting = requests.get("waiting")
    return EngineReading(
        name=make_printable(name, 40),
        running=None if active is None else as_count(active),
        waiting=None if waiting is None else as_count(waiting),
        pool_tokens=as_count(most * per_block) if most and per_block else None,
        used_share=as_share(share),
    )


def _read_ollama(body: bytes) -> Answer:
    models = _decode(body, _Models, "Ollama").models or []
    names = [make_printable(it.name, _MOST_NAME) for it in _first(models)]
    return Answer(
        (),
        ", ".join(names) or None,
        resident_bytes=sum(max(0, it.size_vram) for it in models),
    )


def _first(models: Iterable[_Model], most: int = 8) -> list[_Model]:
    return list(models)[:most]
