"""Activations that a pipeline rank holds at its fullest: layers, recompute, micro-batches in flight."""

from collections.abc import Sequence

from .activations import count_tokens
from .layer_figures import RunFigures
from .layout import ParallelLayout
from .loss import list_embedding_activations
from .shape import ModelShape
from .training import TrainingSetup


def list_held_activations(
    run: RunFigures, pieces: Sequence[range], in_flight: int, *, is_first: bool
) -> dict[str, int]:
    """Return the bytes that wait for backward on one pipeline rank, by operation.

    Full recompute keeps the input of every checkpoint, s b h elements (Chen et al., arXiv 1604.06174), split
    over the tensor ranks where norms are, or on demand; layers beyond `recomputed_layers` are kept whole.

    Args:
        run: Model, degrees and setup.
        pieces: Layers of each piece of the rank.
        in_flight: Pieces of forward work held at once; they fill in the order of the interleaved schedule.
        is_first: Whether the first piece begins with the embedding.
    """
    turns = share_turns(run.layout, run.setup, in_flight, len(pieces))
    checkpoints, kept = 0, dict[int, int]()
    for layers, times in zip(pieces, turns, strict=True):
        recomputed = _count_recomputed_layers(run.setup, len(layers))
        checkpoints += times * -(-recomputed // run.setup.recompute_unit_layers)
        for layer, count in run.count_kinds(layers[recomputed:]).items():
            kept[layer] = kept.get(layer, 0) + times * count
    held: dict[str, int] = {}
    if checkpoints:
        held["checkpoints"] = checkpoints * count_checkpoint(run.shape, run.layout, run.setup)
    for layer, times in kept.items():
        for name, size in run.find_figures(layer).saved.items():
            held[name] = held.get(name, 0) + times * size
    if is_first:
        for name, size in list_embedding_activations(run.shape, run.layout, run.setup).items():
            held[name] = turns[0] * size
    return held


def share_turns(layout: ParallelLayout, setup: TrainingSetup, in_flight: int, pieces: int) -> list[int]:
    """Return how much of the forward work in flight is of each piece of the rank.

    A piece runs a group of micro-batches, then the next piece runs it; no piece runs more than there are.
    """
    most = setup.micro_batches if layout.pipeline > 1 else 1
    group = min(setup.micro_batch_group or layout.pipeline, most)
    rounds, rest = divmod(in_flight, group * pieces)
    shares = [rounds * group + min(group, max(0, rest - piece * group)) for piece in range(pieces)]
    turns = [min(share, most) for share in shares]
    left = in_flight - sum(turns)
    for piece, turn in enumerate(turns):
        more = min(left, most - turn)
        turns[piece] += more
        left -= more
    return turns


def _count_recomputed_layers(setup: TrainingSetup, layers: int) -> int:
    """Return how many of the layers of a piece are recomputed in full: the first ones, or every n-th."""
    if setup.recompute != "full":
        return 0
    if setup.recompute_every > 1:
        return layers // setup.recompute_every
    return layers if setup.recomputed_layers is None else min(setup.recomputed_layers, layers)


def count_checkpoint(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> int:
    """Return the bytes of the input of one checkpoint: s b h / CP elements, whole or split."""
    shards = layout.tensor if setup.is_checkpoint_sharded else layout.norm_shards
    return count_tokens(layout, setup) // shards * shape.hidden * setup.numbers.compute_bytes


def count_recomputed(run: RunFigures, layers: Sequence[int]) -> int:
    """Return the bytes that one checkpoint's layers save while their backward pass runs."""
    recomputed = _count_recomputed_layers(run.setup, len(layers))
    if not recomputed or (run.setup.recompute_every == 1 and recomputed < len(layers)):
        return 0
    unit = layers[-run.setup.recompute_unit_layers :]
    kinds = run.count_kinds(unit)
    return sum(run.find_figures(layer).saved_bytes * count for layer, count in kinds.items())
