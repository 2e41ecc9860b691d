"""What each server says over HTTP becomes one reading an engine, whatever ranks repeat it."""

import pytest

from vramscope.engine.errors import ServerUnreachableError
from vramscope.engine.model.serving import EngineReading, ServerKind
from vramscope.engine.sources.serving.answers import Answer, read_answer, recognize_answer
from vramscope.engine.units import GIB
from vramscope.engine.workloads.serving.formats import Format, answer
from vramscope.engine.workloads.serving.pool import Rate, Traffic
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer

KINDS: dict[Format, ServerKind] = {
    "vllm": "vLLM",
    "vllm-old": "vLLM",
    "sglang": "SGLang",
    "triton": "TensorRT-LLM",
    "trtllm": "TensorRT-LLM",
    "llama.cpp": "llama.cpp",
    "tgi": "TGI",
    "ollama": "Ollama",
}
BUSY = Traffic(Rate(((0.0, 40.0),)), output_tokens=400)


def serve(kind: Format, setup: ServerSetup, seconds: float = 120.0) -> tuple[SimulatedServer, Answer]:
    server = SimulatedServer(setup, seed=3)
    server.advance(seconds)
    return server, read(server, kind)


def read(server: SimulatedServer, kind: Format) -> Answer:
    bodies = {}
    for path in ("/metrics", "/slots", "/api/ps", "/prometheus/metrics"):
        page = answer(server, kind, path)
        if page is not None:
            bodies[path] = page[1].encode()
    return read_answer(KINDS[kind], bodies)


def read_vllm(text: str) -> EngineReading:
    return read_answer("vLLM", {"/metrics": text.encode()}).engines[0]


@pytest.mark.parametrize("kind", ["vllm", "vllm-old", "sglang"])
def test_counts_of_a_server_are_read_whatever_it_calls_them(kind: Format) -> None:
    server, found = serve(kind, ServerSetup(traffic=BUSY, blocks=2000, most_sequences=64))
    engine = server.engines[0]
    (reading,) = found.engines
    assert (reading.running, reading.waiting) == (len(engine.running), len(engine.waiting))
    assert reading.running
    assert reading.pool_tokens == 2000 * 16
    assert reading.used_share == pytest.approx(engine.used_share, abs=1e-9)
    assert reading.preemptions == engine.counters.preemptions
    assert reading.preemptions
    assert reading.generation_tokens == engine.counters.generation_tokens
    assert reading.prefix_hits == engine.counters.prefix_hits
    assert found.model == "simulated-8b"


def test_only_what_a_server_exports_is_known() -> None:
    _, vllm = serve("vllm", ServerSetup())
    _, sglang = serve("sglang", ServerSetup())
    assert vllm.utilization == 0.9
    assert vllm.ranks == ()
    assert vllm.engines[0].cached_tokens is None
    assert sglang.engines[0].rejections is None
    (plan,) = sglang.ranks
    assert plan.weights_bytes == 15 * GIB
    assert plan.activations_bytes is None


@pytest.mark.parametrize("kind", ["triton", "trtllm"])
def test_tensorrt_llm_counts_blocks(kind: Format) -> None:
    server, found = serve(kind, ServerSetup(traffic=BUSY, blocks=2000, most_sequences=64))
    engine = server.engines[0]
    (reading,) = found.engines
    assert (reading.running, reading.waiting) == (len(engine.running), len(engine.waiting))
    assert (reading.pool_tokens, reading.used_share) == (2000 * 16, engine.used_share)
    assert reading.finished == (engine.counters.finished if kind == "trtllm" else None)
    assert reading.preemptions is None


def test_each_model_behind_triton_has_a_pool_of_its_own() -> None:
    server, found = serve("triton", ServerSetup(traffic=BUSY, engines=2))
    assert [it.name for it in found.engines] == ["tensorrt_llm", "tensorrt_llm_1"]
    assert [it.used_share for it in found.engines] == [it.used_share for it in server.engines]


def test_sglang_tells_cached_from_used() -> None:
    server, found = serve("sglang", ServerSetup(blocks=4000))
    assert found.engines[0].cached_tokens == server.engines[0].cached_blocks * 16
    assert found.engines[0].cached_tokens


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_ranks_of_tensor_parallelism_count_once_and_replicas_each(kind: Format) -> None:
    _, one = serve(kind, ServerSetup(tensor=1))
    _, four = serve(kind, ServerSetup(tensor=4))
    assert one.engines == four.engines
    server, two = serve(kind, ServerSetup(engines=2, tensor=2))
    assert [it.name for it in two.engines] == ["0", "1"]
    assert [it.running for it in two.engines] == [len(it.running) for it in server.engines]
    assert [it.pool_tokens for it in two.engines] == [server.setup.pool_blocks * 16] * 2


def test_counters_that_labels_divide_are_added_and_duplicates_are_not() -> None:
    reading = read_vllm(
        'vllm:num_requests_running{engine="0"} 1\n'
        'vllm:admission_rejections_total{engine="0",reason="max_num_queued_reqs"} 2\n'
        'vllm:admission_rejections_total{engine="0",reason="max_num_queued_tokens"} 3\n'
    )
    assert reading.rejections == 5
    sglang = read_answer(
        "SGLang",
        {
            "/metrics": b'sglang:num_running_reqs{tp_rank="0"} 8\nsglang:num_running_reqs{tp_rank="1"} 8\n'
            b'sglang:generation_tokens_total{is_streaming="true",tp_rank="0"} 3\n'
            b'sglang:generation_tokens_total{is_streaming="false",tp_rank="0"} 4\n'
            b'sglang:cached_tokens_total{cache_source="device"} 5\n'
            b'sglang:cached_tokens_total{cache_source="host"} 6\n'
        },
    ).engines[0]
    assert (sglang.running, sglang.generation_tokens, sglang.prefix_hits) == (8, 7, 5)


def test_a_sleeping_engine_says_so() -> None:
    server = SimulatedServer(ServerSetup())
    server.advance(10.0)
    assert read(server, "vllm").engines[0].is_asleep is False
    server.sleep()
    assert read(server, "vllm").engines[0].is_asleep is True
    assert read(server, "vllm-old").engines[0].is_asleep is None


def test_slots_of_llama_cpp_are_its_pool() -> None:
    server, found = serve("llama.cpp", ServerSetup(blocks=8000))
    (reading,) = found.engines
    assert reading.pool_tokens == 8000 * 16
    assert reading.running
    assert reading.used_share is not None
    assert 0 < reading.used_share < 1
    assert reading.waiting == len(server.engines[0].waiting)


def test_without_slots_the_use_of_the_pool_is_unknown() -> None:
    server = SimulatedServer(ServerSetup())
    server.advance(30.0)
    page = answer(server, "llama.cpp", "/metrics")
    assert page is not None
    (reading,) = read_answer("llama.cpp", {"/metrics": page[1].encode()}).engines
    assert (reading.pool_tokens, reading.used_share) == (None, None)
    assert reading.running is not None


def test_tgi_and_ollama_say_less() -> None:
    server, found = serve("tgi", ServerSetup(traffic=BUSY, most_queued=5, blocks=500))
    assert found.engines[0].rejections == server.engines[0].counters.rejections
    assert found.engines[0].rejections
    assert found.engines[0].used_share is None
    _, ollama = serve("ollama", ServerSetup())
    assert ollama.engines == ()
    assert ollama.resident_bytes is not None
    assert ollama.resident_bytes > 15 * GIB


@pytest.mark.parametrize(
    ("value", "expected"),
    [("0.5", 0.5), ("1.0", 1.0), ("87.5", None), ("-3", None), ("NaN", None), ("+Inf", None), ("0x5", None)],
)
def test_an_impossible_share_is_unknown(value: str, expected: float | None) -> None:
    text = f'vllm:num_requests_running{{engine="0"}} 1\nvllm:kv_cache_usage_perc{{engine="0"}} {value}\n'
    assert read_vllm(text).used_share == expected


def test_impossible_counts_are_unknown() -> None:
    reading = read_vllm("vllm:num_requests_running -4\nvllm:num_requests_waiting 1e300\n")
    assert (reading.running, reading.waiting) == (None, None)


def test_a_label_may_hold_what_ends_a_line_or_the_labels() -> None:
    found = read_answer(
        "vLLM", {"/metrics": b'vllm:num_requests_running{model_name="a\\"} 9\\n} \x1b[31m",engine="0"} 2\n'}
    )
    assert found.engines[0].running == 2
    assert found.model is not None
    assert "\x1b" not in found.model


@pytest.mark.parametrize("kind", ["vLLM", "SGLang", "TGI"])
@pytest.mark.parametrize("body", [b"", b"<html><body>Hello</body></html>", b"\xff\xfe\x00" * 100, b"{}"])
def test_another_page_is_refused(kind: ServerKind, body: bytes) -> None:
    with pytest.raises(ServerUnreachableError, match="without a metric"):
        read_answer(kind, {"/metrics": body})


@pytest.mark.parametrize("body", [b"[", b"{}", b'[{"n_ctx": "many"}]', b"[" * 100_000, b'[{"n_ctx": 1e400}]'])
def test_malformed_json_is_refused(body: bytes) -> None:
    with pytest.raises(ServerUnreachableError):
        read_answer("llama.cpp", {"/slots": body})


@pytest.mark.parametrize("kind", list(KINDS))
def test_each_server_is_recognized_by_its_answer(kind: Format) -> None:
    server = SimulatedServer(ServerSetup())
    server.advance(5.0)
    path = {"ollama": "/api/ps", "trtllm": "/prometheus/metrics"}.get(kind, "/metrics")
    page = answer(server, kind, path)
    assert page is not None
    assert recognize_answer(path, page[1].encode()) == KINDS[kind]
    assert recognize_answer(path, b"<html>vllm: tgi_</html>") is None
