"""Batch, number formats, recompute and kernels in Megatron-LM's flags."""

import msgspec

from ....engine.errors import UsageError
from ..layout import ParallelLayout
from ..training import (
    BF16,
    FP16,
    FP32,
    FP32_SHARDED,
    Attention,
    Gpu,
    Loss,
    NumberFormat,
    Recompute,
    TrainingSetup,
)
from .flags import MICRO_BATCHES, PYTORCH, RECOMPUTE_EVERY, Flags

_STRATEGIES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_BYTES = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "fp8": 1}


def read_setup(flags: Flags, layout: ParallelLayout, gpu: Gpu, *, is_deterministic: bool) -> TrainingSetup:
    """Return how the model is trained.

    Raises:
        UsageError: A number is missing, or the global batch does not divide into micro-batches.
    """
    micro_batch = flags.find_count("micro-batch-size", 1)
    implementation = flags.find_word("transformer-impl", "transformer_engine")
    micro_batches = _count_micro_batches(flags, layout, micro_batch)
    setup = TrainingSetup(
        seq_length=flags.get_count("seq-length"),
        micro_batch_size=micro_batch,
        micro_batches=micro_batches,
        numbers=_read_numbers(flags),
        zero_stage=_read_stage(flags),
        keeps_gathered_weights=_is_megatron_fsdp(flags),
        keeps_stage_whole=implementation == PYTORCH and layout.pipeline > 1,
        optimizer_instances=flags.find_count("num-distributed-optimizer-instances", 1),
        attention=_read_attention(
            flags, gpu, is_local=implementation == "local", is_deterministic=is_deterministic
        ),
        has_attention_dropout=flags.find_number("attention-dropout", 0.1) > 0,
        has_hidden_dropout=flags.find_number("hidden-dropout", 0.1) > 0,
        has_attention_mask=not flags.is_off("create-attention-mask-in-dataloader"),
        loss=_read_loss(flags),
        deferred_gradients=_count_deferred(flags, micro_batches),
        micro_batch_group=_read_group(flags),
        has_transformer_engine=implementation not in ("local", PYTORCH),
        is_deterministic=is_deterministic,
        gpu=gpu,
    )
    return _add_kernels(_add_recompute(setup, flags), flags, layout)


def _add_recompute(setup: TrainingSetup, flags: Flags) -> TrainingSetup:
    """Return the setup with what of its activations is recomputed."""
    recompute = _read_recompute(flags)
    block = recompute == "full" and flags.find_word("recompute-method", "") == "block"
    recomputed = flags.find_count("recompute-num-layers", 1)
    return msgspec.structs.replace(
        setup,
        recompute=recompute,
        recomputed_modules=flags.find_words("recompute-modules", ("core_attn",)),
        recompute_every=flags.find_count(RECOMPUTE_EVERY, 1),
        recompute_unit_layers=1 if block else recomputed,
        recomputed_layers=recomputed if block else None,
        is_checkpoint_sharded=flags.is_on("distribute-saved-activations"),
    )


def _add_kernels(setup: TrainingSetup, flags: Flags, layout: ParallelLayout) -> TrainingSetup:
    """Return the setup with how its kernels compute: fused or not, in fp8, experts together."""
    return msgspec.structs.replace(
        setup,
        fuses_gradients=not flags.is_off("gradient-accumulation-fusion"),
        fuses_gate=not flags.is_off("bias-swiglu-fusion"),
        expert_capacity=_read_capacity(flags),
        gathers_experts_input=flags.find_word("moe-token-dispatcher-type", "allgather") == "allgather",
        engine_workspaces=_count_workspaces(flags, layout),
        is_fp8=flags.has("fp8-format") or flags.is_on("fp8") or flags.is_on("fp8-hybrid"),
        has_fp8_weights=flags.is_on("fp8-param-gather") or flags.is_on("fp8-param"),
        fp8_copies=_count_fp8_copies(flags, setup.gpu),
    )


def _read_capacity(flags: Flags) -> float | None:
    """Return the capacity factor that the experts' input is padded to, None where it is not padded."""
    name = "moe-expert-capacity-factor"
    if not flags.is_on("moe-pad-expert-input-to-capacity") or not flags.has(name):
        return None
    return max(0.0, flags.find_number(name, 1.0))


def _count_workspaces(flags: Flags, layout: ParallelLayout) -> int:
    """Return the workspaces of Transformer Engine: three for overlap, four more for grouped products.

    (Transformer Engine, pytorch/module/base.py: initialize_ub, get_multi_stream_cublas_workspace.)
    """
    overlapped = 3 if flags.is_on("tp-comm-overlap") and layout.tensor > 1 else 1
    is_grouped = flags.is_on("moe-grouped-gemm") and not flags.is_on("moe-use-legacy-grouped-gemm")
    return overlapped + (4 if is_grouped and flags.has("num-experts") else 0)


def _count_fp8_copies(flags: Flags, gpu: Gpu) -> int:
    """Return copies of a matrix in fp8: Blackwell multiplies either way where a tensor has one scale.

    (Transformer Engine, pytorch/utils.py: is_non_tn_fp8_gemm_supported.)
    """
    has_tensor_scale = flags.find_word("fp8-recipe", "delayed") in ("delayed", "tensorwise")
    return 1 if has_tensor_scale and gpu in ("b200", "gb200", "gb300") else 2


def _count_micro_batches(flags: Flags, layout: ParallelLayout, micro_batch: int) -> int:
    if flags.has(MICRO_BATCHES):
        return max(1, flags.get_count(MICRO_BATCHES))
    share = micro_batch * layout.data
    whole = flags.find_count("global-batch-size", share)
    if share < 1 or whole % share:
        raise UsageError(
            f"global batch {whole} is no multiple of micro-batch x DP = {micro_batch} x {layout.data}; "
            "choose one that is"
        )
    return max(1, whole // share)


def _read_group(flags: Flags) -> int | None:
    for name in ("microbatch-group-size-per-virtual-pipeline-stage", "microbatch-group-size-per-vp-stage"):
        if flags.has(name):
            return flags.get_count(name)
    return None


def _read_numbers(flags: Flags) -> NumberFormat:
    if flags.is_on("fp16"):
        whole = flags.is_on("accumulate-allreduce-grads-in-fp32")
        return _read_optimizer(BF16 if whole else FP16, flags)
    if not flags.is_on("bf16"):
        return _read_optimizer(FP32, flags)
    if flags.is_on("use-torch-fsdp2"):
        # Megatron-LM shards a model in 16 bits, whose optimizer copies gradients; torchtitan one in fp32.
        is_plain = flags.find_word("transformer-impl", "") == PYTORCH
        return _read_optimizer(FP32_SHARDED if is_plain else FP16, flags)
    numbers = _offload(_read_optimizer(BF16, flags), flags)
    if flags.is_on("grad-reduce-in-bf16"):
        numbers = msgspec.structs.replace(numbers, gradient_bytes=2, gradient_copy_bytes=4)
    if not flags.is_on("use-precision-aware-optimizer"):
        return numbers
    return msgspec.structs.replace(
        numbers,
        gradient_bytes=_find_bytes(flags, "main-grads-dtype"),
        gradient_copy_bytes=0,
        master_bytes=_count_master(flags),
        moment_bytes=_find_bytes(flags, "exp-avg-dtype") + _find_bytes(flags, "exp-avg-sq-dtype"),
    )


def _read_optimizer(numbers: NumberFormat, flags: Flags) -> NumberFormat:
    """Return the moments of the optimizer: Adam keeps two, SGD one, Muon one of matrices."""
    name = flags.find_word("optimizer", "adam")
    if name == "sgd":
        return msgspec.structs.replace(numbers, moment_bytes=numbers.moment_bytes // 2)
    if "muon" in name:
        return msgspec.structs.replace(numbers, matrix_moment_bytes=numbers.moment_bytes // 2)
    return numbers


def _find_bytes(flags: Flags, name: str) -> int:
    return _BYTES.get(flags.find_word(name, "fp32").rpartition(".")[2], 4)


def _count_master(flags: Flags) -> int:
    """Return the bytes of a master weight of the precision-aware optimizer.

    The upper half of an fp32 master is the bf16 weight itself; unless told not to, it keeps the lower half
    alone (Megatron-LM, core/optimizer/optimizer_config.py, store_param_remainders).
    """
    size = _find_bytes(flags, "main-params-dtype")
    keeps_all = flags.has("store-param-remainders") and not flags.is_on("store-param-remainders")
    return size if size < 4 or keeps_all or flags.is_on("no-store-param-remainders") else 2


def _offload(numbers: NumberFormat, flags: Flags) -> NumberFormat:
    """Return the bytes that stay on the device where a share of the optimizer is in the host's memory."""
    if not flags.is_on("optimizer-cpu-offload"):
        return numbers
    kept = 1 - min(1.0, flags.find_number("optimizer-offload-fraction", 1.0))
    return msgspec.structs.replace(
        numbers,
        master_bytes=round(numbers.master_bytes * kept),
        moment_bytes=round(numbers.moment_bytes * kept),
    )


def _read_stage(flags: Flags) -> int:
    if flags.is_on("use-torch-fsdp2"):
        return 3
    if _is_megatron_fsdp(flags):
        return _STRATEGIES.get(flags.find_word("data-parallel-sharding-strategy", "no_shard"), 0)
    return 1 if flags.is_on("use-distributed-optimizer") else 0


def _is_megatron_fsdp(flags: Flags) -> bool:
    return flags.is_on("use-megatron-fsdp") or flags.is_on("use-custom-fsdp")


def _read_attention(flags: Flags, gpu: Gpu, *, is_local: bool, is_deterministic: bool) -> Attention:
    """Return which kernel runs: the one asked for, else the one that Transformer Engine prefers.

    It has no deterministic fused backward pass before compute capability 9 and takes flash attention then.
    """
    asked = flags.find_word("attention-backend", "auto").rpartition(".")[2]
    if asked == "flash" or flags.is_on("use-flash-attn"):
        return "flash"
    if asked in ("unfused", "local") or is_local:
        return "unfused"
    return "flash" if asked == "auto" and gpu == "a100" and is_deterministic else "fused"


def _read_recompute(flags: Flags) -> Recompute:
    asked = flags.find_word("recompute-granularity", "")
    if asked in ("full", "operations"):
        return "full" if asked == "full" else "operations"
    return "selective" if asked == "selective" or flags.is_on("recompute-activations") else "none"


def _read_loss(flags: Flags) -> Loss:
    if flags.find_word("transformer-impl", "") == PYTORCH:
        return "eager"
    if not flags.is_on("cross-entropy-loss-fusion"):
        return "plain"
    return "in_place" if flags.find_word("cross-entropy-fusion-impl", "native") == "te" else "compiled"


def _count_deferred(flags: Flags, micro_batches: int) -> int:
    if not flags.is_on("defer-embedding-wgrad-compute"):
        return 0
    limit = flags.find_count("wgrad-deferral-limit", 0)
    return min(limit, micro_batches) if limit else micro_batches
