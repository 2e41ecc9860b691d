"""What servers printed at their start, as published by others: weights, cache and tokens, each with a source.

Numbers only. Sizes of models are those of their config.json on Hugging Face, cut to what decides memory.
"""

from typing import NamedTuple

# The logs of vLLM 0.19 on H100 80 GB (79.19 GiB), with --gpu-memory-utilization 0.95 unless a row says
# otherwise: accuracy/results/v0.19.0 of pull request 205.
PLANNER = "llm-d-incubation/llm-d-planner pull request 205, vLLM 0.19.0, H100"
EARLIER = "llm-d-incubation/llm-d-planner docs/empirical-vllm-memory-results.md, H100"
H100_GIB = 79.19


def _decoder(
    kind: str, layers: int, hidden: int, heads: int, groups: int, inner: int, vocab: int, **more: object
) -> dict[str, object]:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "intermediate_size": inner,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        **more,
    }


def _compress(bits: int, kind: str, group: int = 0) -> dict[str, object]:
    weights = {"num_bits": bits, "type": kind, "strategy": "group" if group else "channel"}
    weights |= {"group_size": group} if group else {}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights}},
        "ignore": ["lm_head"],
    }


def _siglip_gemma3(**text: object) -> dict[str, object]:
    vision = {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "image_size": 896,
        "patch_size": 14,
    }
    return {"model_type": "gemma3", "text_config": text, "vision_config": vision, "torch_dtype": "bfloat16"}


def _gemma3(
    layers: int, hidden: int, heads: int, groups: int, inner: int, channels: int
) -> dict[str, object]:
    return _siglip_gemma3(
        **_decoder("gemma3_text", layers, hidden, heads, groups, inner, 262208)
        | {
            "tie_word_embeddings": True,
            "head_dim": channels,
            "max_position_embeddings": 131072,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "sliding_window": 1024,
            "sliding_window_pattern": 6,
        }
    )


_LLAMA3 = {"max_position_embeddings": 131072}
LLAMA_8B = _decoder("llama", 32, 4096, 32, 8, 14336, 128256, **_LLAMA3)
LLAMA_70B = _decoder("llama", 80, 8192, 64, 8, 28672, 128256, **_LLAMA3)
QWEN25_7B = _decoder("qwen2", 28, 3584, 28, 4, 18944, 152064, max_position_embeddings=32768)
QWEN25_72B = _decoder("qwen2", 80, 8192, 64, 8, 29568, 152064, max_position_embeddings=32768)
QWEN25_32B = _decoder("qwen2", 64, 5120, 40, 8, 27648, 152064, max_position_embeddings=32768)
_QWEN3 = {"head_dim": 128, "max_position_embeddings": 40960}
QWEN3_06B = _decoder("qwen3", 28, 1024, 16, 8, 3072, 151936, **_QWEN3) | {"tie_word_embeddings": True}
QWEN3_8B = _decoder("qwen3", 36, 4096, 32, 8, 12288, 151936, **_QWEN3)
QWEN3_14B = _decoder("qwen3", 40, 5120, 40, 8, 17408, 151936, **_QWEN3)
QWEN3_32B = _decoder("qwen3", 64, 5120, 64, 8, 25600, 151936, **_QWEN3)
QWEN3_30B = _decoder("qwen3_moe", 48, 2048, 32, 4, 6144, 151936, **_QWEN3) | {
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
}
QWEN3_235B_FP8 = _decoder("qwen3_moe", 94, 4096, 64, 4, 12288, 151936, **_QWEN3) | {
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1536,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
QWEN15_MOE = _decoder("qwen2_moe", 24, 2048, 16, 16, 5632, 151936, max_position_embeddings=8192) | {
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
}
MIXTRAL = _decoder("mixtral", 32, 4096, 32, 8, 14336, 32000, max_position_embeddings=32768) | {
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
DEEPSEEK_LITE = _decoder("deepseek_v2", 27, 2048, 16, 16, 10944, 102400, max_position_embeddings=163840) | {
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
}
CODELLAMA_7B = _decoder("llama", 32, 4096, 32, 32, 11008, 32016, max_position_embeddings=16384)
_TIED = {"tie_word_embeddings": True}
GRANITE_2B = _decoder("granite", 40, 2048, 32, 8, 8192, 49155, max_position_embeddings=131072) | _TIED
GRANITE_8B = _decoder("granite", 40, 4096, 32, 8, 12800, 49155, max_position_embeddings=131072) | _TIED
PHI_4 = _decoder("phi3", 40, 5120, 40, 10, 17920, 100352, max_position_embeddings=16384)
_GEMMA2 = {**_TIED, "head_dim": 256, "max_position_embeddings": 8192, "sliding_window": 4096}
GEMMA_7B = (
    _decoder("gemma", 28, 3072, 16, 16, 24576, 256000, head_dim=256, max_position_embeddings=8192) | _TIED
)
GEMMA2_2B = _decoder("gemma2", 26, 2304, 8, 4, 9216, 256000) | _GEMMA2
GEMMA2_9B = _decoder("gemma2", 42, 3584, 16, 8, 14336, 256000) | _GEMMA2
GEMMA2_27B = _decoder("gemma2", 46, 4608, 32, 16, 36864, 256000) | _GEMMA2 | {"head_dim": 128}
GEMMA3_4B = _gemma3(34, 2560, 8, 4, 10240, 256)
GEMMA3_12B = _gemma3(48, 3840, 16, 8, 15360, 256)
GEMMA3_27B = _gemma3(62, 5376, 32, 16, 21504, 128)
_GPT_OSS = {
    "head_dim": 64,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096},
    "quantization_config": {"quant_method": "mxfp4"},
}
GPT_OSS_20B = _decoder("gpt_oss", 24, 2880, 64, 8, 2880, 201088, **_GPT_OSS, num_local_experts=32)
GPT_OSS_120B = _decoder("gpt_oss", 36, 2880, 64, 8, 2880, 201088, **_GPT_OSS, num_local_experts=128)
QWEN3_NEXT = _decoder("qwen3_next", 48, 2048, 16, 2, 5120, 151936, max_position_embeddings=262144) | {
    "head_dim": 256,
    "partial_rotary_factor": 0.25,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}
LLAMA_8B_FP8 = LLAMA_8B | {"quantization_config": {"quant_method": "fp8"}}
LLAMA_8B_INT8 = LLAMA_8B | {"quantization_config": _compress(8, "int"), "torch_dtype": "float16"}
LLAMA_8B_INT4 = LLAMA_8B | {
    "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    "torch_dtype": "float16",
}
LLAMA_70B_FP8 = LLAMA_70B | {"quantization_config": _compress(8, "float")}
LLAMA_70B_INT8 = LLAMA_70B | {"quantization_config": _compress(8, "int")}
QWEN25_7B_FP8 = QWEN25_7B | {"quantization_config": _compress(8, "float")}
QWEN25_7B_INT8 = QWEN25_7B | {"quantization_config": _compress(8, "int")}


class StartUp(NamedTuple):
    """One start of a server."""

    name: str
    source: str
    config: dict[str, object]
    tensor: int = 1
    weights_gib: float | None = None
    """On one rank."""
    pool_gib: float | None = None
    """Cache of one rank."""
    tokens: int | None = None
    sequence: int = 8192
    batched: int = 8192
    concurrency: float | None = None
    """Sequences of the longest length at once."""
    cache_bytes: int = 2
    precision: str | None = None
    """Type that a flag chose."""
    utilization: float = 0.95
    capacity_gib: float | None = None
    """Memory of the device, where the start is one whose division is compared too."""


def _planned(
    name: str,
    config: dict[str, object],
    weights_gib: float,
    pool_gib: float,
    tokens: int,
    concurrency: float,
    *,
    tensor: int = 1,
    sequence: int = 8192,
    cache_bytes: int = 2,
    precision: str | None = None,
    utilization: float = 0.95,
) -> StartUp:
    return StartUp(
        name,
        PLANNER,
        config,
        tensor,
        weights_gib,
        pool_gib,
        tokens,
        sequence,
        concurrency=concurrency,
        cache_bytes=cache_bytes,
        precision=precision,
        utilization=utilization,
        capacity_gib=H100_GIB,
    )


START_UPS = (
    _planned("CodeLlama 7B", CODELLAMA_7B, 12.56, 61.66, 126256, 15.41),
    _planned("DeepSeek V2 Lite", DEEPSEEK_LITE, 29.43, 43.61, 1505552, 183.78),
    _planned("Llama 3.3 70B fp8", LLAMA_70B_FP8, 33.88, 37.28, 244304, 29.82, tensor=2),
    _planned("Llama 3.3 70B fp8", LLAMA_70B_FP8, 16.96, 54.09, 708992, 86.55, tensor=4),
    _planned("Llama 3.3 70B int8", LLAMA_70B_INT8, 33.88, 37.28, 244304, 29.82, tensor=2),
    _planned("Qwen2.5 7B fp8", QWEN25_7B_FP8, 8.14, 64.64, 1210304, 147.74),
    _planned("Qwen2.5 7B int8", QWEN25_7B_INT8, 8.14, 64.64, 1210272, 147.74),
    _planned("Gemma 7B", GEMMA_7B, 15.91, 55.44, 129760, 15.84),
    _planned("Gemma 2 2B", GEMMA2_2B, 4.90, 66.47, 670160, 81.73),
    _planned("Gemma 2 9B", GEMMA2_9B, 17.22, 54.12, 168880, 20.60),
    _planned("Gemma 2 27B", GEMMA2_27B, 50.72, 20.59, 58672, 7.16),
    _planned("Gemma 3 4B", GEMMA3_4B, 8.58, 62.51, 468144, 57.05),
    _planned("Gemma 3 12B", GEMMA3_12B, 23.31, 47.72, 130304, 15.88),
    _planned("Gemma 3 27B", GEMMA3_27B, 51.45, 19.53, 36560, 4.46),
    _planned("Granite 3.1 2B", GRANITE_2B, 4.74, 69.28, 908048, 110.85),
    _planned("Granite 3.1 8B", GRANITE_8B, 15.25, 58.66, 384432, 46.93),
    _planned("Llama 3.1 8B", LLAMA_8B, 14.99, 58.11, 476016, 58.11),
    _planned("Llama 3.1 8B", LLAMA_8B, 14.99, 58.11, 476016, 232.43, sequence=2048),
    _planned("Llama 3.1 8B", LLAMA_8B, 14.99, 58.11, 476016, 14.53, sequence=32768),
    _planned("Llama 3.1 8B", LLAMA_8B, 7.51, 63.76, 1044688, 127.53, tensor=2),
    _planned("Llama 3.1 8B", LLAMA_8B, 3.77, 67.44, 2209792, 269.75, tensor=4),
    _planned("Llama 3.1 8B, fp8 cache", LLAMA_8B, 14.99, 58.11, 952032, 116.21, cache_bytes=1),
    _planned("Llama 3.1 8B fp8", LLAMA_8B_FP8, 8.49, 64.61, 529248, 64.61),
    _planned("Llama 3.1 8B int8", LLAMA_8B_INT8, 8.49, 64.60, 529200, 64.60),
    _planned("Llama 3.1 8B int4", LLAMA_8B_INT4, 5.38, 67.71, 554704, 67.71),
    _planned("Llama 3.1 8B fp32", LLAMA_8B, 29.98, 42.80, 175296, 21.40, cache_bytes=4, precision="fp32"),
    _planned("Phi 4", PHI_4, 27.39, 46.08, 241568, 29.49),
    _planned("Mixtral 8x7B", MIXTRAL, 43.51, 28.44, 465936, 56.88, tensor=2),
    _planned("Qwen2.5 7B", QWEN25_7B, 14.25, 58.53, 1096000, 133.79),
    _planned("Qwen2.5 7B", QWEN25_7B, 7.12, 63.84, 2390592, 291.82, tensor=2),
    _planned("Qwen2.5 7B", QWEN25_7B, 3.55, 67.34, 5043280, 615.63, tensor=4),
    _planned("Qwen2.5 7B, fp8 cache", QWEN25_7B, 14.25, 58.53, 2192000, 267.58, cache_bytes=1),
    _planned("Qwen2.5 72B", QWEN25_72B, 67.80, 3.04, 19920, 2.43, tensor=2),
    _planned("Qwen3 8B", QWEN3_8B, 15.27, 57.50, 418688, 51.11),
    _planned("Qwen3 30B A3B", QWEN3_30B, 56.88, 15.41, 168288, 20.54),
    _planned("gpt-oss 20B", GPT_OSS_20B, 13.64, 58.47, 1277184, 155.75),
    _planned("gpt-oss 20B", GPT_OSS_20B, 7.01, 59.32, 2591776, 316.07, tensor=2, utilization=0.9),
    StartUp("gpt-oss 120B", EARLIER, GPT_OSS_120B, weights_gib=64.38),
    StartUp("Qwen3 0.6B", EARLIER, QWEN3_06B, weights_gib=1.12),
    StartUp("Qwen3 32B", EARLIER, QWEN3_32B, weights_gib=61.03),
    StartUp("Qwen3 32B", EARLIER, QWEN3_32B, 2, weights_gib=30.59),
    StartUp("Qwen3 14B", PLANNER.replace("0.19.0", "0.17.0"), QWEN3_14B, weights_gib=27.52),
    StartUp("Llama 3 8B", "vllm-project/vllm#10511", LLAMA_8B | {"max_position_embeddings": 8192}, 1, 14.96),
    StartUp("Llama 3 8B", "vllm-project/vllm#10511", LLAMA_8B | {"max_position_embeddings": 8192}, 2, 7.48),
    StartUp("Llama 3.1 8B", "vllm-project/vllm#10517", LLAMA_8B, 1, 14.9888, 3.81, 1952 * 16),
    StartUp("Llama 3.1 8B", "vllm-project/vllm#10517", LLAMA_8B, 1, 14.9888, 2.89, 1478 * 16),
    StartUp("Llama 3.1 70B int8", "vllm-project/vllm#12569", LLAMA_70B_INT8, weights_gib=67.7229),
    StartUp("Qwen2.5 32B", "vllm-project/vllm#15815", QWEN25_32B, 2, 30.7098, 7.71, 3947 * 16),
    StartUp("Qwen3 235B fp8", "vllm-project/vllm#21348", QWEN3_235B_FP8, 4, None, 8.11, 178880),
    StartUp("Qwen3 235B fp8, SGLang", "vllm-project/vllm#21348", QWEN3_235B_FP8, 4, None, 16.46, 367404),
    StartUp("gpt-oss 120B", "alvarobartt/hf-mem#60", GPT_OSS_120B, 1, None, 5.38, 78384),
    StartUp(
        "Qwen3 Next 80B",
        "log of vLLM 0.10.2 on H200, without a known address",
        QWEN3_NEXT,
        2,
        74.2812,
        44.59,
        973760,
        262144,
        concurrency=14.77,
    ),
)
