"""A model's sizes from a configuration: Hugging Face's `config.json`, or Galvatron's of either era."""

from collections.abc import Mapping, Sequence

import msgspec

from ....engine.errors import InputFileError, UsageError
from ....engine.text import find_nearest
from ..theory import ExpertShape
from ..theory.configs import Flags
from ..theory.configs.document import (
    FAMILIES,
    NO_DROPOUT,
    OF_GPT,
    assume_model_type,
    flag_hugging_face,
    read_dropout,
)
from ..theory.configs.megatron import read_shape
from .catalog import Architecture, Family, check_architecture, take_shape
from .graph import EdgeInfo, LayerNode

# Sizes that every configuration has, under the names in use.
_KEYS: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "layers": ("num_hidden_layers", "num_layers", "n_layer", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
}
_OPTIONAL: dict[str, tuple[str, ...]] = {
    "positions": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"),
    "kv_heads": ("num_key_value_heads", "num_query_groups", "n_kv_heads"),
    "head_size": ("head_dim", "d_kv", "kv_channels"),
    "intermediate": ("intermediate_size", "ffn_hidden_size", "n_inner", "d_ff", "ffn_dim"),
    "decoder_layers": ("num_decoder_layers",),
    "experts": ("num_local_experts", "num_experts"),
    "experts_per_token": ("num_experts_per_tok", "moe_router_topk"),
}
# By `model_type`; the memory theory reads further decoders.
_FAMILIES: dict[str, Family] = {
    "gpt2": "gpt",
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "llama",
    "mixtral": "moe",
    "t5": "t5",
    "bert": "bert",
}
# Used where a configuration names no longest sequence.
POSITIONS = 2048


def read_architecture(config: Mapping[str, object], what: str) -> Architecture:
    """Read the sizes of a model from a configuration.

    Raises:
        InputFileError: Its kind is unknown, or a size is missing or of the wrong type.
        UsageError: A size is impossible.
    """
    assumed = assume_model_type(config)
    if assumed is not None:
        config = {**config, "model_type": assumed}
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in FAMILIES and kind not in _FAMILIES:
        return check_architecture(_read_decoder(config, what), what)
    family = _find_family(config, what)
    sizes = {field: _find_size(config, names, what) for field, names in (_KEYS | _OPTIONAL).items()}
    for field, names in _KEYS.items():
        if sizes[field] is None:
            raise InputFileError(f"{what}: no {field}: expected a key {' or '.join(names)}")
    known = {field: size for field, size in sizes.items() if size is not None}
    known.setdefault("positions", 512 if family == "t5" else POSITIONS)
    experts = None
    if family == "moe" and known.get("experts"):
        # A mixture like Mixtral's: in all layers, each expert as wide as an MLP.
        experts = ExpertShape(
            experts=known["experts"],
            top_k=known.get("experts_per_token", 0),
            ffn=known.get("intermediate", 0) or 4 * known["hidden"],
            is_expert_layer=(True,),
        )
    model = Architecture(
        family=family,
        layers=known["layers"],
        hidden=known["hidden"],
        heads=known["heads"],
        vocabulary=known["vocabulary"],
        positions=known["positions"],
        kv_heads=known.get("kv_heads", 0),
        head_size=known.get("head_size", 0),
        intermediate=known.get("intermediate", 0) or _round_width(config, known["hidden"]),
        decoder_layers=known.get("decoder_layers", known["layers"]) if family == "t5" else 0,
        experts=experts,
    )
    return check_architecture(_set_switches(model, config), what)


def _read_decoder(config: Mapping[str, object], what: str) -> Architecture:
    """Return a decoder that the memory theory knows."""
    try:
        flags = Flags(flag_hugging_face(config))
        shape = read_shape(flags)
    except UsageError as error:
        raise InputFileError(f"{what}: {error}") from None
    positions = _find_size(config, _OPTIONAL["positions"], what) or POSITIONS
    return take_shape(shape, positions, has_dropout=flags.find_number("hidden-dropout", 0.0) > 0)


def _find_family(config: Mapping[str, object], what: str) -> Family:
    type_ = config.get("model_type")
    if isinstance(type_, str):
        if type_ not in _FAMILIES:
            known = dict.fromkeys((*_FAMILIES, *FAMILIES))
            nearest = find_nearest(type_, known)
            hint = f"the nearest is {nearest[0]}" if nearest else f"known are {', '.join(known)}"
            raise InputFileError(f"{what}: model_type {type_!r} is unknown: {hint}")
        return _FAMILIES[type_]
    if any(config.get(name) is not None for name in ("num_local_experts", "num_experts")):
        return "moe"
    if "dim" in config or config.get("gated_linear_unit") is True:
        return "llama"
    return "gpt"


def _find_size(config: Mapping[str, object], names: tuple[str, ...], what: str) -> int | None:
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputFileError(f"{what}: {name} is {value!r}: expected an integer of at least 0")
        return value
    return None


def _round_width(config: Mapping[str, object], hidden: int) -> int:
    """Return the width of the MLP that Meta's LLaMA code derives from `multiple_of`; 0 without it."""
    multiple = config.get("multiple_of")
    if not isinstance(multiple, int) or multiple < 1:
        return 0
    return -(-(8 * hidden // 3) // multiple) * multiple


def _set_switches(model: Architecture, config: Mapping[str, object]) -> Architecture:
    """Set biases, norms, gates and ties of a model by its family and the configuration."""
    is_hugging_face = "model_type" in config
    is_plain_galvatron = "n_embd" in config and not is_hugging_face
    is_yaml = "add_bias_linear" in config
    has_layer_norm = config.get("normalization", "LayerNorm") == "LayerNorm"
    is_classic = model.family in ("gpt", "bert") and not is_plain_galvatron
    has_biases = config.get("add_bias_linear") is True if is_yaml else is_classic
    tied = config.get("tie_word_embeddings", model.family in ("gpt", "t5") and is_hugging_face)
    if "untie_embeddings_and_output_weights" in config:
        tied = not config["untie_embeddings_and_output_weights"]
    is_gated_t5 = str(config.get("feed_forward_proj", "")).startswith("gated")
    is_gated = model.family in ("llama", "moe") or is_gated_t5
    is_qwen = config.get("model_type") == "qwen2" or config.get("add_qkv_bias") is True
    usual = OF_GPT if model.family in ("gpt", "t5", "bert") else NO_DROPOUT
    has_positions = config.get("position_embedding_type") == "learned_absolute" if is_yaml else is_classic
    return msgspec.structs.replace(
        model,
        has_biases=has_biases,
        has_qkv_biases=is_qwen or config.get("attention_bias") is True,
        has_positions=has_positions,
        has_gate=is_gated,
        has_dropout=read_dropout(config, usual).hidden > 0,
        is_tied=bool(tied) and model.family != "bert",
        norm_size=2 if is_classic and has_layer_norm else 1,
    )


# Reads a model graph from the JSON that llm_parallel_strategy writes, or from ours, which adds fields.

LARGEST = 1 << 60
_FIGURES = (
    "parameter_count",
    "memory_usage",
    "compute_flops",
    "shared_parameter_count",
    "forward_flops",
    "backward_flops",
    "activation_bytes",
)


class GraphDocument(msgspec.Struct, frozen=True):
    """Content of the file; `stats` follow from the nodes and are not read."""

    nodes: dict[str, LayerNode]
    edges: list[EdgeInfo]
    config: Mapping[str, object] = {}


def decode_graph(data: bytes, what: str) -> GraphDocument:
    """Decode the JSON of a graph's file; `what` names the file in the error.

    Raises:
        InputFileError: It is no such JSON, or a number is negative or beyond all bounds.
    """
    try:
        document = msgspec.json.decode(data, type=GraphDocument)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputFileError(f"{what}: not a model graph: {error}; expected nodes and edges") from None
    for key, layer in document.nodes.items():
        if str(layer.layer_id) != key:
            raise InputFileError(f"{what}: node {key!r} has layer_id {layer.layer_id}: expected the same")
        _check_figures([getattr(layer, name) for name in _FIGURES], f"{what}: node {key!r}")
    for edge in document.edges:
        _check_figures([edge.communication_cost], f"{what}: edge {edge.source_id}-{edge.target_id}")
    return document


def _check_figures(figures: Sequence[float | None], where: str) -> None:
    if not all(0 <= (figure or 0) <= LARGEST for figure in figures):
        raise InputFileError(f"{where} has a number out of range: expected 0 to {LARGEST:,}")
