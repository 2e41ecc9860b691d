"""Reads a model for serving from its config.json, or from a known name."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import msgspec

from ....engine.errors import UsageError
from ..theory import ModelShape
from ..theory.configs.document import (
    FAMILIES,
    POSITIONS,
    Family,
    complete_config,
    find_unread,
    flag_hugging_face,
    read_positions,
)
from ..theory.configs.flags import Flags
from ..theory.configs.megatron import read_shape
from ..theory.presets import find_longest, find_preset
from ..theory.shape import check_shape
from .model import Cache, RecurrentShape, ServedModel, WeightFormat

_LLAMA = Family()
# Served besides those that can be trained: windows, recurrent layers, and what only inference lacks.
SERVED_FAMILIES: Mapping[str, Family] = {
    **FAMILIES,
    "granite": _LLAMA,
    "phi": Family(is_gated=False, has_bias=True, has_layer_norm=True),
    "qwen3_next": Family(has_query_key_norm=True, head_channels=256),
    "jamba": _LLAMA,
    "bamba": _LLAMA,
    "nemotron_h": Family(is_gated=False),
}
# Types whose sizes are in a section `text_config`, next to a vision tower.
_VISION_FAMILIES = {"gemma3": "gemma3_text"}
_TYPES = {"bfloat16": ("bf16", 2), "float16": ("fp16", 2), "float32": ("fp32", 4)}
# vLLM pads the vocabulary to a multiple of this (layers/vocab_parallel_embedding.py).
_VOCAB_MULTIPLE = 64


class Precision(NamedTuple):
    name: str
    element_bytes: int


PRECISIONS = {
    "bf16": Precision("bf16", 2),
    "fp16": Precision("fp16", 2),
    "fp32": Precision("fp32", 4),
}


def describe_served_preset(name: str, precision: Precision) -> ServedModel:
    """Return a known model in bf16, or in a given type; none of them has a window.

    Raises:
        UsageError: No model has the name.
    """
    shape = msgspec.structs.replace(find_preset(name), vocab_multiple=_VOCAB_MULTIPLE)
    positions = find_longest(name)
    return ServedModel(
        shape=shape,
        caches=_place_attention(range(shape.layers), shape.layers),
        has_mlp=(True,) * shape.layers,
        element_bytes=precision.element_bytes,
        weights=WeightFormat(name=precision.name, bits=8 * precision.element_bytes),
        cache_bytes=precision.element_bytes,
        rope_elements=_count_rope(Flags({POSITIONS: positions}), shape, ""),
        positions=positions,
    )


def read_served_model(config: Mapping[str, object], precision: Precision | None = None) -> ServedModel:
    """Read a model from the values of its config.json.

    Args:
        precision: Replaces the type that the configuration names.

    Raises:
        UsageError: The type of model or of quantization is unknown, or a size is missing or impossible.
    """
    vision = 0
    family = str(config.get("model_type") or "").lower()
    outer = config
    if isinstance(config.get("text_config"), dict):
        config, vision = _read_text_section(config, family)
        family = _VISION_FAMILIES[family]
    elif not family:
        raise UsageError("model_type is not given; expected the config.json of a model")
    config = complete_config(config)
    values = Flags(config)
    shape = _read_shape(config, values, family)
    chosen = precision or _read_precision(config, outer)
    caches, has_mlp = _read_layers(config, values, family, shape.layers)
    recurrent = _read_recurrent(values, family, shape, chosen) if "state" in caches else None
    quantization = config.get("quantization_config") or outer.get("quantization_config")
    weights, notes = _read_format(quantization, chosen)
    return ServedModel(
        shape=shape,
        caches=caches,
        has_mlp=has_mlp,
        element_bytes=chosen.element_bytes,
        weights=weights,
        cache_bytes=_read_cache_bytes(quantization, chosen),
        window=_read_window(values, caches),
        recurrent=recurrent,
        has_gated_attention=family == "qwen3_next",
        norms=shape.norms if all(has_mlp) else 1,
        rope_elements=_count_rope(values, shape, family),
        vision_elements=vision,
        positions=read_positions(config),
        notes=(*notes, *_note_unread(config, family)),
    )


def _note_unread(config: Mapping[str, object], family: str) -> Iterator[str]:
    """Yield what is not known of a decoder; models that are only served have names of their own."""
    unread = sorted({*find_unread(config)} - {"quantization_config"}) if family in FAMILIES else ()
    if unread:
        yield f"{', '.join(unread)}: not read; by the name it may be a size"


def _read_window(values: Flags, caches: tuple[Cache, ...]) -> int:
    if "sliding" not in caches:
        return 0
    window = values.find_count("sliding-window", 0)
    if window < 1:
        raise UsageError(f"sliding_window is {window}, but layers have a window; expected its tokens")
    return window


def _read_text_section(config: Mapping[str, object], family: str) -> tuple[Mapping[str, object], int]:
    """Return the section of the language model, and the weights of the vision tower."""
    if family not in _VISION_FAMILIES:
        known = ", ".join(_VISION_FAMILIES)
        raise UsageError(
            f"model_type {family!r} has a vision or audio tower that cannot be estimated (only of {known}); "
            "for the language model alone, give its section text_config as a file"
        )
    text = config["text_config"]
    vision = config.get("vision_config")
    if not isinstance(text, dict) or not isinstance(vision, dict):
        raise UsageError("vision_config is not given; expected the config.json with both sections")
    section = {str(name): value for name, value in text.items()}
    section["model_type"] = _VISION_FAMILIES[family]
    hidden = Flags(section).get_count("hidden-size")
    return section, _count_vision({str(name): value for name, value in vision.items()}, hidden)


def _count_vision(vision: Mapping[str, object], text_hidden: int) -> int:
    """Return the weights of a SigLIP tower and the projector (arXiv 2303.15343; transformers, gemma3)."""
    values = Flags(vision)
    hidden = values.get_count("hidden-size")
    inner = values.get_count("intermediate-size")
    patch = values.get_count("patch-size")
    patches = (values.get_count("image-size") // max(1, patch)) ** 2
    layer = 4 * (hidden * hidden + hidden) + 2 * hidden * inner + inner + hidden + 4 * hidden
    embedding = 3 * patch * patch * hidden + hidden + patches * hidden
    total = values.get_count("num-hidden-layers") * layer + embedding + 2 * hidden
    return max(0, total + hidden * (text_hidden + 1))


def _read_shape(config: Mapping[str, object], values: Flags, family: str) -> ModelShape:
    named = dict(config)
    named.setdefault("head_dim", named.get("attention_head_dim"))
    flags = flag_hugging_face(named, SERVED_FAMILIES)
    # A server loads layers that predict further tokens only for speculative decoding.
    flags["mtp-num-layers"] = 0
    flags["make-vocab-size-divisible-by"] = _VOCAB_MULTIPLE
    if family == "jamba":
        period = values.find_count("expert-layer-period", 2)
        offset = values.find_count("expert-layer-offset", 1)
        layers = values.get_count("num-hidden-layers")
        flags["moe-layer-freq"] = str(
            [int(it % max(1, period) == offset) for it in range(min(layers, 10_000))]
        )
    shape = read_shape(Flags(flags))
    check_shape(shape)
    return shape


def _read_layers(
    config: Mapping[str, object], values: Flags, family: str, layers: int
) -> tuple[tuple[Cache, ...], tuple[bool, ...]]:
    """Return what each layer caches, and whether it has an MLP."""
    every = (True,) * layers
    if family == "nemotron_h":
        return _read_pattern(values.find_text("hybrid-override-pattern") or "", layers)
    names = values.find_words("layer-types", ())
    if names:
        return _name_caches(names, layers), every
    if family == "jamba":
        period = max(1, values.find_count("attn-layer-period", 8))
        offset = values.find_count("attn-layer-offset", 4)
        return _place_attention([it for it in range(layers) if it % period == offset], layers), every
    if family == "bamba":
        places = [int(it) for it in values.find_words("attn-layer-indices", ()) if it.isdecimal()]
        return _place_attention(places, layers), every
    if family == "qwen3_next":
        step = max(1, values.find_count("full-attention-interval", 4))
        return _place_attention(range(step - 1, layers, step), layers), every
    return _read_windows(config, values, family, layers), every


def _place_attention(places: Collection[int], layers: int, *, other: Cache = "state") -> tuple[Cache, ...]:
    """Return the layers of a model with full attention at some places, and another kind elsewhere."""
    return tuple("full" if it in places else other for it in range(layers))


def _read_windows(config: Mapping[str, object], values: Flags, family: str, layers: int) -> tuple[Cache, ...]:
    """Return which layers have a sliding window, by the defaults of transformers."""
    is_off = "use_sliding_window" in config and not values.is_on("use-sliding-window")
    if is_off or values.find_count("sliding-window", 0) < 1:
        return _place_attention(range(layers), layers)
    if family in ("gemma2", "gpt_oss"):
        return _place_attention(range(1, layers, 2), layers, other="sliding")
    if family == "gemma3_text":
        step = max(1, values.find_count("sliding-window-pattern", 6))
        return _place_attention(range(step - 1, layers, step), layers, other="sliding")
    if family in ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"):
        first = values.find_count("max-window-layers", 0)
        return _place_attention(range(first), layers, other="sliding")
    return _place_attention((), layers, other="sliding")


_LAYER_TYPES: dict[str, Cache] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "linear_attention": "state",
    "mamba": "state",
}


def _name_caches(names: tuple[str, ...], layers: int) -> tuple[Cache, ...]:
    unknown = sorted({name for name in names if name not in _LAYER_TYPES})
    if unknown or len(names) != layers:
        what = f"layer_types has {unknown[0]!r}" if unknown else f"layer_types names {len(names)} layers"
        raise UsageError(f"{what}; expected {layers} of {', '.join(_LAYER_TYPES)}")
    return tuple(_LAYER_TYPES[name] for name in names)


def _read_pattern(pattern: str, layers: int) -> tuple[tuple[Cache, ...], tuple[bool, ...]]:
    """Return the layers of a pattern such as `M-M*-`: Mamba 2, attention, or an MLP, each a layer."""
    if len(pattern) != layers or not re.fullmatch(r"[M*-]+", pattern):
        raise UsageError(
            f"hybrid_override_pattern has {len(pattern)} layers; expected {layers} of M, * and -"
        )
    caches: dict[str, Cache] = {"M": "state", "*": "full", "-": "none"}
    return tuple(caches[it] for it in pattern), tuple(it == "-" for it in pattern)


def _read_recurrent(values: Flags, family: str, shape: ModelShape, precision: Precision) -> RecurrentShape:
    found = _shape_recurrent(values, family, shape, precision)
    sizes = (found.matrix_elements, found.other_elements, found.window_elements, found.state_elements)
    if min(sizes) < 1:
        raise UsageError(
            f"the sizes of the {found.kind} layers give {min(sizes)} elements; expected more than 0"
        )
    return found


def _shape_recurrent(values: Flags, family: str, shape: ModelShape, precision: Precision) -> RecurrentShape:
    if family == "qwen3_next":
        return _read_gated_delta(values, shape.hidden, precision)
    if family == "jamba":
        return _read_mamba(values, shape.hidden, precision)
    return _read_mamba2(values, shape.hidden, family, precision)


def _read_gated_delta(values: Flags, hidden: int, precision: Precision) -> RecurrentShape:
    """Gated delta net (arXiv 2412.06464): queries and keys, values and gate, decay and strength."""
    key = values.get_count("linear-num-key-heads") * values.get_count("linear-key-head-dim")
    value_heads = values.get_count("linear-num-value-heads")
    value_channels = values.get_count("linear-value-head-dim")
    value = value_heads * value_channels
    kernel = values.find_count("linear-conv-kernel-dim", 4)
    mixed = 2 * key + value
    return RecurrentShape(
        kind="gated_delta",
        matrix_elements=hidden * (2 * key + 2 * value + 2 * value_heads) + value * hidden,
        other_elements=mixed * kernel + 2 * value_heads + value_channels,
        window_elements=mixed * (kernel - 1),
        state_elements=value_heads * value_channels * values.get_count("linear-key-head-dim"),
        state_bytes=_read_state_bytes(values, precision),
    )


def _read_mamba(values: Flags, hidden: int, precision: Precision) -> RecurrentShape:
    """Mamba (arXiv 2312.00752) as Jamba has it, with norms of dt, B and C."""
    inner = values.find_count("mamba-expand", 2) * hidden
    state = values.find_count("mamba-d-state", 16)
    kernel = values.find_count("mamba-d-conv", 4)
    rank = values.find_count("mamba-dt-rank", -(-hidden // 16))
    return RecurrentShape(
        kind="mamba",
        matrix_elements=hidden * 2 * inner + inner * (rank + 2 * state) + rank * inner + inner * hidden,
        other_elements=inner * (kernel + 1) + inner + inner * (state + 1) + rank + 2 * state,
        window_elements=inner * (kernel - 1),
        state_elements=inner * state,
        state_bytes=_read_state_bytes(values, precision),
    )


def _read_mamba2(values: Flags, hidden: int, family: str, precision: Precision) -> RecurrentShape:
    """Mamba 2 (arXiv 2405.21060)."""
    names = ("mamba-n-heads", "mamba-d-head", "mamba-d-state", "mamba-n-groups", "mamba-d-conv")
    if family == "nemotron_h":
        names = ("mamba-num-heads", "mamba-head-dim", "ssm-state-size", "n-groups", "conv-kernel")
    heads, channels, state, groups, kernel = (values.get_count(name) for name in names)
    inner = heads * channels
    mixed = inner + 2 * groups * state
    return RecurrentShape(
        kind="mamba2",
        matrix_elements=hidden * (inner + mixed + heads) + inner * hidden,
        other_elements=mixed * (kernel + 1) + 3 * heads + inner,
        window_elements=mixed * (kernel - 1),
        state_elements=heads * channels * state,
        state_bytes=_read_state_bytes(values, precision),
    )


def _read_state_bytes(values: Flags, precision: Precision) -> int:
    """Return the bytes of an element of a state: in the model's type, unless the configuration names one."""
    kept = values.find_word("mamba-ssm-cache-dtype", values.find_word("mamba-ssm-dtype", ""))
    return _TYPES[kept][1] if kept in _TYPES else precision.element_bytes


def _count_rope(values: Flags, shape: ModelShape, family: str) -> int:
    """Return the elements of vLLM's tables of rotary positions (layers/rotary_embedding)."""
    positions = values.find_count("max-position-embeddings", 0)
    if shape.learned_positions or not positions or family in ("jamba", "nemotron_h"):
        return 0
    channels = shape.head_channels if shape.latent is None else shape.latent.rope_channels
    channels = int(channels * min(1.0, max(0.0, values.find_number("partial-rotary-factor", 1.0))))
    section = Flags(values.find_section("rope-scaling"))
    kind = section.find_word("rope-type", section.find_word("type", ""))
    rows = positions
    if kind == "linear":
        rows = int(positions * section.find_number("factor", 1.0))
    elif kind == "yarn":
        original = section.find_count("original-max-position-embeddings", positions)
        rows = int(original * section.find_number("factor", 1.0))
    # Layers with a window have a table of their own, which is not scaled.
    local = positions if family == "gemma3_text" else 0
    return max(0, rows + local) * channels


def names_served_type(config: Mapping[str, object]) -> bool:
    """Return whether a config.json names the type it is served in; fp32 is not served as it is."""
    text = config.get("text_config")
    named = [
        Flags(each).find_word(name, "")
        for each in (config, text if isinstance(text, dict) else {})
        for name in ("torch-dtype", "dtype")
    ]
    return any(word and not word.endswith("float32") for word in named)


def _read_precision(config: Mapping[str, object], outer: Mapping[str, object]) -> Precision:
    for section in (config, outer):
        for name in ("torch_dtype", "dtype"):
            given = section.get(name)
            if given is not None:
                key = str(given).removeprefix("torch.")
                if key not in _TYPES:
                    raise UsageError(f"{name} is {given!r}; expected one of {', '.join(_TYPES)}")
                # Servers run a checkpoint in fp32 in 16 bits, unless they are asked not to.
                return PRECISIONS["bf16"] if key == "float32" else Precision(*_TYPES[key])
    return PRECISIONS["bf16"]


def _read_format(quantization: object, precision: Precision) -> tuple[WeightFormat, tuple[str, ...]]:
    """Return the format of linear layers, and what it leaves open."""
    if not isinstance(quantization, dict):
        return WeightFormat(name=precision.name, bits=8 * precision.element_bytes), ()
    values = Flags({str(name): value for name, value in quantization.items()})
    method = values.find_word("quant-method", "")
    if method not in _FORMATS:
        raise UsageError(
            f"quant_method {method!r} cannot be estimated; expected one of {', '.join(_FORMATS)}"
        )
    notes = _note_skipped(values)
    if method == "mxfp4":
        notes = ("rounding of mxfp4 experts to what a GPU's kernels need: up to 9 % more was measured",)
    return _FORMATS[method](values), notes


def _read_fp8(values: Flags) -> WeightFormat:
    block = values.find_words("weight-block-size", ())
    is_blocked = len(block) == 2 and all(it.isdecimal() for it in block)
    group = int(block[0]) * int(block[1]) if is_blocked else 0
    return WeightFormat(name="fp8", bits=8, group=group, scale_bytes=4)


def _read_grouped(values: Flags) -> WeightFormat:
    """GPTQ and AWQ: scales in 16 bits and zero points."""
    group = values.find_count("group-size", values.find_count("q-group-size", 128))
    bits = values.find_count("bits", values.find_count("w-bit", 4))
    name = values.find_word("quant-method", "")
    return WeightFormat(name=name, bits=_check_bits(bits), group=max(0, group), scale_bytes=2, has_zeros=True)


def _read_compressed(values: Flags) -> WeightFormat:
    groups = values.find_section("config-groups")
    first = next(iter(groups.values()), None)
    weights = first.get("weights") if isinstance(first, dict) else None
    if not isinstance(weights, dict):
        raise UsageError(
            "config_groups of quantization_config has no weights; expected num_bits and strategy"
        )
    chosen = Flags({str(name): value for name, value in weights.items()})
    bits = _check_bits(chosen.get_count("num-bits"))
    group = chosen.find_count("group-size", 0)
    kind = "fp" if chosen.find_word("type", "int") == "float" else "int"
    return WeightFormat(
        name=f"{kind}{bits}", bits=bits, group=max(0, group), scale_bytes=2 if group > 0 else 4
    )


def _read_bitsandbytes(values: Flags) -> WeightFormat:
    if values.is_on("load-in-8bit"):
        return WeightFormat(name="bitsandbytes", bits=8, scale_bytes=4)
    scale = 1 if values.is_on("bnb-4bit-use-double-quant") else 4
    return WeightFormat(name="bitsandbytes", bits=4, group=64, scale_bytes=scale)


def _read_mxfp4(values: Flags) -> WeightFormat:
    return WeightFormat(name="mxfp4", bits=4, group=32, scale_bytes=1, is_expert_only=True)


def _read_modelopt(values: Flags) -> WeightFormat:
    if "NVFP4" not in str(values.find_text("quant-algo")):
        raise UsageError(f"quant_algo {values.find_text('quant-algo')!r} cannot be estimated; expected NVFP4")
    return WeightFormat(name="nvfp4", bits=4, group=16, scale_bytes=1)


def _check_bits(bits: int) -> int:
    if bits not in (2, 3, 4, 8):
        raise UsageError(f"weights of {bits} bits cannot be estimated; expected 2, 3, 4 or 8")
    return bits


_FORMATS: Mapping[str, Callable[[Flags], WeightFormat]] = {
    "fp8": _read_fp8,
    "fbgemm_fp8": _read_fp8,
    "compressed-tensors": _read_compressed,
    "gptq": _read_grouped,
    "awq": _read_grouped,
    "bitsandbytes": _read_bitsandbytes,
    "mxfp4": _read_mxfp4,
    "modelopt": _read_modelopt,
}


def _note_skipped(values: Flags) -> tuple[str, ...]:
    """Name modules that a quantization leaves out, other than head and routers, which are never counted."""
    names = [
        *values.find_words("ignore", ()),
        *values.find_words("modules-to-not-convert", ()),
        *values.find_words("ignored-layers", ()),
    ]
    others = [name for name in names if not re.search(r"lm_head|gate|router|vision|embed|norm", name)]
    if not others:
        return ()
    return (f"{len(others)} modules that quantization leaves out, such as {others[0]}: more is needed",)


def _read_cache_bytes(quantization: object, precision: Precision) -> int:
    scheme = quantization.get("kv_cache_scheme") if isinstance(quantization, dict) else None
    if isinstance(scheme, dict):
        return 1 if Flags(scheme).find_count("num-bits", 8) == 8 else precision.element_bytes
    return precision.element_bytes
