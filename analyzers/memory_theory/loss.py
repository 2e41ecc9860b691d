"""Logits, the loss, and what both need for a moment: what fills the last stage of a model with many words."""

from .activations import STATISTIC_BYTES, count_tokens
from .layout import ParallelLayout
from .shape import ModelShape
from .training import TrainingSetup


def list_head_activations(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> dict[str, int]:
    """Return what norm and head of the last stage save: two tensors of T h elements, split as norms are."""
    own = count_tokens(layout, setup) // layout.norm_shards
    hidden = own * shape.hidden * setup.numbers.compute_bytes
    return {
        "final norm input": hidden,
        "head input": hidden,
        "final norm statistics": own * STATISTIC_BYTES * 2,
    }


def count_loss(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> int:
    """Return the bytes of logits and loss at their worst moment.

    One of T V / t logits costs 2 bytes, and 4 for its softmax in fp32, which is kept for backward and turned
    there into a gradient of 2 bytes beside it. Compiled: 4 more, for exponentials in a tensor of their own.
    In place: 2, the gradient replaces the logit. Eager: 12, three tensors in fp32 when PyTorch's own cross
    entropy runs backward: logarithms, their gradient and that of the logits. (Megatron-LM,
    core/tensor_parallel/cross_entropy.py and core/fusions/; Transformer Engine, cross_entropy.)
    """
    logits = count_logits(shape, layout, setup)
    size = setup.numbers.compute_bytes
    plain = size + 4 if size < 4 else 8
    per_logit = {"plain": plain, "compiled": plain + 4, "in_place": size, "eager": 12}[setup.loss]
    kept = 4 if setup.loss != "in_place" else size
    deferred = setup.deferred_gradients * size
    return logits * (per_logit + shape.predicted_tokens * kept + deferred)


def count_logits(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> int:
    """Return the logits of one micro-batch on one rank: T V / t elements, V padded."""
    return count_tokens(layout, setup) * (shape.pad_vocab(layout.tensor) // layout.tensor)


def list_embedding_activations(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup
) -> dict[str, int]:
    """Return what the embedding of the first stage saves: token ids of 8 bytes, and the mask of dropout."""
    tokens = count_tokens(layout, setup)
    dropout = tokens // layout.norm_shards * shape.hidden if setup.has_hidden_dropout else 0
    return {"token ids": 8 * tokens, "embedding dropout": dropout}


def count_batch(layout: ParallelLayout, setup: TrainingSetup) -> int:
    """Return the bytes of the batch on the device: ids, labels and positions of 8 bytes, a loss mask of 4.

    A mask of attention, where the loader makes one, is b s^2 / CP bytes.
    """
    tokens = count_tokens(layout, setup)
    mask = tokens * setup.seq_length if setup.has_attention_mask else 0
    return tokens * (3 * 8 + 4) + mask
