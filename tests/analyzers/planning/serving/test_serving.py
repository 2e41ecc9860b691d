"""The estimate of a server against what servers printed, published sizes, and impossible descriptions."""

import random
from collections import Counter

import msgspec
import pytest

from benchmarks.serving_estimate import TOKENS_TARGET, WEIGHTS_TARGET, compare
from benchmarks.serving_logs import (
    DEEPSEEK_LITE,
    GEMMA2_2B,
    GEMMA3_4B,
    LLAMA_8B,
    QWEN3_30B,
    QWEN3_NEXT,
    START_UPS,
)
from vramscope.analyzers.planning.serving import (
    PRECISIONS,
    ServingReport,
    ServingSetup,
    describe_served_preset,
    estimate_serving,
    read_served_model,
)
from vramscope.analyzers.planning.serving.estimate import count_room
from vramscope.engine.errors import UsageError
from vramscope.engine.units import GIB

JAMBA = {
    "model_type": "jamba",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 65536,
    "tie_word_embeddings": False,
    "attn_layer_period": 8,
    "attn_layer_offset": 4,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_dt_rank": 256,
    "torch_dtype": "bfloat16",
}
NEMOTRON_NANO = {
    "model_type": "nemotron_h",
    "num_hidden_layers": 56,
    "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
    "hidden_size": 4480,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 15680,
    "vocab_size": 131072,
    "tie_word_embeddings": False,
    "mamba_num_heads": 128,
    "mamba_head_dim": 80,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "torch_dtype": "bfloat16",
}


def _serve(config: dict[str, object], *, capacity_gib: float | None = None, **setup: int) -> ServingReport:
    model = read_served_model(config)
    chosen = ServingSetup(**{"sequence": 8192, "cache_bytes": model.cache_bytes, **setup})
    capacity = None if capacity_gib is None else int(capacity_gib * GIB)
    return estimate_serving(model, chosen, name="model", capacity_bytes=capacity)


def test_at_least_thirty_published_starts_are_within_their_targets() -> None:
    known = [start for start in START_UPS if "mxfp4" not in str(start.config)]
    assert len(known) >= 30
    for start in known:
        found = compare(start)
        where = f"{start.name}, TP {start.tensor}"
        assert abs(found.weights or 0) <= WEIGHTS_TARGET, where
        assert abs(found.tokens or 0) <= TOKENS_TARGET, where
        assert abs(found.concurrency or 0) <= TOKENS_TARGET, where


def test_experts_in_mxfp4_are_estimated_from_below_and_said_so() -> None:
    """GPUs pad them (13.64 GiB for gpt-oss 20B): that is not counted, and the tokens are right anyway."""
    for start in START_UPS:
        if "mxfp4" not in str(start.config):
            continue
        found = compare(start)
        assert -0.09 <= (found.weights or 0) <= 0
        assert abs(found.tokens or 0) <= TOKENS_TARGET
        assert "mxfp4" in read_served_model(start.config).notes[0]


@pytest.mark.parametrize(
    ("config", "parameters"),
    [(LLAMA_8B, 8_030_261_248), (QWEN3_30B, 30_532_122_624), (JAMBA, 51_570_323_328)],
)
def test_parameters_are_those_of_the_published_checkpoint(config: dict[str, object], parameters: int) -> None:
    assert _serve(config).parameters == pytest.approx(parameters, rel=1e-4)


def test_latent_attention_caches_one_vector_on_every_rank() -> None:
    for tensor in (1, 2):
        assert _serve(DEEPSEEK_LITE, tensor=tensor).stages[0].token_bytes == 27 * (512 + 64) * 2


def test_ranks_beyond_the_groups_cache_a_copy_each() -> None:
    assert _serve(LLAMA_8B, tensor=8).stages[0].token_bytes == 32 * 2 * 128 * 2
    assert _serve(LLAMA_8B, tensor=16).stages[0].token_bytes == 32 * 2 * 128 * 2


def test_a_block_is_as_large_as_a_recurrent_state() -> None:
    """544 tokens for Qwen3 Next on vLLM 0.10.2, 672 for Nemotron Nano 9B v2 (vllm-project/vllm#24280)."""
    assert _serve(QWEN3_NEXT).block_tokens == 544
    assert _serve(NEMOTRON_NANO).block_tokens == 672
    assert _serve(LLAMA_8B).block_tokens == 16


def test_only_attention_layers_cache_tokens() -> None:
    (rank,) = _serve(JAMBA).stages
    assert rank.token_bytes == 4 * 2 * 8 * 128 * 2
    assert rank.state_bytes == 28 * (8192 * 3 * 2 + 8192 * 16 * 2)


def test_a_pattern_places_mamba_attention_and_mlp() -> None:
    model = read_served_model(NEMOTRON_NANO)
    assert Counter(model.caches) == {"state": 27, "full": 4, "none": 25}
    assert sum(model.has_mlp) == 25


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ({"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}, 4_300_079_472),
        (
            {
                "hidden_size": 3840,
                "intermediate_size": 15360,
                "num_attention_heads": 16,
                "num_hidden_layers": 48,
                "num_key_value_heads": 8,
            },
            12_187_325_040,
        ),
    ],
    ids=["4b", "12b"],
)
def test_gemma_3_as_published_leaves_sizes_to_transformers(text: dict[str, object], parameters: int) -> None:
    """Its files have no vocabulary, that of 4B no heads; Hugging Face lists these numbers of parameters."""
    config: dict[str, object] = {
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "text_config": {**text, "model_type": "gemma3_text", "sliding_window": 1024},
        "vision_config": {
            "hidden_size": 1152,
            "image_size": 896,
            "intermediate_size": 4304,
            "num_hidden_layers": 27,
            "patch_size": 14,
        },
    }
    assert _serve(config).parameters == parameters
    assert read_served_model(config).positions == 131_072


def test_windows_follow_the_family_or_the_list_of_layers() -> None:
    assert read_served_model(GEMMA2_2B).caches[:2] == ("sliding", "full")
    gemma3 = read_served_model(GEMMA3_4B)
    assert (gemma3.caches.count("full"), gemma3.window) == (5, 1024)
    listed = {
        **LLAMA_8B,
        "sliding_window": 4096,
        "layer_types": ["sliding_attention"] * 31 + ["full_attention"],
    }
    assert read_served_model(listed).caches.count("sliding") == 31
    unused = {**LLAMA_8B, "model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}
    assert set(read_served_model(unused).caches) == {"full"}


def test_a_window_bounds_what_a_long_sequence_needs() -> None:
    config = {**LLAMA_8B, "model_type": "mistral", "sliding_window": 4096}
    model = read_served_model(config)
    setup = ServingSetup(sequence=131072, cache_bytes=2, batched_tokens=2048)
    room = count_room(model, setup, Counter(model.caches), 10 * GIB)
    assert room.sequences == pytest.approx(room.tokens / 16 / (-(-(4095 + 2048) // 16) + 1))


def test_stages_of_a_pipeline_add_up_and_the_fullest_decides() -> None:
    whole = _serve(LLAMA_8B, capacity_gib=80)
    split = _serve(LLAMA_8B, capacity_gib=80, pipeline=3)
    assert [rank.layers for rank in split.stages] == [11, 11, 10]
    tables = 2 * (3 - 1) * 131072 * 128
    assert sum(rank.weights_bytes for rank in split.stages) == whole.stages[0].weights_bytes + tables
    assert whole.pool is not None
    assert split.pool is not None
    assert split.pool.tokens.likely > 2 * whole.pool.tokens.likely


def test_too_small_a_device_gets_the_degree_that_would_do() -> None:
    small = _serve(LLAMA_8B, capacity_gib=16)
    assert small.pool is not None
    assert (small.pool.does_fit, small.pool.fitting_tensor) == (False, 2)
    tiny = _serve(LLAMA_8B, capacity_gib=0.5)
    assert tiny.pool is not None
    assert (tiny.pool.tokens.most, tiny.pool.does_fit, tiny.pool.fitting_tensor) == (0, False, None)


def test_a_range_that_straddles_the_sequence_leaves_the_answer_open() -> None:
    report = _serve(LLAMA_8B, capacity_gib=80)
    assert report.pool is not None
    longest = (report.pool.tokens.least + report.pool.tokens.likely) // 2
    between = _serve(LLAMA_8B, capacity_gib=80, sequence=longest)
    assert between.pool is not None
    assert between.pool.does_fit is None


def test_a_known_name_is_served_without_a_file() -> None:
    model = describe_served_preset("llama3-8b", PRECISIONS["fp32"])
    report = estimate_serving(model, ServingSetup(sequence=1, cache_bytes=4), name="llama3-8b")
    tables = 8192 * 128
    assert report.stages[0].weights_bytes == (8_030_261_248 + tables) * 4


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"model_type": "new_kind"}, "model_type 'new_kind'"),
        ({"model_type": None}, "model_type is not given"),
        ({"hidden_size": None}, "hidden_size is not given"),
        ({"text_config": {}, "model_type": "mllama"}, "vision or audio tower"),
        ({"quantization_config": {"quant_method": "squeeze"}}, "quant_method 'squeeze'"),
        ({"quantization_config": {"quant_method": "compressed-tensors"}}, "config_groups"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP6"}}, "NVFP4"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 77}}, "77 bits"),
        ({"layer_types": ["chunked_attention"] * 32}, "'chunked_attention'"),
        ({"layer_types": ["full_attention"]}, "names 1 layers"),
        ({"num_key_value_heads": 7}, "do not divide"),
        ({"torch_dtype": "float8"}, "float8"),
        ({"model_type": "nemotron_h"}, "hybrid_override_pattern"),
        ({"model_type": "qwen3_next"}, "linear-num-key-heads"),
    ],
)
def test_what_cannot_be_estimated_is_refused_with_what_is_missing(
    change: dict[str, object], missing: str
) -> None:
    with pytest.raises(UsageError, match=missing):
        read_served_model({**LLAMA_8B, **change})


@pytest.mark.parametrize("setup", [{"tensor": 3}, {"pipeline": 33}, {"pipeline": 0}, {"tensor": 0}])
def test_impossible_degrees_are_refused(setup: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"TP|PP|tensor"):
        _serve(LLAMA_8B, **setup)


def test_broken_descriptions_are_refused_or_estimated_never_more() -> None:
    """Numbers out of any range in any field of any family: a sentence, or a report without negative sizes."""
    chosen = random.Random(24)
    values: list[object] = [0, -1, 1, 3, 10**12, 10**30, 1.5, "x", "", None, True, [], {}, [1, 2], {"a": 1}]
    families = (LLAMA_8B, GEMMA3_4B, QWEN3_NEXT, JAMBA, NEMOTRON_NANO, DEEPSEEK_LITE)
    refused = 0
    for _ in range(400):
        config = dict(chosen.choice(families))
        for name in chosen.sample(sorted(config), k=chosen.randint(1, 2)):
            config[name] = chosen.choice(values)
        try:
            report = _serve(config, capacity_gib=80)
        except UsageError:
            refused += 1
            continue
        assert report.pool is not None
        assert report.pool.tokens.least >= 0
        assert all(part.size_bytes >= 0 for rank in report.stages for part in rank.weights)
        msgspec.json.encode(report.stages)
    assert 80 < refused < 400
