"""The layers of a model in the order in which they run, and what each hands on."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from .architecture import Architecture
from .layer import BYTES_OF, MIB, DataType, EdgeInfo, LayerNode, LayerType
from .sizes import RELATIVE_BUCKETS, Batch, Size, size_block, size_embedding, size_head, size_norm

Figures = Literal["counted", "legacy"]
"""Whose `compute_flops`: of the matrix products, or the original's."""


class _Part(NamedTuple):
    type: LayerType
    name: str
    size: Size
    shared: int = 0


class Recipe(NamedTuple):
    """What the figures of a graph are of."""

    batch: Batch
    data_type: DataType = "float32"
    figures: Figures = "counted"


def build_layers(model: Architecture, recipe: Recipe) -> list[LayerNode]:
    """Return the layers of a model."""
    return [_build_layer(model, recipe, place, part) for place, part in enumerate(_list_parts(model, recipe))]


def build_edges(model: Architecture, recipe: Recipe) -> list[EdgeInfo]:
    """Return what the layers of a model hand on: each to the next, an encoder to every decoder block."""
    parts = list(_list_parts(model, recipe))
    pairs = {(place, place + 1) for place in range(len(parts) - 1)}
    if model.decoder_layers:
        last = next(place for place, part in enumerate(parts) if part.name == "encoder_layer_norm")
        pairs |= {(last, last + 1 + block) for block in range(model.decoder_layers)}
    shape = (recipe.batch.sequences, recipe.batch.sequence, model.hidden)
    cost = recipe.batch.tokens * model.hidden * BYTES_OF[recipe.data_type] / MIB
    return [
        EdgeInfo(
            source_id=source,
            target_id=target,
            data_shape=shape,
            data_type=recipe.data_type,
            communication_cost=cost,
        )
        for source, target in sorted(pairs)
    ]


def _list_parts(model: Architecture, recipe: Recipe) -> Iterator[_Part]:
    batch = recipe.batch
    norm = size_norm(model, batch)
    yield _Part("embedding", "word_embeddings", size_embedding(model, batch))
    if model.decoder_layers:
        yield from _list_t5_blocks(model, batch)
    else:
        sizes = {kind: size_block(model, batch, is_mixture=kind) for kind in {*model.mixtures}}
        for number, is_mixture in enumerate(model.mixtures):
            yield _Part("transformer_block", f"transformer_block_{number}", sizes[is_mixture])
    if model.family != "bert":
        yield _Part("layer_norm", "final_layer_norm", norm)
    head = size_head(model, batch)
    shared = model.hidden * model.vocabulary if model.is_tied else 0
    yield _Part("output_head", "pooler" if model.family == "bert" else "lm_head", head, shared)


def _list_t5_blocks(model: Architecture, batch: Batch) -> Iterator[_Part]:
    """Yield the blocks and norm of the encoder, then the decoder; the first of each has the bias."""
    bias = RELATIVE_BUCKETS * model.heads
    for side, count in (("encoder", model.layers), ("decoder", model.decoder_layers)):
        block = size_block(model, batch, has_cross_attention=side == "decoder")
        for number in range(count):
            size = block._replace(parameters=block.parameters + (0 if number else bias))
            yield _Part("transformer_block", f"{side}_block_{number}", size)
        if side == "encoder":
            yield _Part("layer_norm", "encoder_layer_norm", size_norm(model, batch))


def _build_layer(model: Architecture, recipe: Recipe, place: int, part: _Part) -> LayerNode:
    size = part.size
    is_block = part.type == "transformer_block"
    has_vocabulary = part.type == "embedding" or part.name == "lm_head"
    weights = (size.parameters + part.shared) * BYTES_OF[recipe.data_type]
    is_legacy = recipe.figures == "legacy"
    return LayerNode(
        layer_id=place,
        layer_type=part.type,
        name=part.name,
        hidden_size=model.hidden,
        seq_length=recipe.batch.sequence,
        num_heads=model.heads if is_block else None,
        intermediate_size=model.width if is_block else None,
        vocab_size=model.vocabulary if has_vocabulary else None,
        parameter_count=size.parameters,
        memory_usage=weights / MIB,
        compute_flops=_count_as_original(model, recipe.batch.sequence, part.type)
        if is_legacy
        else size.forward_flops / recipe.batch.sequences / 1e9,
        tensor_parallel_dim=model.heads if is_block else model.vocabulary if has_vocabulary else None,
        shared_parameter_count=part.shared or None,
        forward_flops=None if is_legacy else size.forward_flops,
        backward_flops=None if is_legacy else 2 * size.forward_flops,
        activation_bytes=None if is_legacy else size.activation_bytes,
    )


def _count_as_original(model: Architecture, sequence: int, type_: LayerType) -> float:
    """Return the figure of the original: too much of a block, and FLOP, not GFLOP, of the embedding."""
    hidden = model.hidden
    width = model.width
    if type_ == "embedding":
        return 2 * sequence * hidden
    if type_ == "transformer_block":
        return (4 * sequence * sequence * hidden + 8 * sequence * hidden * width) / 1e9
    if type_ == "output_head":
        return sequence * hidden * model.vocabulary / 1e9
    return 5 * sequence * hidden / 1e9
