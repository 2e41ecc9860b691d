"""A model's sizes from a configuration, as `estimate` reads it, and of encoders, which it does not read."""

from collections.abc import Mapping, Sequence

import msgspec

from ....engine.errors import InputFileError, UsageError
from ....engine.files.run_config import RunConfig
from ..theory.configs.document import (
    OF_GPT,
    assume_model_type,
    choose_tokens,
    describe_config,
    find_positions,
    read_dropout,
)
from ..theory.configs.flags import Flags
from .catalog import Architecture, Family, check_architecture, take_shape
from .graph import EdgeInfo, LayerNode


def read_encoder(config: Mapping[str, object], what: str) -> Architecture | None:
    """Return the sizes of T5 or BERT; None where the configuration is of another model.

    Raises:
        InputFileError: A size is missing or of the wrong type.
        UsageError: A size is impossible.
    """
    kind = assume_model_type(config) or config.get("model_type")
    if kind not in ("t5", "bert"):
        return None
    try:
        model = _read_t5(config) if kind == "t5" else _read_bert(config)
    except UsageError as error:
        raise InputFileError(f"{what}: {error}") from None
    return check_architecture(model, what)


def read_decoder(config: RunConfig, what: str) -> Architecture:
    """Return the sizes of a decoder as `estimate` reads them.

    Raises:
        InputFileError: Its kind is unknown, or a size is missing or of the wrong type.
        UsageError: A size is impossible.
    """
    try:
        described = describe_config(config)
        has_dropout = Flags(described.flags).find_number("hidden-dropout", OF_GPT.hidden) > 0
    except UsageError as error:
        raise InputFileError(f"{what}: {error}") from None
    positions = find_positions(described) or choose_tokens(described)
    return check_architecture(take_shape(described.shape, positions, has_dropout=has_dropout), what)


def _read_t5(config: Mapping[str, object]) -> Architecture:
    model = _read_sizes(config, "t5")
    return msgspec.structs.replace(
        model,
        decoder_layers=model.decoder_layers or model.layers,
        has_gate=str(config.get("feed_forward_proj", "")).startswith("gated"),
        is_tied=config.get("tie_word_embeddings", True) is not False,
    )


def _read_bert(config: Mapping[str, object]) -> Architecture:
    sizes = _read_sizes(config, "bert")
    return msgspec.structs.replace(sizes, has_biases=True, has_positions=True, norm_size=2)


def _read_sizes(config: Mapping[str, object], family: Family) -> Architecture:
    values = Flags(config)

    def read(*names: str, default: int | None = None) -> int:
        for flag in (name.replace("_", "-") for name in names):
            if values.has(flag):
                return values.get_count(flag)
        if default is None:
            raise UsageError(
                f"{' or '.join(names)} is not given; expected a model's config.json with all sizes"
            )
        return default

    return Architecture(
        family=family,
        hidden=read("d_model", "hidden_size"),
        layers=read("num_layers", "num_hidden_layers"),
        heads=read("num_heads", "num_attention_heads"),
        vocabulary=read("vocab_size"),
        # Both are trained on sequences of 512 tokens, unless their file says otherwise.
        positions=read("max_position_embeddings", "n_positions", default=512),
        head_size=read("d_kv", default=0),
        intermediate=read("d_ff", "intermediate_size", default=0),
        decoder_layers=read("num_decoder_layers", default=0),
        has_dropout=read_dropout(config, OF_GPT).hidden > 0,
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
