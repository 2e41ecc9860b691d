"""Answers of real servers, as documentation or a public report prints them, and what is read of each.

Only the lines that a reader of memory uses are here. Those of a project's documentation are under its licence
(SGLang, TensorRT-LLM backend: Apache-2.0; Ollama: MIT); the rest are values that users reported.
"""

from typing import NamedTuple

import pytest

from vramscope.engine.model.serving import EngineReading, ServerKind
from vramscope.engine.sources.serving.answers import read_answer, recognize_answer


class Published(NamedTuple):
    name: str
    source: str
    kind: ServerKind
    path: str
    text: str
    model: str | None
    engines: tuple[EngineReading, ...]
    resident_bytes: int | None = None


ANSWERS = (
    Published(
        "vllm-0.8",
        "https://github.com/vllm-project/production-stack/issues/318",
        "vLLM",
        "/metrics",
        """\
process_max_fds 1.048576e+06
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
vllm:num_requests_waiting{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
# HELP vllm:gpu_cache_usage_perc GPU KV-cache usage. 1 means 100 percent usage.
vllm:gpu_cache_usage_perc{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
""",
        "Qwen/Qwen2.5-Coder-32B-Instruct",
        (EngineReading(running=0, waiting=0, used_share=0.0),),
    ),
    Published(
        # Names that are about to go are next to their successors, and `_created` next to `_total`.
        "vllm-0.10.0",
        "https://github.com/vllm-project/production-stack/issues/617",
        "vLLM",
        "/metrics",
        """\
vllm:gpu_prefix_cache_queries_created{engine="0",model_name="zai-org/GLM-4.5"} 1.7537953269352946e+09
# HELP vllm:gpu_prefix_cache_hits_total GPU prefix cache hits. DEPRECATED: Use vllm:prefix_cache_hits instead.
vllm:gpu_prefix_cache_hits_total{engine="0",model_name="zai-org/GLM-4.5"} 0.0
vllm:gpu_prefix_cache_hits_created{engine="0",model_name="zai-org/GLM-4.5"} 1.7537953269353123e+09
vllm:kv_cache_usage_perc{engine="0",model_name="zai-org/GLM-4.5"} 9.75010481363281e-06
vllm:prefix_cache_queries_total{engine="0",model_name="zai-org/GLM-4.5"} 32.0
""",
        "zai-org/GLM-4.5",
        (EngineReading(used_share=9.75010481363281e-06, prefix_queries=32, prefix_hits=0),),
    ),
    Published(
        "sglang-0.3.5",
        "https://github.com/sgl-project/sglang/pull/1853",
        "SGLang",
        "/metrics",
        """\
# HELP sglang:max_total_num_tokens Maximum total number of tokens
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{name="meta-llama/Llama-3.2-3B"} 570979.0
sglang:max_running_requests{name="meta-llama/Llama-3.2-3B"} 2231.0
sglang:context_len{name="meta-llama/Llama-3.2-3B"} 131072.0
sglang:prompt_tokens_total{name="meta-llama/Llama-3.2-3B"} 230794.0
""",
        "meta-llama/Llama-3.2-3B",
        (EngineReading(pool_tokens=570_979, prompt_tokens=230_794, prefix_queries=230_794),),
    ),
    Published(
        "sglang-0.4",
        "https://github.com/sgl-project/sglang/blob/00b08c497f0735678e084ae5e3dd88ca06b46627/docs/references/production_metrics.md",
        "SGLang",
        "/metrics",
        """\
sglang:prompt_tokens_total{model_name="meta-llama/Llama-3.1-8B-Instruct"} 8.128902e+06
sglang:generation_tokens_total{model_name="meta-llama/Llama-3.1-8B-Instruct"} 7.557572e+06
sglang:token_usage{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.28
sglang:cache_hit_rate{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.007507552643049313
sglang:time_to_first_token_seconds_bucket{le="30.0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 2513.0
sglang:func_latency_seconds_count{name="generate_request"} 14007.0
sglang:num_running_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 162.0
sglang:num_used_tokens{model_name="meta-llama/Llama-3.1-8B-Instruct"} 123859.0
sglang:num_queue_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 2826.0
""",
        "meta-llama/Llama-3.1-8B-Instruct",
        (
            EngineReading(
                running=162,
                waiting=2826,
                used_share=0.28,
                prompt_tokens=8_128_902,
                generation_tokens=7_557_572,
                prefix_queries=8_128_902,
                hit_rate=0.007507552643049313,
            ),
        ),
    ),
    Published(
        # Each data-parallel engine is read by a process of its own, whose tensor rank has the same number.
        "sglang-data-parallel",
        "https://github.com/vllm-project/aibrix/issues/1614",
        "SGLang",
        "/metrics",
        "".join(
            f'sglang:num_running_reqs{{dp_rank="{rank}",engine_type="unified",model_name="deepseek-r1",'
            f'pid="{910 + rank}",pp_rank="0",tp_rank="{rank}"}} 0.0\n'
            for rank in range(8)
        ),
        "deepseek-r1",
        tuple(EngineReading(str(rank), running=0) for rank in range(8)),
    ),
    Published(
        "triton-tensorrt-llm",
        "https://github.com/triton-inference-server/tensorrtllm_backend/blob/main/README.md",
        "TensorRT-LLM",
        "/metrics",
        """\
# HELP nv_trt_llm_request_metrics TRT LLM request metrics
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="context",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 0
nv_trt_llm_runtime_memory_metrics{memory_type="gpu",model="tensorrt_llm",version="1"} 1610236
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.4875
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="tensorrt_llm",version="1"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 1
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="free",model="tensorrt_llm",version="1"} 6239
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 6239
""",
        "tensorrt_llm",
        # Counts of blocks are exact; the fraction of this example does not fit them.
        (EngineReading("tensorrt_llm", running=1, waiting=1, pool_tokens=6239 * 64, used_share=1 / 6239),),
    ),
    Published(
        "llama.cpp",
        "https://github.com/ggml-org/llama.cpp/pull/13196",
        "llama.cpp",
        "/metrics",
        """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 143
llamacpp:prompt_seconds_total 8.168
llamacpp:tokens_predicted_total 673
llamacpp:tokens_predicted_seconds_total 29.567
""",
        None,
        (EngineReading(prompt_tokens=143, generation_tokens=673),),
    ),
    Published(
        "tgis",
        "https://github.com/IBM/vllm/pull/18",
        "TGI",
        "/metrics",
        """\
# TYPE tgi_queue_size gauge
tgi_queue_size 0.0
# HELP tgi_batch_current_size Current batch size
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 0.0
tgi_batch_inference_duration_bucket{le="0.02",method="{'method': 'prefill'}"} 112.0
""",
        None,
        (EngineReading(running=0, waiting=0),),
    ),
    Published(
        "ollama",
        "https://github.com/ollama/ollama/blob/main/docs/api.md",
        "Ollama",
        "/api/ps",
        """\
{"models": [{"name": "mistral:latest", "model": "mistral:latest", "size": 5137025024,
 "details": {"format": "gguf", "family": "llama", "parameter_size": "7.2B", "quantization_level": "Q4_0"},
 "expires_at": "2024-06-04T14:38:31.83753-07:00", "size_vram": 5137025024}]}
""",
        "mistral:latest",
        (),
        5_137_025_024,
    ),
)


@pytest.mark.parametrize("published", ANSWERS, ids=lambda it: it.name)
def test_what_real_servers_say_is_recognized_and_read(published: Published) -> None:
    body = published.text.encode()
    assert recognize_answer(published.path, body) == published.kind, published.source
    found = read_answer(published.kind, {published.path: body})
    assert found.engines == published.engines, published.source
    assert (found.model, found.resident_bytes) == (published.model, published.resident_bytes)


def test_the_size_of_a_hybrid_pool_is_what_the_server_says() -> None:
    """Of models with several kinds of layers, blocks times tokens is no size of the pool.

    Labels as in https://github.com/vllm-project/vllm/issues/51163, numbers made up.
    """
    text = (
        'vllm:cache_config_info{block_size="4",engine="0",gpu_memory_utilization="0.9",'
        'kv_cache_size_tokens="1021696",num_gpu_blocks="3991"} 1.0\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5\n'
    )
    (engine,) = read_answer("vLLM", {"/metrics": text.encode()}).engines
    assert engine.pool_tokens == 1_021_696


def test_trtllm_serve_has_names_of_its_own() -> None:
    """Names and labels of TensorRT-LLM's `metrics/collector.py` and its example of Prometheus metrics."""
    text = (
        'trtllm_kv_cache_utilization{engine_type="trtllm",model_name="llama"} 0.25\n'
        'trtllm_cache_config_info{block_size="32",model_name="llama"} 1.0\n'
        'trtllm_kv_cache_max_blocks{model_name="llama"} 1000\n'
        'trtllm_num_requests_running{model_name="llama"} 7\n'
        'trtllm_num_requests_waiting{model_name="llama"} 2\n'
        'trtllm_request_success_total{finished_reason="stop",model_name="llama"} 40\n'
        'trtllm_request_success_total{finished_reason="length",model_name="llama"} 2\n'
    )
    body = text.encode()
    assert recognize_answer("/prometheus/metrics", body) == "TensorRT-LLM"
    found = read_answer("TensorRT-LLM", {"/prometheus/metrics": body})
    expected = EngineReading(running=7, waiting=2, pool_tokens=32_000, used_share=0.25, finished=42)
    assert found.engines == (expected,)
    assert found.model == "llama"
