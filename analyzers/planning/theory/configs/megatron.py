"""Runs of Megatron-LM, from its own flags and their defaults (megatron/training/arguments.py)."""

import re

import msgspec

from .....engine.errors import UsageError
from ..shape import (
    BF16,
    FP16,
    FP32,
    FP32_SHARDED,
    MOST_LAYERS,
    PURE_BF16,
    Attention,
    ExpertShape,
    Gpu,
    LatentAttention,
    Loss,
    ModelShape,
    NumberFormat,
    ParallelLayout,
    Recompute,
    TrainingSetup,
)
from .flags import (
    ADAPTER_RANK,
    BERT,
    MICRO_BATCHES,
    NF4,
    NORMS,
    PURE,
    PYTORCH,
    RECOMPUTE_EVERY,
    SINKS,
    Flags,
    TrainingRun,
)

# Flags of models that are not a plain stack of decoder layers.
NOT_MODELLED = (
    "hybrid-override-pattern",
    "is-hybrid-model",
    "hybrid-layer-pattern",
    "decoder-num-layers",
    "experimental-attention-variant",
    "linear-attention-freq",
)


def read_megatron_run(flags: Flags, *, world_size: int, gpu: Gpu = "h100", name: str = "") -> TrainingRun:
    """Read the run that Megatron-LM's flags describe.

    Args:
        flags: The given flags; missing ones have Megatron-LM's default.
        world_size: Ranks of the job; Megatron-LM gets it from its launcher.

    Raises:
        UsageError: A flag is missing or no number, or the degrees do not fit the world size.
    """
    return build_run(read_shape(flags), flags, world_size=world_size, gpu=gpu, name=name)


def build_run(
    shape: ModelShape,
    flags: Flags,
    *,
    world_size: int,
    gpu: Gpu = "h100",
    name: str = "",
) -> TrainingRun:
    """Return the run of a known model: layout and setup from flags; arguments as of `read_megatron_run`.

    Raises:
        UsageError: A flag is missing or no number, or the degrees do not fit the world size.
    """
    layout = read_layout(flags, shape, world_size)
    setup = read_setup(flags, layout, gpu)
    return TrainingRun(name=name, shape=shape, layout=layout, setup=setup)


_GROUP = re.compile(r"\(([^()]*)\)\*(\d{1,4})|([Etm|L])\*(\d{1,4})", re.ASCII)
_MOST_STAGES = 4096


def read_layout(flags: Flags, shape: ModelShape, world_size: int) -> ParallelLayout:
    """Read the degrees; DP is what the world size leaves.

    Raises:
        UsageError: The world size is no multiple of TP x PP x CP, or the stages do not hold the layers.
    """
    tensor = flags.find_count("tensor-model-parallel-size", 1)
    pipeline = flags.find_count("pipeline-model-parallel-size", 1)
    context = flags.find_count("context-parallel-size", 1)
    for degree, value in (("TP", tensor), ("PP", pipeline), ("CP", context)):
        if value < 1:
            raise UsageError(f"{degree} is {value}; expected at least 1")
    ranks = tensor * pipeline * context
    if world_size < 1 or world_size % ranks:
        raise UsageError(
            f"world size {world_size} is not a multiple of TP x PP x CP = {tensor} x {pipeline} x "
            f"{context} = {ranks}; choose degrees whose product divides it"
        )
    stages = _read_stages(flags, pipeline)
    first = "decoder-first-pipeline-num-layers"
    last = "decoder-last-pipeline-num-layers"
    return ParallelLayout(
        tensor=tensor,
        pipeline=pipeline,
        data=world_size // ranks,
        context=context,
        expert=flags.find_count("expert-model-parallel-size", 1),
        expert_tensor=flags.find_count("expert-tensor-parallel-size", tensor) if shape.experts else None,
        # Megatron-LM switches sequence parallelism off where there is nothing to split over.
        is_sequence_parallel=flags.is_on("sequence-parallel") and tensor > 1,
        virtual_stages=len(stages) // pipeline if stages else _count_pieces(flags, shape.layers, pipeline),
        first_stage_layers=flags.get_count(first) if flags.has(first) else None,
        last_stage_layers=flags.get_count(last) if flags.has(last) else None,
        counts_embedding=flags.is_on("account-for-embedding-in-pipeline-split"),
        counts_loss=flags.is_on("account-for-loss-in-pipeline-split"),
        stage_layers=stages,
    )


def _count_pieces(flags: Flags, layers: int, pipeline: int) -> int:
    if pipeline == 1:
        return 1
    for name in ("num-virtual-stages-per-pipeline-rank", "virtual-pipeline-model-parallel-size"):
        if flags.has(name):
            return flags.get_count(name)
    if not flags.has("num-layers-per-virtual-pipeline-stage"):
        return 1
    size = flags.get_count("num-layers-per-virtual-pipeline-stage")
    counted = layers + flags.is_on("account-for-embedding-in-pipeline-split")
    counted += flags.is_on("account-for-loss-in-pipeline-split")
    if size < 1 or counted % (pipeline * size):
        raise UsageError(
            f"{counted} layers do not divide into pieces of {size} over PP = {pipeline}; choose a divisor"
        )
    return counted // (pipeline * size)


def _read_stages(flags: Flags, pipeline: int) -> tuple[int, ...] | None:
    """Return the layers of each stage from a layout such as `Et*2|(t|)*3,m|L`; t stands for a layer."""
    text = flags.find_text("pipeline-model-parallel-layout")
    if text is None:
        return None
    text = re.sub(r"[,\s]", "", text)
    while match := _GROUP.search(text):
        unit = match.group(1) or match.group(3) or ""
        times = int(match.group(2) or match.group(4))
        if len(text) + len(unit) * times > 64 * _MOST_STAGES:
            raise UsageError("pipeline-model-parallel-layout is too long; shorten it")
        text = text[: match.start()] + unit * times + text[match.end() :]
    if re.search(r"[^Etm|L]", text):
        raise UsageError(
            f"pipeline-model-parallel-layout {text!r} is not understood; expected E, t, m, L and |"
        )
    stages = tuple(stage.count("t") for stage in text.split("|"))
    if len(stages) % pipeline:
        raise UsageError(
            f"pipeline-model-parallel-layout has {len(stages)} stages, not a multiple of PP = "
            f"{pipeline}; choose the same number for each pipeline rank"
        )
    return stages


_STRATEGIES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_BYTES = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "fp8": 1}


def read_setup(flags: Flags, layout: ParallelLayout, gpu: Gpu) -> TrainingSetup:
    """Read how the model is trained.

    Raises:
        UsageError: A number is missing, or the global batch does not divide into micro-batches.
    """
    micro_batch = flags.find_count("micro-batch-size", 1)
    implementation = flags.find_word("transformer-impl", "transformer_engine")
    is_deterministic = flags.is_on("deterministic-mode")
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
        adapter_rank=flags.find_count(ADAPTER_RANK, 0),
        has_nf4_weights=flags.is_on(NF4),
    )
    return _add_kernels(_add_recompute(setup, flags), flags, layout)


def _add_recompute(setup: TrainingSetup, flags: Flags) -> TrainingSetup:
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
            f"global batch {whole} is not a multiple of micro-batch x DP = {micro_batch} x "
            f"{layout.data}; choose one that is"
        )
    return max(1, whole // share)


def _read_group(flags: Flags) -> int | None:
    for name in ("microbatch-group-size-per-virtual-pipeline-stage", "microbatch-group-size-per-vp-stage"):
        if flags.has(name):
            return flags.get_count(name)
    return None


def _read_numbers(flags: Flags) -> NumberFormat:
    if flags.is_on(PURE):
        return _offload(_read_optimizer(PURE_BF16, flags), flags)
    if flags.is_on("fp16"):
        whole = flags.is_on("accumulate-allreduce-grads-in-fp32")
        return _read_optimizer(BF16 if whole else FP16, flags)
    if not flags.is_on("bf16"):
        return _offload(_read_optimizer(FP32, flags), flags)
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
    """Set the moments of the optimizer: Adam keeps two, SGD one, Muon one of matrices."""
    name = flags.find_word("optimizer", "adam")
    if name == "adam8bit":
        # A byte for each moment, and a scale for each block (Dettmers et al., arXiv 2110.02861).
        return msgspec.structs.replace(numbers, moment_bytes=2, moment_block=256)
    if name == "sgd":
        return msgspec.structs.replace(numbers, moment_bytes=numbers.moment_bytes // 2)
    if "muon" in name:
        return msgspec.structs.replace(numbers, matrix_moment_bytes=numbers.moment_bytes // 2)
    return numbers


def _find_bytes(flags: Flags, name: str) -> int:
    return _BYTES.get(flags.find_word(name, "fp32").rpartition(".")[2], 4)


def _count_master(flags: Flags) -> int:
    """Return the bytes of a master weight of the precision-aware optimizer.

    The upper half of an fp32 master is the bf16 weight itself; by default it keeps the lower half
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
        moment_block=numbers.moment_block if kept else 0,
    )


def _read_stage(flags: Flags) -> int:
    if flags.is_on("use-torch-fsdp2"):
        return 3
    if _is_megatron_fsdp(flags):
        return _STRATEGIES.get(flags.find_word("data-parallel-sharding-strategy", "no_shard"), 0)
    # It gives whole layers to the data ranks, with their master weights and moments
    # (Megatron-LM, core/optimizer/layer_wise_optimizer.py).
    is_layer_wise = flags.find_word("optimizer", "") == "dist_muon"
    return 1 if is_layer_wise or flags.is_on("use-distributed-optimizer") else 0


def _is_megatron_fsdp(flags: Flags) -> bool:
    return flags.is_on("use-megatron-fsdp") or flags.is_on("use-custom-fsdp")


def _read_attention(flags: Flags, gpu: Gpu, *, is_local: bool, is_deterministic: bool) -> Attention:
    """Return which kernel runs: the one asked for, else the one that Transformer Engine prefers.

    It has no deterministic fused backward pass before compute capability 9 and uses flash attention then.
    """
    asked = flags.find_word("attention-backend", "auto").rpartition(".")[2]
    if asked == "flash" or flags.is_on("use-flash-attn"):
        return "flash"
    if asked in ("unfused", "local") or is_local:
        return "unfused"
    return "flash" if asked == "auto" and gpu == "a100" and is_deterministic else "fused"


def _read_recompute(flags: Flags) -> Recompute:
    asked = flags.find_word("recompute-granularity", "")
    if flags.is_on("recompute-granularity") and asked not in ("full", "operations", "selective", "none"):
        raise UsageError(f"recompute-granularity is {asked!r}; expected full, selective or none")
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


# The model in Megatron-LM's flags.

# Vocabularies of tokenizers that need no file, by the names of `--tokenizer-type` in lower case.

VOCABS = {
    "gpt2bpetokenizer": 50257,
    "bertwordpiececase": 28996,
    "bertwordpiecelowercase": 30522,
    "llama2tokenizer": 32000,
    "tiktokenizer": 131072,
}
DEFAULT_VOCAB = VOCABS["gpt2bpetokenizer"]
_LAYER_FLAGS = re.compile(r"\[([01](?:\s*,\s*[01])*)\](?:\s*\*\s*(\d{1,4}))?", re.ASCII)


def read_shape(flags: Flags) -> ModelShape:
    """Read the model.

    Raises:
        UsageError: A size is missing or no whole number, or the model is no stack of decoder layers.
    """
    for other in NOT_MODELLED:
        if flags.is_on(other):
            raise UsageError(f"{other} is set: only stacks of decoder layers with attention can be estimated")
    if "mamba" in flags.find_word("spec", ""):
        raise UsageError(
            "spec names Mamba layers: only stacks of decoder layers with attention can be estimated"
        )
    layers = flags.get_count("num-layers", "encoder-num-layers")
    hidden = flags.get_count("hidden-size")
    heads = flags.get_count("num-attention-heads")
    if not 1 <= layers <= MOST_LAYERS:
        raise UsageError(f"num-layers is {layers}; expected 1 to {MOST_LAYERS:,}")
    if heads < 1:
        raise UsageError(f"num-attention-heads is {heads}; expected at least 1")
    groups = flags.find_count("num-query-groups", heads) if flags.is_on("group-query-attention") else heads
    positions = flags.find_count("max-position-embeddings", flags.find_count("seq-length", 0))
    has_bias = not flags.is_off("add-bias-linear")
    # A gated MLP gets two thirds of 4 h, in whole multiples of 64, so that it has as many parameters.
    usual_ffn = int(4 * hidden * 2 / 3 / 64) * 64 if flags.is_on("swiglu") else 4 * hidden
    ffn = flags.find_count("ffn-hidden-size", usual_ffn)
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_groups=groups,
        head_channels=flags.find_count("kv-channels", hidden // heads),
        ffn=ffn,
        vocab=read_vocabulary(flags),
        vocab_multiple=1
        if flags.has("padded-vocab-size")
        else flags.find_count("make-vocab-size-divisible-by", 128),
        learned_positions=positions if _has_positions(flags) else 0,
        has_rotary=_has_rotary(flags),
        is_gated=flags.is_on("swiglu") or flags.is_on("quick-geglu"),
        is_tied=not flags.is_on("untie-embeddings-and-output-weights"),
        has_linear_bias=has_bias,
        has_qkv_bias=has_bias or flags.is_on("add-qkv-bias"),
        has_norm_bias=flags.find_word("normalization", "layernorm") == "layernorm",
        has_query_key_norm=flags.is_on("qk-layernorm"),
        norms=flags.find_count(NORMS, 2),
        has_sinks=flags.is_on(SINKS),
        has_router_bias=flags.is_on(SINKS),
        experts=_read_experts(flags, layers, ffn),
        latent=_read_latent(flags),
        predicted_tokens=flags.find_count("mtp-num-layers", 0),
        has_masked_head=flags.is_on(BERT),
    )


def _has_positions(flags: Flags) -> bool:
    """Return whether positions are learned: the default; two older flags turn them off as well."""
    if flags.is_on("use-rotary-position-embeddings") or flags.is_on("no-position-embedding"):
        return False
    return flags.find_word("position-embedding-type", "learned_absolute") == "learned_absolute"


def _has_rotary(flags: Flags) -> bool:
    named = flags.find_word("position-embedding-type", "learned_absolute") in ("rope", "mrope", "yarn")
    return named or flags.is_on("use-rotary-position-embeddings")


def read_vocabulary(flags: Flags) -> int:
    """Return the words before padding; the tokenizer that needs no words adds one for the end of a text."""
    tokenizer = flags.find_word("tokenizer-type", "")
    words = flags.find_count("vocab-size", VOCABS.get(tokenizer, DEFAULT_VOCAB))
    return flags.find_count("padded-vocab-size", words + (tokenizer == "nulltokenizer"))


def _read_experts(flags: Flags, layers: int, ffn: int) -> ExpertShape | None:
    if not flags.has("num-experts"):
        return None
    return ExpertShape(
        experts=flags.get_count("num-experts"),
        top_k=flags.find_count("moe-router-topk", 2),
        ffn=flags.find_count("moe-ffn-hidden-size", ffn),
        shared_ffn=flags.find_count("moe-shared-expert-intermediate-size", 0),
        is_expert_layer=_read_layer_flags(flags.find_text("moe-layer-freq") or "1", layers),
    )


def _read_layer_flags(text: str, layers: int) -> tuple[bool, ...]:
    """Return which layers have experts: every n-th, a pattern such as `([0]*1+[1]*26)`, or a list."""
    if re.fullmatch(r"\s*0*[1-9]\d{0,3}\s*", text, re.ASCII):
        return tuple(layer % int(text) == 0 for layer in range(layers))
    found: list[bool] = []
    for values, times in _LAYER_FLAGS.findall(text):
        if int(times or 1) * (values.count(",") + 1) > layers:
            break
        found += [value.strip() == "1" for value in values.split(",")] * int(times or 1)
    if len(found) != layers:
        raise UsageError(
            f"moe-layer-freq {text!r} does not give {layers} layers; expected a 0 or 1 for each layer"
        )
    return tuple(found)


def _read_latent(flags: Flags) -> LatentAttention | None:
    if not flags.is_on("multi-latent-attention"):
        return None
    return LatentAttention(
        query_rank=flags.get_count("q-lora-rank") if flags.has("q-lora-rank") else None,
        key_value_rank=flags.find_count("kv-lora-rank", 32),
        head_channels=flags.find_count("qk-head-dim", 128),
        rope_channels=flags.find_count("qk-pos-emb-head-dim", 64),
        value_channels=flags.find_count("v-head-dim", 128),
    )
