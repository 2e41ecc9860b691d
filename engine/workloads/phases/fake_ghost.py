"""Ghost clipping without storage: the norm of an embedding's gradient, for tokens without values."""

from __future__ import annotations

import torch
from torch import nn

NOTE = (
    "ghost clipping without storage counts every token of a sequence as different from the others: where "
    "tokens repeat, the norm of the embedding's gradient takes a little less"
)


def teach_opacus_to_fake() -> None:
    """Give Opacus a norm sampler of embeddings whose shapes do not follow from values."""
    from opacus.grad_sample import register_norm_sampler

    register_norm_sampler(nn.Embedding)(sample_embedding_norm)


def sample_embedding_norm(
    layer: nn.Embedding, activations: list[torch.Tensor], backprops: torch.Tensor
) -> dict[nn.Parameter, torch.Tensor]:
    """Return a norm for each sample, of shape (batch,), by tensors of the sizes that Opacus's own makes.

    Opacus sums the gradients of tokens that are alike; how many are is not known here, so none is.
    """
    ids = activations[0]
    batch = ids.shape[0]
    tokens = ids[0].numel()
    gradients = backprops.reshape(-1, backprops.size(-1))
    rows = torch.arange(batch, device=ids.device).repeat_interleave(tokens, output_size=batch * tokens)
    pairs = torch.stack((rows, ids.reshape(-1)), dim=1)
    different = pairs.clone()
    places = torch.empty_like(rows)
    summed = gradients.new_zeros(gradients.shape).index_add(0, places, gradients)
    squares = torch.sum(summed**2, dim=1)
    norms = gradients.new_zeros(batch).scatter_add_(0, different[:, 0], squares)
    return {layer.weight: torch.sqrt(norms)}
