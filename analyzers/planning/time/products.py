"""The matrix products of one layer on one rank, forward, of one micro-batch.

T = s b / CP tokens, t tensor ranks; column-parallel projections have 1/t of their columns, row-parallel
ones 1/t of their inner dimension (Megatron-LM, arXiv 1909.08053, section 3).
"""

from typing import NamedTuple

from ..theory import ExpertShape, LatentAttention, ModelShape, ParallelLayout, TrainingSetup
from ..theory.activations import count_tokens


class Product(NamedTuple):
    """Some products of a matrix of rows x inner by one of inner x columns."""

    rows: float
    columns: float
    inner: float
    copies: float = 1

    @property
    def flops(self) -> float:
        """Return multiplications and additions of all of them."""
        return 2 * self.rows * self.columns * self.inner * self.copies

    @property
    def elements(self) -> float:
        """Return what is read and written once, of all of them."""
        sides = self.rows * self.inner + self.inner * self.columns + self.rows * self.columns
        return sides * self.copies


def list_layer_products(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int
) -> list[Product]:
    """Return the products of one layer but for those between queries, keys and values."""
    tokens = count_tokens(layout, setup)
    products = _list_attention(shape, layout.tensor, tokens)
    if shape.experts is not None and shape.is_expert_layer(layer):
        return products + _list_experts(shape, shape.experts, layout, tokens)
    return products + _list_mlp(shape, shape.ffn, layout.tensor, tokens)


def list_core_products(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup
) -> tuple[Product, Product]:
    """Return the products of queries and keys, and of scores and values, of one layer, nothing masked."""
    own = setup.seq_length / layout.context
    count = setup.micro_batch_size * shape.heads / layout.tensor
    keys = shape.query_size / shape.heads
    values = shape.attended_size / shape.heads
    return (
        Product(own, setup.seq_length, keys, count),
        Product(own, values, setup.seq_length, count),
    )


def make_head_product(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> Product:
    """Return the product that makes logits: T by V / t by h."""
    columns = shape.pad_vocab(layout.tensor) / layout.tensor
    return Product(count_tokens(layout, setup), columns, shape.hidden)


def count_routed_rows(experts: ExpertShape, layout: ParallelLayout, tokens: float) -> float:
    """Return the tokens that the routed experts of one rank see, evenly loaded: T k x expert TP / t."""
    return tokens * experts.top_k * layout.expert_shards / layout.tensor


def count_model_flops(shape: ModelShape, setup: TrainingSetup, sequences: int) -> float:
    """Return the FLOPs of a training step, nothing recomputed: three times the forward pass.

    Of fused attention half the scores count, as it skips what the causal mask hides.
    """
    whole = ParallelLayout()
    layers = sum(
        sum(product.flops for product in list_layer_products(shape, whole, setup, layer))
        for layer in range(shape.layers)
    )
    core = sum(product.flops for product in list_core_products(shape, whole, setup)) * shape.layers
    masked = 1.0 if setup.attention == "unfused" else 0.5
    total = layers + masked * core + make_head_product(shape, whole, setup).flops
    return 3 * total * sequences / setup.micro_batch_size


def _list_attention(shape: ModelShape, tensor: int, tokens: float) -> list[Product]:
    if shape.latent is not None:
        return _list_latent(shape, shape.latent, tensor, tokens)
    groups = max(1.0, shape.kv_groups / tensor)
    width = shape.query_size / tensor + 2 * groups * shape.head_channels
    return [
        Product(tokens, width, shape.hidden),
        Product(tokens, shape.hidden, shape.query_size / tensor),
    ]


def _list_latent(shape: ModelShape, latent: LatentAttention, tensor: int, tokens: float) -> list[Product]:
    """Return the projections of multi-head latent attention (arXiv 2405.04434, section 2.1)."""
    expanded = shape.heads * (latent.head_channels + latent.value_channels) / tensor
    products = [
        Product(tokens, shape.query_size / tensor, latent.query_rank or shape.hidden),
        Product(tokens, latent.key_value_rank + latent.rope_channels, shape.hidden),
        Product(tokens, expanded, latent.key_value_rank),
        Product(tokens, shape.hidden, shape.attended_size / tensor),
    ]
    if latent.query_rank is not None:
        products.append(Product(tokens, latent.query_rank, shape.hidden))
    return products


def _list_mlp(shape: ModelShape, ffn: int, shards: int, tokens: float, count: float = 1) -> list[Product]:
    wide = ffn * (2 if shape.is_gated else 1) / shards
    return [
        Product(tokens, wide, shape.hidden, count),
        Product(tokens, shape.hidden, ffn / shards, count),
    ]


def _list_experts(
    shape: ModelShape, experts: ExpertShape, layout: ParallelLayout, tokens: float
) -> list[Product]:
    local = experts.experts / layout.expert
    rows = count_routed_rows(experts, layout, tokens) / local
    products = [Product(tokens / layout.norm_shards, experts.experts, shape.hidden)]
    products += _list_mlp(shape, experts.ffn, layout.expert_shards, rows, local)
    if experts.shared_ffn:
        products += _list_mlp(shape, experts.shared_ffn, layout.tensor, tokens)
    return products
