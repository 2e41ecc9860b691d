"""Seconds of kernels on one device: matrix products, attention, and those that only read and write."""

from math import ceil

from ..memory_theory import ModelShape, ParallelLayout, TrainingSetup
from ..memory_theory.activations import count_tokens
from .assumptions import TimeAssumptions
from .device import DeviceSpeed
from .products import Product, count_routed_rows, list_core_products

TILE = 128
"""Rows and columns of the tile of a result that one multiprocessor makes."""
FLASH_BACKWARD = 2.5
"""Products of fused attention backward for each forward: five for two (FlashAttention-2, arXiv
2307.08691)."""
SOFTMAX_BYTES = (4, 6)
"""Of a score in 16 bits, forward and backward: read and written; its own and its gradient's read, one
written."""
DROPOUT_BYTES = (5, 5)
"""Of a score: the same, and a mask of a byte."""
LOSS_BYTES = (38, 14)
"""Of a logit, forward and backward: turned to fp32, its maximum found, subtracted, exponentiated, summed
and divided; and the gradient, turned back (Megatron-LM, core/tensor_parallel/cross_entropy.py)."""


class KernelTimes:
    """Seconds of kernels on one device under some assumptions."""

    def __init__(self, device: DeviceSpeed, assumptions: TimeAssumptions) -> None:
        self._device = device
        self._flops_per_s = device.flops_per_s * assumptions.product_efficiency
        self._attention_flops_per_s = device.flops_per_s * assumptions.attention_efficiency
        self._bytes_per_s = device.memory_bytes_per_s * assumptions.bandwidth_share

    def time_product(self, product: Product, element_bytes: int = 2) -> float:
        """Return the seconds of a product: of its FLOPs or of its bytes, whichever take longer.

        Efficiency falls with the size of the local matrices in two ways: tiles at the edges are computed
        whole, and the last wave of tiles leaves multiprocessors idle (NVIDIA, "Matrix Multiplication
        Background User's Guide", sections on tile and wave quantization).
        """
        full = self.count_busy_share(product)
        computing = product.flops / (self._flops_per_s * full)
        return max(computing, product.elements * element_bytes / self._bytes_per_s)

    def count_busy_share(self, product: Product) -> float:
        """Return the share of the multiprocessors' work on a product that is of use."""
        across, down = ceil(product.rows / TILE), ceil(product.columns / TILE)
        share = product.rows * product.columns / (across * down * TILE * TILE)
        if self._device.multiprocessors is None:
            return share
        tiles = across * down * product.copies
        waves = ceil(tiles / self._device.multiprocessors)
        return share * tiles / (waves * self._device.multiprocessors)

    def time_bytes(self, count: float) -> float:
        """Return the seconds in which so many bytes are read or written."""
        return count / self._bytes_per_s

    def time_core(
        self, shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup
    ) -> tuple[float, float]:
        """Return the seconds of attention between projections, forward and backward."""
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
    size, tokens = setup.numbers.compute_bytes, count_tokens(layout, setup)
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
