"""Reads a configuration file of any kind as the model and the flags it stands for."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .....engine.errors import UsageError
from .....engine.files.run_config import RunConfig
from ..presets import GPT_DROPOUT, find_dropout, find_longest, find_preset
from ..shape import MOST_LAYERS, ModelShape
from .assumptions import choose_sequence
from .flags import (
    ASSUMED_TYPE,
    MICRO_BATCHES,
    NORMS,
    OTHER_WAY,
    PLAIN_TRAINING,
    PYTORCH,
    RECOMPUTE_EVERY,
    SINKS,
    STATES_DROPOUT,
    Flags,
    find_missing,
)
from .megatron import read_shape

POSITIONS = "max-position-embeddings"


class Described(NamedTuple):
    """A model, and what else its description says about the run."""

    shape: ModelShape
    flags: dict[str, object]
    """Flags of Megatron-LM for layout and setup."""
    data: int | None = None
    """Data ranks, where they are given."""
    defaults: Mapping[str, object] = {}
    """Flags that the framework sets where its file says nothing: they are assumed."""


def find_positions(described: Described) -> int | None:
    """Return the longest sequence that a model is made for; None where its description does not say."""
    return described.shape.learned_positions or Flags(described.flags).find_count(POSITIONS, 0) or None


def choose_tokens(described: Described) -> int:
    """Return the tokens of a sequence: as the description says, else as many as `choose_sequence` assumes."""
    flags = Flags(described.flags)
    if flags.has("seq-length"):
        return flags.get_count("seq-length")
    usual = Flags(described.defaults)
    if usual.has("seq-length"):
        return usual.get_count("seq-length")
    return choose_sequence(find_positions(described))


def describe_preset(name: str) -> Described:
    """Return a model by its name, trained with its dropout in bf16.

    Raises:
        UsageError: No model has the name.
    """
    dropout = find_dropout(name)
    training = flag_plain_training(Dropout(hidden=dropout, attention=dropout))
    return Described(find_preset(name), {POSITIONS: find_longest(name), **training})


def describe_config(config: RunConfig) -> Described:
    """Read the model and the flags of a configuration.

    Raises:
        UsageError: A size is missing or no number.
    """
    if config.kind == "torchtitan":
        shape = find_preset(name_torchtitan_model(config.values))
        flags = {**flag_torchtitan(config.values), **_find_unread_torchtitan(config.values)}
        data = count_torchtitan_data(config.values)
        usual = {name: value for name, value in _TORCHTITAN_DEFAULTS.items() if not Flags(flags).has(name)}
        return Described(shape, flags, data, usual)
    flags = config.values
    if config.kind == "hugging_face":
        flags = flag_hugging_face(flags)
    elif config.kind == "galvatron":
        flags = flag_galvatron(flags)
    elif config.kind == "nemo":
        flags = flag_nemo(flags)
    return Described(read_shape(Flags(flags)), flags)


# Sizes with the same name in both programs.
_SAME = (
    "hidden-size",
    "num-layers",
    "num-attention-heads",
    "num-query-groups",
    "ffn-hidden-size",
    "kv-channels",
    "vocab-size",
    "normalization",
    "max-position-embeddings",
    "position-embedding-type",
    "make-vocab-size-divisible-by",
    "seq-length",
    "moe-router-topk",
    "moe-ffn-hidden-size",
)
# Of a Galvatron model with learned positions, where its file has no length.
_GPT_POSITIONS = 1024


def flag_galvatron(config: Mapping[str, object]) -> dict[str, object]:
    """Return a model's configuration as flags.

    The YAML has Megatron-LM's names. The older JSON has those of GPT-2 (`n_embd`) or of Llama (`dim`), whose
    inner size follows from `multiple_of` where it is not given.
    """
    values = Flags(config)
    if not values.has("hidden-size"):
        flags = flag_hugging_face(config)
        if flags["ffn-hidden-size"] is None and values.has("dim"):
            # Two thirds of 4 h, rounded up as Llama does (facebookresearch/llama, llama/model.py).
            multiple = values.find_count("multiple-of", 256)
            flags["ffn-hidden-size"] = -(-int(8 * values.get_count("dim") / 3) // multiple) * multiple
        return flags
    # What a file leaves out is as in Galvatron 3.0 (galvatron/core/runtime/args_schema.py); learned positions
    # are as many as a sequence has tokens there.
    positions = values.find_word("position-embedding-type", "rope")
    usual_positions = _GPT_POSITIONS if positions == "learned_absolute" else None
    return {
        **{name: values.find_text(name) for name in _SAME if values.has(name)},
        "num-experts": values.find_text("num-moe-experts") or values.find_text("num-experts"),
        "group-query-attention": True,
        "swiglu": values.is_on("gated-linear-unit"),
        "normalization": values.find_word("normalization", "RMSNorm"),
        "disable-bias-linear": not values.is_on("add-bias-linear"),
        "add-qkv-bias": values.is_on("add-qkv-bias"),
        "qk-layernorm": values.is_on("qk-layernorm"),
        "untie-embeddings-and-output-weights": not values.is_off("untie-embeddings-and-output-weights"),
        "position-embedding-type": positions,
        "max-position-embeddings": values.find_text("max-position-embeddings")
        or values.find_text("seq-length")
        or usual_positions,
        **flag_plain_training(read_dropout(config, NO_DROPOUT)),
    }


# Names in NeMo's section `model` for flags of Megatron-LM; all others are the same.
_NEMO = {
    "encoder-seq-length": "seq-length",
    "activations-checkpoint-granularity": "recompute-granularity",
    "activations-checkpoint-method": "recompute-method",
    "activations-checkpoint-num-layers": "recompute-num-layers",
}
# Names in it that change no memory, besides those of Megatron-LM, or are read below.
_NEMO_QUIET = (
    *("mcore-gpt", "restore-from-path", "gradient-as-bucket-view", "resume-from-checkpoint", "name"),
    *("megatron-amp-o2", "precision", "activation", "bias", "use-flash-attention", "transformer-engine"),
    *("use-scaled-init-method", "pre-process", "post-process", "transformer-block-type"),
    *("normalize-attention-scores", "rotary-percentage", "attention-type", "batch-p2p-comm"),
    *("native-amp-init-scale", "native-amp-growth-interval", "hysteresis", "grad-div-ar-fusion"),
    *("grad-allreduce-chunk-size-mb", "get-attention-mask-from-fusion", "apex-transformer-log-level"),
    "share-embeddings-and-output-weights",
)
_NEMO_SECTIONS = ("data", "tokenizer", "optim", "nsys-profile")
# Optimizers of NeMo that shard their state over data ranks.
_NEMO_SHARDED = ("distributed_fused_adam", "mcore_distributed_optim")


_NEMO_GATED = ("swiglu", "geglu", "reglu")
# Another value of the same section, as OmegaConf names it.
_REFERENCE = re.compile(r"\$\{(?:\.|model\.)(\w+)\}")


def _resolve(section: Mapping[str, object]) -> dict[str, object]:
    """Return a section with the values that its references name."""
    return {
        name: section.get(found.group(1), value) if (found := _REFERENCE.fullmatch(str(value))) else value
        for name, value in section.items()
    }


def flag_nemo(config: Mapping[str, object]) -> dict[str, object]:
    """Return a configuration of NeMo as flags of Megatron-LM; a name that is read nowhere stays as it is."""
    model = Flags(_resolve(Flags(config).find_section("model")))
    trainer = Flags(Flags(config).find_section("trainer"))
    flags: dict[str, object] = {
        _NEMO.get(name, name): model.find_text(name)
        for name in model.names
        if name not in (*_NEMO_QUIET, *_NEMO_SECTIONS)
    }
    flags |= {
        "group-query-attention": model.has("num-query-groups"),
        "swiglu": model.find_word("activation", "gelu").removeprefix("fast-") in _NEMO_GATED,
        "disable-bias-linear": model.is_off("bias"),
        "normalization": "RMSNorm" if "rms" in model.find_word("normalization", "") else "LayerNorm",
        "use-flash-attn": model.is_on("use-flash-attention"),
    }
    flags["untie-embeddings-and-output-weights"] = model.is_off("share-embeddings-and-output-weights")
    optimizer = Flags(model.find_section("optim")).find_word("name", "")
    flags["use-distributed-optimizer"] = optimizer in _NEMO_SHARDED
    precision = trainer.find_word("precision", model.find_word("precision", "32")).partition("-")[0]
    # Without O2 weights stay in fp32, and only operations are in 16 bits: that is not modelled.
    flags |= {"bf16": precision == "bf16", "fp16": precision == "16"}
    flags["without-megatron-amp-o2"] = precision in ("bf16", "16") and model.is_off("megatron-amp-o2")
    if trainer.has("devices"):
        flags["world-size"] = trainer.find_count("devices", 1) * trainer.find_count("num-nodes", 1)
    return flags


_DEGREES = {
    "tensor-model-parallel-size": "tensor-parallel-degree",
    "pipeline-model-parallel-size": "pipeline-parallel-degree",
    "context-parallel-size": "context-parallel-degree",
    "expert-model-parallel-size": "expert-parallel-degree",
}


def name_torchtitan_model(config: Mapping[str, object]) -> str:
    """Return the name of the model: name and flavour, as `llama3-8b`.

    Raises:
        UsageError: The section `model` does not name one.
    """
    model = _read_section(config, "model")
    name = model.find_text("name")
    flavor = model.find_text("flavor")
    if name is None or flavor is None:
        raise UsageError("the section [model] has no name and flavor; give them, or name a model instead")
    return f"{name.replace('_', '.')}-{flavor}"


def flag_torchtitan(config: Mapping[str, object]) -> dict[str, object]:
    """Return layout and batch as flags; weights are sharded by fully_shard unless replicated."""
    training = _read_section(config, "training")
    degrees = _read_section(config, "parallelism")
    flags: dict[str, object] = {
        flag: degrees.find_count(name, 1) for flag, name in _DEGREES.items() if degrees.has(name)
    }
    flags |= {
        **({"seq-length": training.get_count("seq-len")} if training.has("seq-len") else {}),
        **_flag_batch(training, degrees),
        **_flag_stages(degrees),
        "sequence-parallel": True,
        "use-torch-fsdp2": True,
        "transformer-impl": PYTORCH,
        "attention-backend": "fused",
        **_flag_checkpoints(_read_section(config, "activation-checkpoint")),
        **flag_plain_training(NO_DROPOUT),
    }
    return flags


# Where a file gives neither (torchtitan/config/job_config.py).
_TORCHTITAN_DEFAULTS = {"seq-length": 2048, "micro-batch-size": 8}
# Sections and names of torchtitan that are read, or change no memory of a rank.
_TORCHTITAN_KNOWN = frozenset(
    [
        "job",
        "profiling",
        "metrics",
        "checkpoint",
        "lr_scheduler",
        "validation",
        "comm",
        "fault_tolerance",
        "debug",
        "experimental",
        "memory_estimation",
        "model.name",
        "model.flavor",
        "model.tokenizer_path",
        "model.hf_assets_path",
        "model.print_after_conversion",
        "training.local_batch_size",
        "training.batch_size",
        "training.global_batch_size",
        "training.seq_len",
        "training.steps",
        "training.max_norm",
        "training.dataset",
        "training.dataset_path",
        "training.dataloader",
        "training.seed",
        "training.deterministic",
        "training.gc_freq",
        "training.gc_debug",
        "training.data_parallel_degree",
        "parallelism.tensor_parallel_degree",
        "parallelism.pipeline_parallel_degree",
        "parallelism.context_parallel_degree",
        "parallelism.expert_parallel_degree",
        "parallelism.data_parallel_shard_degree",
        "parallelism.data_parallel_replicate_degree",
        "parallelism.context_parallel_rotate_method",
        "parallelism.pipeline_parallel_microbatch_size",
        "parallelism.pipeline_parallel_first_stage_less_layers",
        "parallelism.pipeline_parallel_last_stage_less_layers",
        "activation_checkpoint.selective_ac_option",
        "optimizer.lr",
        "optimizer.eps",
        "optimizer.beta1",
        "optimizer.beta2",
        "optimizer.weight_decay",
        "optimizer.implementation",
        "compile.components",
        "compile.backend",
    ]
)


def _find_unread_torchtitan(config: Mapping[str, object]) -> dict[str, object]:
    """Return the values of a file that may change memory and are not read, by section and name."""
    found = dict(_list_leaves(config, ""))
    # Without `enable` the section says how it would be compiled.
    if not Flags(found).is_on("compile.enable"):
        found = {name: value for name, value in found.items() if not name.startswith("compile.")}
    return found


def _list_leaves(values: Mapping[str, object], section: str) -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        where = f"{section}{name}"
        if where in _TORCHTITAN_KNOWN:
            continue
        if isinstance(value, dict):
            yield from _list_leaves(value, f"{where}.")
        else:
            yield where, value


def _flag_batch(training: Flags, degrees: Flags) -> dict[str, object]:
    """Return the batch: through a pipeline, a rank's sequences go one by one by default."""
    names = ("local-batch-size", "batch-size")
    given = next((training.get_count(name) for name in names if training.has(name)), None)
    if degrees.find_count("pipeline-parallel-degree", 1) == 1:
        return {} if given is None else {"micro-batch-size": given}
    sequences = _TORCHTITAN_DEFAULTS["micro-batch-size"] if given is None else given
    size = max(1, degrees.find_count("pipeline-parallel-microbatch-size", 1))
    return {"micro-batch-size": size, MICRO_BATCHES: max(1, sequences // size)}


def _flag_stages(degrees: Flags) -> dict[str, object]:
    """Return how layers are split: one less in first and last stage by default; two pieces if interleaved.

    (torchtitan, torchtitan/config/job_config.py and distributed/pipeline_parallel.py.)
    """
    if degrees.find_count("pipeline-parallel-degree", 1) == 1:
        return {}
    is_interleaved = degrees.find_word("pipeline-parallel-schedule", "1f1b").startswith("interleaved")
    return {
        "account-for-embedding-in-pipeline-split": _is_less(degrees, "first"),
        "account-for-loss-in-pipeline-split": _is_less(degrees, "last"),
        "num-virtual-stages-per-pipeline-rank": 2 if is_interleaved else 1,
    }


def _is_less(degrees: Flags, stage: str) -> bool:
    return degrees.find_count(f"pipeline-parallel-{stage}-stage-less-layers", 1) > 0


def _flag_checkpoints(section: Flags) -> dict[str, object]:
    """Return which activations are recomputed (torchtitan/distributed/activation_checkpoint.py).

    `full`: every layer. `selective`: single operations (`op`), or every n-th layer as the option says, every
    second one without an option. A memory budget is left to the compiler, and counted as no recomputation.

    Raises:
        UsageError: An unknown mode or option.
    """
    mode = section.find_word("mode", "selective")
    if mode in ("none", "memory_budget"):
        return {}
    option = section.find_word("selective-ac-option", "2")
    if mode == "full" or (mode == "selective" and option.isdigit()):
        every = 1 if mode == "full" else max(1, int(option))
        return {"recompute-granularity": "full", RECOMPUTE_EVERY: every}
    if mode == "selective" and option == "op":
        return {"recompute-granularity": "operations"}
    raise UsageError(
        f"[activation_checkpoint] mode {mode!r} with option {option!r} is unknown; expected none, full, "
        "or selective with op or a number of layers"
    )


def count_torchtitan_data(config: Mapping[str, object]) -> int | None:
    """Return the data ranks; None where all that remain are meant."""
    degrees = _read_section(config, "parallelism")
    shard = degrees.find_count("data-parallel-shard-degree", -1)
    replicate = degrees.find_count("data-parallel-replicate-degree", 1)
    return None if shard < 1 else shard * replicate


def _read_section(config: Mapping[str, object], name: str) -> Flags:
    section = config.get(name.replace("-", "_"))
    return Flags(section if isinstance(section, dict) else {})


class Dropout(NamedTuple):
    """Shares of values that training drops, and whether the model's file says so."""

    hidden: float
    attention: float
    is_said: bool = False


NO_DROPOUT = Dropout(0.0, 0.0)
OF_GPT = Dropout(GPT_DROPOUT, GPT_DROPOUT)
# Names in configurations: of GPT-2, of most others, of StarCoder2, OPT, BERT and T5.
_HIDDEN_DROPOUT = (
    *("resid-pdrop", "hidden-dropout", "residual-dropout"),
    *("dropout", "hidden-dropout-prob", "dropout-rate"),
)
_ATTENTION_DROPOUT = ("attn-pdrop", "attention-dropout", "attention-probs-dropout-prob", "dropout-rate")


def read_dropout(config: Mapping[str, object], usual: Dropout) -> Dropout:
    """Return the dropout of a configuration; what it does not say is as usual for its model type."""
    values = Flags(config)
    hidden, attention = (
        next((name for name in names if values.has(name)), None)
        for names in (_HIDDEN_DROPOUT, _ATTENTION_DROPOUT)
    )
    return Dropout(
        usual.hidden if hidden is None else values.find_number(hidden, 0.0),
        usual.attention if attention is None else values.find_number(attention, 0.0),
        is_said=hidden is not None,
    )


# Models in the `config.json` of Hugging Face, as flags of Megatron-LM.


class Family(NamedTuple):
    """What a `model_type` means beyond the sizes in a configuration; defaults as in transformers."""

    is_gated: bool = True
    has_bias: bool = False
    has_qkv_bias: bool = False
    is_tied: bool = False
    # LayerNorm, with a bias, in place of RMSNorm.
    has_layer_norm: bool = False
    has_query_key_norm: bool = False
    has_learned_positions: bool = False
    # Channels of a head where the configuration lacks them; None: hidden / heads.
    head_channels: int | None = None
    # Norms of a layer over hidden states.
    norms: int = 2
    # A learned score for each head, and a bias of the router (gpt-oss).
    has_sinks: bool = False
    dropout: Dropout = NO_DROPOUT


_LLAMA = Family()
_GPT = Family(
    is_gated=False,
    has_bias=True,
    is_tied=True,
    has_layer_norm=True,
    has_learned_positions=True,
    dropout=OF_GPT,
)
# As its presets: without biases and positions, which its code has, and with a head of its own.
_GALVATRON_GPT = Family(is_gated=False, dropout=OF_GPT)
_OTHER_GPT = _GPT._replace(has_learned_positions=False, dropout=NO_DROPOUT)
_GEMMA2 = Family(is_tied=True, head_channels=256, norms=4)
_QWEN3 = Family(has_query_key_norm=True, head_channels=128)
# Stacks of decoder layers without other differences that matter for memory.
FAMILIES = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _LLAMA,
    "phi3": _LLAMA,
    "deepseek_v2": _LLAMA,
    "deepseek_v3": _LLAMA,
    "qwen2": Family(has_qkv_bias=True),
    "qwen2_moe": Family(has_qkv_bias=True),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "gemma": Family(is_tied=True, head_channels=256),
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA2._replace(has_query_key_norm=True),
    "gpt_oss": Family(has_bias=True, head_channels=64, has_sinks=True),
    # Its squared ReLU keeps as much as GELU: what enters it squared, and its square.
    "nemotron": Family(is_gated=False, has_layer_norm=True),
    "gpt2": _GPT,
    "opt": _GPT._replace(dropout=Dropout(0.1, 0.0)),
    "bloom": _OTHER_GPT,
    "starcoder2": _OTHER_GPT,
    "gpt_neox": _OTHER_GPT._replace(is_tied=False),
}
# What transformers takes where a `config.json` lacks it (Gemma3TextConfig): the published ones of Gemma 3 do.
_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "gemma3_text": {
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
    }
}
_ENCODERS = ("bert", "roberta", "xlm-roberta", "distilbert", "albert", "electra", "deberta", "modernbert")
# Sections of what feeds a decoder, and unknown keys that a refusal names at the most.
_TOWERS = ("vision_config", "audio_config", "vit_config")
_MOST_UNREAD = 6
_REQUIRED = ("num-layers", "hidden-size", "num-attention-heads", "vocab-size")
# Flag, and its names in configurations.
_SIZES = {
    "num-layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden-size": ("hidden_size", "n_embd", "n_embed", "d_model", "dim"),
    "num-attention-heads": ("num_attention_heads", "n_head", "n_heads"),
    "num-query-groups": ("num_key_value_heads", "n_kv_heads", "num_query_groups", "num_kv_heads"),
    "kv-channels": ("head_dim",),
    "ffn-hidden-size": ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"),
    "vocab-size": ("vocab_size",),
    # BLOOM and Galvatron's Llama name the tokens that the model was trained on.
    "max-position-embeddings": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"),
    "num-experts": ("num_local_experts", "n_routed_experts", "num_experts"),
    "moe-router-topk": ("num_experts_per_tok",),
    "moe-ffn-hidden-size": ("moe_intermediate_size",),
    "q-lora-rank": ("q_lora_rank",),
    "kv-lora-rank": ("kv_lora_rank",),
    "qk-head-dim": ("qk_nope_head_dim",),
    "qk-pos-emb-head-dim": ("qk_rope_head_dim",),
    "v-head-dim": ("v_head_dim",),
    "mtp-num-layers": ("num_nextn_predict_layers",),
}


def read_positions(config: Mapping[str, object]) -> int | None:
    """Return the longest sequence that a `config.json` names; None where it names none."""
    values = Flags(config)
    names = (name.replace("_", "-") for name in _SIZES[POSITIONS])
    return next((values.get_count(name) for name in names if values.has(name)), None)


def complete_config(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return a `config.json` with the sizes that its model type leaves to transformers."""
    return {**_DEFAULTS.get(str(config.get("model_type") or "").lower(), {}), **config}


def flag_hugging_face(
    config: Mapping[str, object], families: Mapping[str, Family] = FAMILIES
) -> dict[str, object]:
    """Return a model's configuration as Megatron-LM's flags, for training with its dropout in bf16.

    Args:
        families: Model types that the caller can estimate.

    Raises:
        UsageError: A size is missing, or `model_type` is not among the families.
    """
    config = complete_config(config)
    values = Flags(config)
    assumed = assume_model_type(config)
    family = _find_family(values, config, families, assumed)
    flags: dict[str, object] = {
        flag: next((config[name] for name in names if config.get(name) is not None), None)
        for flag, names in _SIZES.items()
    }
    for flag in _REQUIRED:
        if flags[flag] is None:
            raise UsageError(f"{_SIZES[flag][0]} is not given; expected a model's config.json with all sizes")
    tied = config.get("tie_word_embeddings")
    flags |= {
        "kv-channels": flags["kv-channels"] or family.head_channels,
        "group-query-attention": True,
        "swiglu": family.is_gated,
        "normalization": "LayerNorm" if family.has_layer_norm else "RMSNorm",
        "disable-bias-linear": not family.has_bias,
        "add-qkv-bias": family.has_qkv_bias or values.is_on("attention-bias"),
        "qk-layernorm": family.has_query_key_norm,
        "position-embedding-type": "learned_absolute" if family.has_learned_positions else "rope",
        "untie-embeddings-and-output-weights": not (family.is_tied if tied is None else bool(tied)),
        "multi-latent-attention": "kv_lora_rank" in config,
        "make-vocab-size-divisible-by": 1,
        NORMS: family.norms,
        SINKS: family.has_sinks,
        ASSUMED_TYPE: assumed,
        **flag_plain_training(read_dropout(config, family.dropout)),
    }
    return {**find_unread(config), **flags, **_flag_experts(values, flags)}


# Keys that are sizes by their names, or parts of a model: one that is not read may take memory.
_SIZE_KEY = re.compile(r"^(?:num|n)_|_(?:layers?|size|dim|rank|heads|experts|width)$|_config$")
# Those of `FAMILIES` that are read elsewhere, are given twice, or belong to generation and to inference.
_WITHOUT_INFLUENCE = """
    chunk_size_feed_forward encoder_no_repeat_ngram_size ep_size max_window_layers moe_intermediate_size
    n_ctx n_group n_groups n_shared_experts n_special_tokens no_repeat_ngram_size num_beam_groups num_beams
    num_experts_per_tok num_labels num_return_sequences qk_head_dim rotary_dim shared_expert_intermediate_size
    sliding_window_size token_size type_vocab_size generation_config task_specific_params
"""


def find_unread(config: Mapping[str, object]) -> dict[str, object]:
    """Return the keys of a configuration that nobody reads, and that by their names may take memory."""
    read = {name for names in _SIZES.values() for name in names} | set(_WITHOUT_INFLUENCE.split())
    hidden = next((config[name] for name in _SIZES["hidden-size"] if name in config), None)
    return {
        name: bool(value)
        for name, value in config.items()
        if name not in read and _SIZE_KEY.search(name) and value not in (hidden, False)
    }


def flag_plain_training(dropout: Dropout) -> dict[str, object]:
    """Return the flags of training in bf16 without a mask from the data loader."""
    return {
        "bf16": True,
        "hidden-dropout": dropout.hidden,
        "attention-dropout": dropout.attention,
        STATES_DROPOUT: dropout.is_said,
        "no-create-attention-mask-in-dataloader": True,
        PLAIN_TRAINING: True,
    }


def assume_model_type(config: Mapping[str, object]) -> str | None:
    """Return the model type that the names of sizes suggest where a `config.json` of transformers has none.

    None where it has one, and for files of Galvatron and Megatron-LM, whose format says what the model is.
    """
    names = {name for name, value in config.items() if value is not None}
    # GPT-2 of transformers has no `head_dim`; all of Galvatron's GPT have one.
    is_galvatron = bool({"dim", "gated_linear_unit"} & names) or {"n_embd", "head_dim"} <= names
    if is_galvatron or Flags(config).has("model-type"):
        return None
    if "d_kv" in names:
        return "t5"
    if "n_embd" in names:
        return "gpt2"
    if "num_hidden_layers" not in names:
        return None
    if {"num_local_experts", "num_experts"} & names:
        return "mixtral"
    return "bert" if "type_vocab_size" in names else "llama"


def _find_family(
    values: Flags, config: Mapping[str, object], families: Mapping[str, Family], assumed: str | None
) -> Family:
    """Return the family of the model type, or of Galvatron's model where there is none."""
    kind = assumed or values.find_word("model-type", "")
    if not kind:
        return _GALVATRON_GPT if "n_embd" in config else _LLAMA
    if kind in families:
        return families[kind]
    known = ", ".join(families)
    what = f"model_type {kind!r}"
    if assumed is not None:
        what = f"model_type is not given, and {kind!r}, which the names of its sizes suggest,"
    if families is not FAMILIES:
        raise UsageError(f"{what} cannot be estimated; expected one of {known}")
    missing = _find_missing_parts(kind, config)
    if missing is None:
        unread = ", ".join(sorted(find_unread(config))[:_MOST_UNREAD])
        missing = (
            f"its layers are unknown{f' (and so are its {unread})' if unread else ''}, known are {known}"
        )
    raise UsageError(f"{what} cannot be estimated: {missing}; {OTHER_WAY}")


def _find_missing_parts(kind: str, config: Mapping[str, object]) -> str | None:
    """Return what of a model is not modelled: towers next to the decoder, and layers of the decoder."""
    if kind.startswith(_ENCODERS):
        return "an encoder without a decoder is not modelled"
    text = config.get("text_config")
    if not isinstance(text, dict):
        return find_missing(kind)
    towers = [name for name in _TOWERS if isinstance(config.get(name), dict)]
    if len(towers) > 1:
        what = f"towers ({', '.join(towers)}) are"
    else:
        what = f"the tower of its {towers[0]} is" if towers else "what is next to its text_config is"
    inner = str(text.get("model_type") or "").lower()
    if inner in FAMILIES:
        return f"{what} not modelled (its section text_config can be given as a file)"
    missing = find_missing(inner) or find_missing(kind) or f"its layers of type {inner!r} are unknown"
    return f"{what} not modelled" + ("" if "tower" in missing else f", and {missing}")


def _flag_experts(values: Flags, flags: Mapping[str, object]) -> dict[str, object]:
    """Return the flags of shared experts, and which layers have a mixture."""
    if flags["num-experts"] is None:
        return {}
    inner = values.find_count("moe-intermediate-size", 0)
    shared = values.find_count(
        "shared-expert-intermediate-size", values.find_count("n-shared-experts", 0) * inner
    )
    pattern = _list_expert_layers(values, Flags(flags).get_count("num-layers"))
    return {"moe-shared-expert-intermediate-size": shared, "moe-layer-freq": pattern}


def _list_expert_layers(values: Flags, layers: int) -> str:
    """Return one 0 or 1 a layer: DeepSeek begins with dense ones, Qwen has a mixture in every n-th one."""
    if not 1 <= layers <= MOST_LAYERS:
        raise UsageError(f"num_hidden_layers is {layers}; expected 1 to {MOST_LAYERS:,}")
    dense = values.find_count("first-k-dense-replace", 0)
    step = max(1, values.find_count("decoder-sparse-step", 1))
    plain = values.find_words("mlp-only-layers", ())
    flags = [
        "0" if layer < dense or (layer + 1) % step or str(layer) in plain else "1" for layer in range(layers)
    ]
    return f"[{','.join(flags)}]"
