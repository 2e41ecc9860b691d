"""Activations that a pipeline rank holds at its fullest: layers, recompute, micro-batches in flight."""

from collections import Counter
from collections.abc import Sequence

from .activations import count_tokens, list_layer_activations
from .layout import ParallelLayout
from .loss import list_embedding_activations
from .shape import ModelShape
from .training import TrainingSetup


def list_held_activations(
    shape: ModelShape,
    layout: ParallelLayout,
    setup: TrainingSetup,
    pieces: Sequence[range],
    in_flight: int,
    *,
    is_first: bool,
) -> dict[str, int]:
    """Return the bytes that wait for backward on one pipeline rank, by operation.

    Args:
        shape: The model.
        layout: Degrees of parallelism.
        setup: The run.
        pieces: Layers of each piece of the rank.
        in_flight: Pieces of forward work held at once; they fill in the order of the interleaved schedule.
        is_first: Whether the first piece begins with the embedding.
    """
    held: Counter[str] = Counter()
    turns = _share_turns(in_flight, setup.micro_batch_group or layout.pipeline, len(pieces))
    for piece, times in enumerate(turns):
        for name, size in list_piece_activations(shape, layout, setup, pieces[piece]).items():
            held[name] += times * size
    if is_first:
        for name, size in list_embedding_activations(shape, layout, setup).items():
            held[name] += turns[0] * size
    return dict(held)


def _share_turns(in_flight: int, group: int, pieces: int) -> list[int]:
    """Return how much of the forward work is of each piece of the rank: `group` of one, then of the next."""
    rounds, rest = divmod(in_flight, group * pieces)
    return [rounds * group + min(group, max(0, rest - piece * group)) for piece in range(pieces)]


def list_piece_activations(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layers: Sequence[int]
) -> dict[str, int]:
    """Return the bytes that some layers save of one micro-batch.

    Full recompute keeps the input of every checkpoint, s b h elements (Chen et al., arXiv 1604.06174), split
    over the tensor ranks where norms are, or on demand; layers beyond `recomputed_layers` are kept whole.
    """
    saved: Counter[str] = Counter()
    kept = layers
    if setup.recompute == "full":
        count = len(layers) if setup.recomputed_layers is None else min(setup.recomputed_layers, len(layers))
        kept = layers[count:]
        checkpoints = -(-count // setup.recompute_unit_layers)
        saved["checkpoints"] = checkpoints * count_checkpoint(shape, layout, setup)
    for layer in kept:
        saved.update(list_layer_activations(shape, layout, setup, layer))
    return dict(saved)


def count_checkpoint(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> int:
    """Return the bytes of the input of one checkpoint: s b h / CP elements, whole or split."""
    shards = layout.tensor if setup.is_checkpoint_sharded else layout.norm_shards
    return count_tokens(layout, setup) // shards * shape.hidden * setup.numbers.compute_bytes


def count_recomputed(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layers: Sequence[int]
) -> int:
    """Return the bytes that one checkpoint's layers save while their backward pass runs."""
    if setup.recompute != "full" or not layers:
        return 0
    is_last_recomputed = setup.recomputed_layers is None or setup.recomputed_layers >= len(layers)
    if not is_last_recomputed:
        return 0
    unit = layers[-setup.recompute_unit_layers :]
    return sum(sum(list_layer_activations(shape, layout, setup, layer).values()) for layer in unit)
