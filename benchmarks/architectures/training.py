"""Trains one small model of transformers or timm, by its name; needs the package that the name says.

A name is `transformers/TYPE` or `timm/MODEL`. A model of timm is made as it is. One of transformers is made
from the default configuration of its type, with fewer layers, words, experts and heads: divisions keep the
ratios between widths, which models check. What is not sure to work is a list of attempts, from small to
large; `attempt` says which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch

BATCH = 2
TOKENS = 32
WORDS = 1024
# Seconds of sound are short: feature extractors of speech models divide 16,000 samples by 320.
SAMPLES = 16_000
FRAMES = 8
# Layers and experts of the small model. Where kinds of layers alternate, the deep one has each of them.
LAYERS = {"small": 2, "deep": 8, "wide": 2}
SIZES = tuple(LAYERS)
INPUTS = ("main", "images and text", "text", "images")
EXPERTS = 4
LEAST_WIDTH, LEAST_HEADS = 128, 2
# Parameters above which a step with real tensors would take too long here.
MOST_PARAMETERS = 150_000_000
# Tasks of training, in the order in which a type's model is looked for.
TASKS = (
    "SEQ_TO_SEQ_CAUSAL_LM",
    "SPEECH_SEQ_2_SEQ",
    "CTC",
    "IMAGE_TEXT_TO_TEXT",
    "MASKED_LM",
    "CAUSAL_LM",
    "AUDIO_CLASSIFICATION",
    "ZERO_SHOT_IMAGE_CLASSIFICATION",
    "IMAGE_CLASSIFICATION",
    "VIDEO_CLASSIFICATION",
    "OBJECT_DETECTION",
    "SEMANTIC_SEGMENTATION",
    "UNIVERSAL_SEGMENTATION",
    "DEPTH_ESTIMATION",
)
_WITH_LABELS = ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM")
_LAYERS = frozenset(
    [
        "num_hidden_layers",
        "num_layers",
        "n_layer",
        "n_layers",
        "encoder_layers",
        "decoder_layers",
        "num_encoder_layers",
        "num_decoder_layers",
        "depth",
        "decoder_num_hidden_layers",
        "decoder_depth",
        "num_block",
        "num_blocks",
        "encoder_num_hidden_layers",
        "num_hidden_groups",
        "decoder_num_layers",
        "mtp_num_hidden_layers",
    ]
)
_WIDTHS = frozenset(
    [
        "hidden_size",
        "d_model",
        "n_embd",
        "dim",
        "intermediate_size",
        "encoder_ffn_dim",
        "decoder_ffn_dim",
        "d_ff",
        "ffn_dim",
        "n_inner",
        "d_inner",
        "inner_dim",
        "moe_intermediate_size",
        "embed_dim",
        "embedding_size",
        "shared_expert_intermediate_size",
        "out_hidden_size",
        "emb_dim",
        "hidden_dim",
        "projection_dim",
        "mlp_dim",
        "d_embed",
        "n_embed",
        "word_embed_proj_dim",
        "shared_intermediate_size",
        "ffn_hidden_size",
        "attention_hidden_size",
    ]
)
_HEADS = frozenset(
    [
        "num_attention_heads",
        "num_key_value_heads",
        "num_heads",
        "n_head",
        "n_heads",
        "encoder_attention_heads",
        "decoder_attention_heads",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "mamba_n_heads",
        "mamba_num_heads",
        "num_kv_heads",
        "n_head_kv",
        "n_kv_heads",
        "linear_num_heads",
    ]
)
_EXPERTS = frozenset(["num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"])
_CHOSEN = frozenset(["num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts"])


# What a default configuration leaves open or is too large, as a published model of the type has it, or less.
_GIVEN: dict[str, dict[str, Any]] = {
    "chameleon": {"vocabulary_map": {"<image>": 5}},
    "deepseek_v2": {"num_experts_per_tok": 2, "moe_intermediate_size": 1408},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "falcon": {"hidden_size": 512, "num_attention_heads": 8},
    "hunyuan_v1_dense": {"head_dim": 128},
    "longcat_flash": {
        **{"hidden_size": 512, "ffn_hidden_size": 1024, "expert_ffn_hidden_size": 256},
        **{"num_attention_heads": 8, "kv_lora_rank": 64, "q_lora_rank": 64, "zero_expert_num": 2},
    },
    "mamba2": {"n_groups": 1},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8, "head_dim": 128},
    "nemotron_h": {"n_groups": 1},
    "reformer": {"axial_pos_embds": False},
    "wav2vec2-bert": {"vocab_size": 32},
    "wav2vec2-conformer": {"vocab_size": 32},
}


class CannotBeMadeError(Exception):
    """No attempt gives a model that makes a step on the host by itself; the reason is its text."""


def list_attempts(name: str) -> Iterator[tuple[str, ...]]:
    """Return ways to make a model, in the order in which they are tried."""
    if name.startswith("timm/"):
        yield ("as it is",)
        return
    for size in SIZES:
        for inputs in INPUTS if size == "small" else INPUTS[:1]:
            yield size, inputs


def make_training(name: str, attempt: tuple[str, ...], device: str) -> Callable[[], object]:
    """Return one step of training with AdamW; `device` is "cuda" also on the simulated card."""
    torch.manual_seed(0)
    package, _, kind = name.partition("/")
    if package == "timm":
        return _make_timm(kind, device)
    model, task = _make_transformers(kind, attempt[0])
    inputs = _make_inputs(model, task, attempt[1])
    return _make_step(model.to(device).train(), {key: it.to(device) for key, it in inputs.items()})


def _make_step(model: Any, inputs: dict[str, Any], *args: Any) -> Callable[[], object]:
    optimizer = torch.optim.AdamW([it for it in model.parameters() if it.requires_grad], lr=1e-4)

    def step() -> object:
        loss = find_loss(model(*args, **inputs))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def find_loss(output: Any) -> Any:
    """Return the model's own loss, or the sum of the means of all its results that have a gradient."""
    loss = getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.requires_grad:
        return loss
    means = [it.float().mean() for it in _each_result(output) if it.requires_grad]
    if not means:
        raise CannotBeMadeError("its results have no gradient")
    return torch.stack(means).sum()


def _each_result(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _each_result(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _each_result(each)


def _make_timm(name: str, device: str) -> Callable[[], object]:
    timm = import_module("timm")
    model = timm.create_model(name).to(device).train()
    images = torch.rand(BATCH, *model.default_cfg.get("input_size", (3, 224, 224))).to(device)
    return _make_step(model, {}, images)


def _make_transformers(name: str, size: str) -> tuple[Any, str]:
    """Return a model of a type, and the task that it is for."""
    auto = import_module("transformers.models.auto.modeling_auto")
    mapping = import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    if name not in mapping:
        raise CannotBeMadeError("this version of transformers has no such type")
    config = make_config(mapping[name], size)
    for task in TASKS:
        if name in getattr(auto, f"MODEL_FOR_{task}_MAPPING_NAMES"):
            kind = getattr(auto, f"MODEL_FOR_{task}_MAPPING")[type(config)]
            kind = kind[0] if isinstance(kind, tuple) else kind
            with torch.device("meta"):
                parameters = sum(it.numel() for it in kind(config).parameters())
            if parameters > MOST_PARAMETERS:
                raise CannotBeMadeError(f"{parameters / 1e6:,.0f} million parameters are left of it")
            return kind(config), task
    raise CannotBeMadeError("it has no model for a task of training")


def make_config(kind: Any, size: str) -> Any:
    """Return the default configuration of a class, made small."""
    given = _GIVEN.get(kind.model_type, {})
    config = kind(**given)
    arguments = {**given, **_shrink(config, size)}
    if (
        getattr(config, "is_encoder_decoder", False)
        and getattr(config, "decoder_start_token_id", None) is None
    ):
        arguments["decoder_start_token_id"] = 0
    return kind(**arguments)


def _shrink(config: Any, size: str) -> dict[str, Any]:
    """Return the arguments that make a configuration small."""
    values = {key: it for key, it in vars(config).items() if not key.startswith("_")}
    numbers = {key: it for key, it in values.items() if isinstance(it, int) and not isinstance(it, bool)}
    divisor = 1 if size == "wide" else _find_divisor(numbers)
    layers, lists = _choose_layers(values, LAYERS[size])
    most = {
        **dict.fromkeys(_LAYERS, layers),
        **dict.fromkeys(_EXPERTS, EXPERTS),
        **dict.fromkeys(_CHOSEN, 2),
        **dict.fromkeys(("n_group", "topk_group", "num_expert_group"), 1),
        "vocab_size": WORDS,
        "entity_vocab_size": WORDS,
        "vocab_size_per_layer_input": WORDS,
        "num_kv_shared_layers": 0,
    }
    changed: dict[str, Any] = {key: min(most[key], it) for key, it in numbers.items() if key in most}
    changed |= {key: max(1, it // divisor) for key, it in numbers.items() if key in _WIDTHS or key in _HEADS}
    if "vocab_size" in numbers:
        # Special words become the last of the smaller vocabulary, each another.
        names = [key for key in numbers if key.endswith(("token_id", "token_index"))]
        special = [key for key in names if numbers[key] >= changed["vocab_size"]]
        changed |= {key: changed["vocab_size"] - 1 - place for place, key in enumerate(special)}
    # A layer that is left out by chance makes two runs differ.
    changed |= lists | {key: 0.0 for key in values if key.endswith("layerdrop")}
    if values.get("use_cache"):
        # As trainers do: what is cached is for generating text.
        changed["use_cache"] = False
    for key, value in values.items():
        if key in ("depths", "layers") and isinstance(value, (list, tuple)):
            changed[key] = type(value)(min(LAYERS[size], it) for it in value)
        elif hasattr(value, "model_type") and hasattr(value, "to_dict"):
            changed[key] = type(value)(**{**_list_set(value), **_shrink(value, size)})
    return changed


def _choose_layers(values: dict[str, Any], most: int) -> tuple[int, dict[str, Any]]:
    """Return how many layers stay, one of each kind at least, and the lists of their kinds."""
    depth = next((values[key] for key in ("num_hidden_layers", "num_layers", "n_layer") if key in values), 0)
    kinds = {
        key: list(dict.fromkeys(it))
        for key, it in values.items()
        if isinstance(it, list) and len(it) == depth > most and all(isinstance(each, str) for each in it)
    }
    most = max([most, *(len(it) for it in kinds.values())])
    lists: dict[str, Any] = {key: (it * most)[:most] for key, it in kinds.items()}
    if "attention_types" in values:
        # Of GPT-Neo, which makes the list of its layers of it.
        lists["attention_types"] = [[["global", "local"], most // 2]]
    return most, lists


def _list_set(config: Any) -> dict[str, Any]:
    """Return what a part of a configuration has and its class does not have by itself."""
    usual = vars(type(config)())
    return {
        key: it
        for key, it in vars(config).items()
        if not key.startswith("_") and isinstance(it, (str, int, float, list, tuple)) and it != usual.get(key)
    }


def _find_divisor(numbers: dict[str, int]) -> int:
    """Return the largest power of two that divides all widths and heads and leaves enough of them."""
    widths = [it for key, it in numbers.items() if key in _WIDTHS and it > 1]
    heads = [it for key, it in numbers.items() if key in _HEADS and it > 1]
    most = max([1, *(it // LEAST_WIDTH for it in widths if it >= LEAST_WIDTH)])
    divisor = 1
    while (
        divisor * 2 <= most
        and all(it % (divisor * 2) == 0 for it in (*widths, *heads))
        and all(it // (divisor * 2) >= LEAST_HEADS for it in heads if it >= 2 * LEAST_HEADS)
        and min(widths, default=LEAST_WIDTH) // (divisor * 2) >= LEAST_WIDTH // 2
    ):
        divisor *= 2
    return divisor


def _first(config: Any, *names: str, default: Any = None) -> Any:
    """Return the first of these attributes that a configuration, or one in it, has."""
    inner = [it for it in vars(config).values() if hasattr(it, "model_type") and hasattr(it, "to_dict")]
    for name in names:
        for each in (config, *inner):
            value = getattr(each, name, None)
            if isinstance(value, (int, list, tuple)):
                return value
    return default


def _make_inputs(model: Any, task: str, which: str) -> dict[str, Any]:
    """Return inputs of a model by its name for its main input."""
    config = model.config
    words = _first(config, "vocab_size", default=WORDS)
    text = torch.randint(3, max(4, words - 70), (BATCH, TOKENS))
    main = model.main_input_name
    main = main[0] if isinstance(main, (list, tuple)) else main
    if which == "text":
        main = "input_ids"
    elif which in ("images", "images and text"):
        main = "pixel_values"
    made: dict[str, Any] = {}
    if main == "input_ids":
        made[main] = text
    elif main in ("pixel_values", "pixel_values_videos"):
        made[main] = _make_images(config, is_video=main.endswith("videos") or task == "VIDEO_CLASSIFICATION")
    elif main == "input_values":
        bins = _first(config, "num_mel_bins")
        made[main] = (
            torch.randn(BATCH, SAMPLES)
            if task != "AUDIO_CLASSIFICATION" or bins is None
            else torch.randn(BATCH, _first(config, "max_length", default=128), bins)
        )
    elif main == "input_features":
        made[main] = _make_features(config)
    else:
        raise CannotBeMadeError(f"its main input {main} is none that this benchmark knows")
    is_pair = getattr(config, "is_encoder_decoder", False) and task != "CTC"
    if which == "images and text":
        made["input_ids"] = text
    elif is_pair:
        made["decoder_input_ids"] = text.clone()
    if task in _WITH_LABELS and main == "input_ids":
        made["labels"] = text.clone()
        made.pop("decoder_input_ids", None)
    return made


def _make_images(config: Any, *, is_video: bool) -> Any:
    size = _first(config, "image_size", "crop_size", "input_size", default=224)
    height, width = (
        (size[-2], size[-1]) if isinstance(size, (list, tuple)) and len(size) > 1 else (size, size)
    )
    height, width = (it[0] if isinstance(it, (list, tuple)) else it for it in (height, width))
    channels = _first(config, "num_channels", "in_channels", "in_chans", default=3)
    channels = channels if isinstance(channels, int) else 3
    frames = _first(config, "num_frames", "frames_per_clip", default=FRAMES)
    return torch.rand(BATCH, *((frames,) if is_video else ()), channels, height, width)


def _make_features(config: Any) -> Any:
    """Return features of sound: of models like Whisper bins first, else time first."""
    positions = _first(config, "max_source_positions")
    bins = _first(
        config, "num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", default=80
    )
    if getattr(config, "model_type", "") == "whisper" and positions is not None:
        return torch.randn(BATCH, bins, 2 * positions)
    return torch.randn(BATCH, math.ceil(SAMPLES / 160), bins)
