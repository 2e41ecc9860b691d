"""Seconds of one layer, and of what comes before and after all layers, for one micro-batch on one rank."""

from math import ceil
from typing import NamedTuple

from ..theory import ExpertShape, LatentAttention, ModelShape, ParallelLayout, TrainingSetup
from ..theory.activations import count_tokens
from .groups import DeviceSpeed, Ring, StageGroups, TimeAssumptions

# The matrix products of one layer on one rank, forward, of one micro-batch.
#
# T = s b / CP tokens, t tensor ranks; column-parallel projections have 1/t of their columns, row-parallel
# ones 1/t of their inner dimension (Megatron-LM, arXiv 1909.08053, section 3).


class Product(NamedTuple):
    """Products of a matrix of rows x inner by one of inner x columns."""

    rows: float
    columns: float
    inner: float
    copies: float = 1

    @property
    def flops(self) -> float:
        """Multiplications and additions of all copies."""
        return 2 * self.rows * self.columns * self.inner * self.copies

    @property
    def elements(self) -> float:
        """Elements that are read or written once, of all copies."""
        sides = self.rows * self.inner + self.inner * self.columns + self.rows * self.columns
        return sides * self.copies


def list_layer_products(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int
) -> list[Product]:
    """Return the products of one layer except those between queries, keys and values."""
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

    With fused attention half the scores count, as it skips what the causal mask hides.
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


# Kernels of one layer, forward; as many backward. A host launches them one by one.
HOST_OPERATIONS = 20
# Products backward for each forward: for the input's gradient and for the weight's.
BACKWARD = 2


class PassTime(NamedTuple):
    kernels_s: float = 0.0
    # Collectives between tensor, context and expert ranks that nothing hides.
    sent_s: float = 0.0

    def plus(self, other: "PassTime") -> "PassTime":
        return PassTime(self.kernels_s + other.kernels_s, self.sent_s + other.sent_s)

    @property
    def total_s(self) -> float:
        return self.kernels_s + self.sent_s


class LayerTime(NamedTuple):
    """Both passes of a part of the model; recomputation is in the backward pass."""

    forward: PassTime = PassTime()
    backward: PassTime = PassTime()

    @property
    def both(self) -> PassTime:
        return self.forward.plus(self.backward)


class StageClock:
    """Times layers for a rank of one stage."""

    def __init__(
        self,
        shape: ModelShape,
        layout: ParallelLayout,
        setup: TrainingSetup,
        device: DeviceSpeed,
        groups: StageGroups,
        assumptions: TimeAssumptions,
    ) -> None:
        self._shape = shape
        self._layout = layout
        self._setup = setup
        self._groups = groups
        self._assumptions = assumptions
        self._kernels = KernelTimes(device, assumptions)
        self._hidden_bytes = count_tokens(layout, setup) * shape.hidden * setup.numbers.compute_bytes

    def time_layer(self, layer: int) -> LayerTime:
        core_forward, core_backward = self._kernels.time_core(self._shape, self._layout, self._setup)
        dense = self._time_dense(layer)
        sent_forward, sent_backward = self._time_collectives(layer, core_forward)
        forward = self._launched(dense + core_forward, sent_forward)
        backward = self._launched(BACKWARD * dense + core_backward, sent_backward)
        if self._setup.recompute == "full":
            backward = backward.plus(forward)
        if self._setup.recompute == "selective" and "core_attn" in self._setup.recomputed_modules:
            backward = backward.plus(PassTime(core_forward))
        if self._setup.recompute == "operations":
            backward = backward.plus(PassTime(dense / 2))
        return LayerTime(forward, backward)

    def time_embedding(self) -> LayerTime:
        """Return the seconds of the embedding: rows read and written, and an all-reduce."""
        rows = self._kernels.time_bytes(2 * self._hidden_bytes)
        sent = self._groups.tensor.time_all_reduce(self._hidden_bytes)
        return LayerTime(PassTime(rows, sent), PassTime(2 * rows))

    def time_head(self) -> LayerTime:
        """Return the seconds of logits and loss, and the all-reduce of the hidden states' gradient."""
        product = make_head_product(self._shape, self._layout, self._setup)
        seconds = self._kernels.time_product(product, self._setup.numbers.compute_bytes)
        logits = product.rows * product.columns
        forward = seconds + self._kernels.time_bytes(logits * LOSS_BYTES[0])
        backward = BACKWARD * seconds + self._kernels.time_bytes(logits * LOSS_BYTES[1])
        sent = self._groups.tensor.time_all_reduce(self._hidden_bytes)
        return LayerTime(PassTime(forward), PassTime(backward, sent))

    def time_handover(self, following: Ring) -> float:
        """Return the seconds in which hidden states go to the next stage.

        Each tensor rank sends its share, T h / t, and the next stage gathers them (arXiv 2104.04473,
        section 4.1); with sequence parallelism they stay shared out.
        """
        tensor = self._groups.tensor
        sent = following.time_send(self._hidden_bytes / tensor.ranks)
        is_gathered = sent > 0 and not self._layout.is_sequence_parallel
        return sent + (tensor.time_phase(self._hidden_bytes) if is_gathered else 0.0)

    def _time_dense(self, layer: int) -> float:
        size = self._setup.numbers.compute_bytes
        products = list_layer_products(self._shape, self._layout, self._setup, layer)
        passed = count_passed_bytes(self._shape, self._layout, self._setup, layer)
        return sum(self._kernels.time_product(product, size) for product in products) + (
            self._kernels.time_bytes(passed)
        )

    def _launched(self, kernels_s: float, sent_s: float) -> PassTime:
        """Return a pass that is no shorter than the host takes to launch it."""
        host = HOST_OPERATIONS * self._assumptions.launch_s
        return PassTime(max(kernels_s, host - sent_s), sent_s)

    def _time_collectives(self, layer: int, core_s: float) -> tuple[float, float]:
        """Return the seconds of a layer's collectives, forward and backward.

        Tensor ranks: two all-reduces in each pass (arXiv 1909.08053), or as many bytes in all-gathers and
        reduce-scatters with sequence parallelism (arXiv 2205.05198, section 4.2.2). Context ranks pass keys
        and values round a ring while attention computes (arXiv 2310.01889); only what takes longer than that
        counts.
        """
        reduced = 2 * self._groups.tensor.time_all_reduce(self._hidden_bytes)
        routed = self._time_routing(self._shape.experts, layer)
        ring = self._time_ring()
        return (
            reduced + routed + max(0.0, ring - core_s),
            reduced + routed + max(0.0, 2 * ring - 2 * core_s),
        )

    def _time_routing(self, experts: ExpertShape | None, layer: int) -> float:
        """Return the seconds of two all-to-alls, which send each token to its experts and back."""
        if experts is None or not self._shape.is_expert_layer(layer):
            return 0.0
        share = self._layout.expert_shards / self._layout.tensor
        return 2 * self._groups.expert.time_all_to_all(self._hidden_bytes * experts.top_k * share)

    def _time_ring(self) -> float:
        ring = self._groups.context
        size = self._setup.numbers.compute_bytes
        pair = (self._shape.key_size + self._shape.value_size) / self._layout.tensor
        sent = count_tokens(self._layout, self._setup) * pair * size
        return (ring.ranks - 1) * ring.time_send(sent)


# Rows and columns of the tile of a result that one multiprocessor makes.
TILE = 128
# Products of fused attention backward for each forward: five for two (FlashAttention-2, arXiv 2307.08691).
FLASH_BACKWARD = 2.5
# Bytes of a score in 16 bits, forward and backward: read and written; its own and its gradient's read, one
# written.
SOFTMAX_BYTES = (4, 6)
# Bytes of a score: the same, and a mask of a byte.
DROPOUT_BYTES = (5, 5)
# Bytes of a logit, forward and backward: turned to fp32, its maximum found, subtracted, exponentiated, summed
# and divided; and the gradient, turned back (Megatron-LM, core/tensor_parallel/cross_entropy.py).
LOSS_BYTES = (38, 14)


class KernelTimes:
    def __init__(self, device: DeviceSpeed, assumptions: TimeAssumptions) -> None:
        self._device = device
        self._flops_per_s = device.flops_per_s * assumptions.product_efficiency
        self._attention_flops_per_s = device.flops_per_s * assumptions.attention_efficiency
        self._bytes_per_s = device.memory_bytes_per_s * assumptions.bandwidth_share

    def time_product(self, product: Product, element_bytes: int = 2) -> float:
        """Return the seconds of a product: for its FLOPs or for its bytes, whichever take longer.

        Efficiency falls with the size of the local matrices in two ways: tiles at the edges are computed
        whole, and the last wave of tiles leaves multiprocessors idle (NVIDIA, "Matrix Multiplication
        Background User's Guide", sections on tile and wave quantization).
        """
        full = self.count_busy_share(product)
        computing = product.flops / (self._flops_per_s * full)
        return max(computing, product.elements * element_bytes / self._bytes_per_s)

    def count_busy_share(self, product: Product) -> float:
        """Return the useful share of the multiprocessors' work on a product."""
        across = ceil(product.rows / TILE)
        down = ceil(product.columns / TILE)
        share = product.rows * product.columns / (across * down * TILE * TILE)
        if self._device.multiprocessors is None:
            return share
        tiles = across * down * product.copies
        waves = ceil(tiles / self._device.multiprocessors)
        return share * tiles / (waves * self._device.multiprocessors)

    def time_bytes(self, count: float) -> float:
        return count / self._bytes_per_s

    def time_core(
        self, shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup
    ) -> tuple[float, float]:
        scores, values = list_core_products(shape, layout, setup)
        if setup.attention != "unfused":
            forward = (scores.flops + values.flops) / 2 / self._attention_flops_per_s
            return forward, FLASH_BACKWARD * forward
        products = self.time_product(scores) + self.time_product(values)
        elements = scores.rows * scores.columns * scores.copies
        dropped = DROPOUT_BYTES if setup.has_attention_dropout else (0, 0)
        pairs = zip(SOFTMAX_BYTES, dropped, strict=True)
        forward, backward = (self.time_bytes(elements * sum(both)) for both in pairs)
        return products + forward, 2 * products + backward


def count_passed_bytes(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int) -> float:
    """Return the bytes that one layer reads and writes outside of products, forward.

    Two norms (one pass in, one out, each), two additions to the residual (two in, one out), rotary
    positions (queries and keys in and out), the activation function; routed tokens are moved twice.
    """
    size = setup.numbers.compute_bytes
    tokens = count_tokens(layout, setup)
    own = tokens / layout.norm_shards
    passed = 10 * own * shape.hidden * size + (2 * own * shape.hidden if setup.has_hidden_dropout else 0)
    if not shape.learned_positions:
        passed += 2 * tokens * (shape.query_size + shape.key_size) / layout.tensor * size
    sides = 3 if shape.is_gated else 2
    if shape.experts is None or not shape.is_expert_layer(layer):
        return passed + sides * tokens * shape.ffn / layout.tensor * size
    rows = count_routed_rows(shape.experts, layout, tokens)
    inner = rows * shape.experts.ffn / layout.expert_shards
    inner += tokens * shape.experts.shared_ffn / layout.tensor
    return passed + (sides * inner + 4 * rows * shape.hidden) * size
