"""Seconds of one layer, and of what stands before and after all layers, for one micro-batch on one rank."""

from typing import NamedTuple

from ..memory_theory import ExpertShape, ModelShape, ParallelLayout, TrainingSetup
from ..memory_theory.activations import count_tokens
from .assumptions import TimeAssumptions
from .collectives import Ring
from .device import DeviceSpeed
from .groups import StageGroups
from .kernels import LOSS_BYTES, KernelTimes, count_passed_bytes
from .products import list_layer_products, make_head_product

HOST_OPERATIONS = 20
"""Kernels of one layer, forward; as many backward. A host launches them one by one."""
BACKWARD = 2
"""Products backward for each forward: of the input's gradient and of the weight's."""


class PassTime(NamedTuple):
    """Seconds of some part of a micro-batch's work."""

    kernels_s: float = 0.0
    sent_s: float = 0.0
    """Collectives between tensor, context and expert ranks that nothing hides."""

    def plus(self, other: "PassTime") -> "PassTime":
        """Return both together."""
        return PassTime(self.kernels_s + other.kernels_s, self.sent_s + other.sent_s)

    @property
    def total_s(self) -> float:
        """Return the seconds of both."""
        return self.kernels_s + self.sent_s


class LayerTime(NamedTuple):
    """Both passes of a part of the model; recomputation is in the backward pass."""

    forward: PassTime = PassTime()
    backward: PassTime = PassTime()

    @property
    def both(self) -> PassTime:
        """Return both passes together."""
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
        self._shape, self._layout, self._setup = shape, layout, setup
        self._groups, self._assumptions = groups, assumptions
        self._kernels = KernelTimes(device, assumptions)
        self._hidden_bytes = count_tokens(layout, setup) * shape.hidden * setup.numbers.compute_bytes

    def time_layer(self, layer: int) -> LayerTime:
        """Return the seconds of one transformer layer, from 0.

        Full recomputation runs the forward pass once more, with its collectives (arXiv 2104.04473, section
        3.5); selective recomputation only what stands between the projections of attention (arXiv
        2205.05198, section 5).
        """
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
        reduce-scatters with sequence parallelism (arXiv 2205.05198, section 4.2.2). Context ranks hand keys
        and values round a ring while attention computes (arXiv 2310.01889); what is longer than that shows.
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
        ring, size = self._groups.context, self._setup.numbers.compute_bytes
        pair = (self._shape.key_size + self._shape.value_size) / self._layout.tensor
        sent = count_tokens(self._layout, self._setup) * pair * size
        return (ring.ranks - 1) * ring.time_send(sent)
