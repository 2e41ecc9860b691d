"""A model as a server holds it: its layers by what they cache, and the format of its weights."""

from typing import Literal

import msgspec

from ..steps import OutsidePart
from ..theory import ModelShape

SCHEMA = "vramscope.serving-estimate/1"

Cache = Literal["full", "sliding", "state", "none"]
"""What a layer keeps for a sequence: all its tokens, those of a window, a state of fixed size, or nothing."""


class WeightFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How linear layers are stored; embedding, head, norms and routers stay in the model's type."""

    name: str
    """`bf16`, `fp16`, `fp32`, or the method of quantization."""
    bits: int
    """Bits of a quantized weight."""
    group: int = 0
    """Weights that share a scale; 0 where a whole column shares one."""
    scale_bytes: int = 0
    has_zeros: bool = False
    """Whether a group also has a zero point, of as many bits as a weight."""
    is_expert_only: bool = False
    """Whether only routed experts are quantized."""


class RecurrentShape(msgspec.Struct, frozen=True, kw_only=True):
    """A layer with a recurrent state in place of a cache: Mamba, Mamba 2 or a gated delta net."""

    kind: Literal["mamba", "mamba2", "gated_delta"]
    matrix_elements: int
    """Weights of its linear layers, which are quantized and split over TP."""
    other_elements: int
    """Its other weights (convolution, decay, norm), split over TP."""
    window_elements: int
    """Elements of the convolution's window, in the model's type."""
    state_elements: int
    state_bytes: int
    """Bytes of one element of the state."""


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the memory of a server for a model."""

    shape: ModelShape
    caches: tuple[Cache, ...]
    """One entry a layer."""
    has_mlp: tuple[bool, ...]
    """One entry a layer: whether it has an MLP or experts."""
    element_bytes: int
    """Bytes of an element of activations and of weights that are not quantized."""
    weights: WeightFormat
    cache_bytes: int
    """Bytes of a cached element, where the caller does not say."""
    window: int = 0
    """Tokens of a sliding window."""
    recurrent: RecurrentShape | None = None
    has_gated_attention: bool = False
    """Whether attention has an output gate, as wide as its query."""
    norms: int = 2
    """Norms of a layer."""
    rope_elements: int = 0
    """Elements of the tables of sines and cosines, on every rank."""
    vision_elements: int = 0
    """Weights of the vision tower and its projector, on every rank."""
    positions: int | None = None
    """Longest sequence that the model is made for; None where its description does not say."""
    notes: tuple[str, ...] = ()
    """What the description leaves open, or what the estimate does not count."""


class ServingSetup(msgspec.Struct, frozen=True, kw_only=True):
    """How the model is served."""

    tensor: int = 1
    pipeline: int = 1
    sequence: int
    """Longest sequence, in tokens (`--max-model-len`)."""
    cache_bytes: int
    """Bytes of a cached element."""
    block: int = 16
    """Tokens in a block of the cache."""
    batched_tokens: int = 2048
    """Most tokens in a forward pass (`--max-num-batched-tokens`)."""
    sequences: int = 256
    """Most sequences at once (`--max-num-seqs`)."""
    utilization: float = 0.9
    """Share of the device for the server (`--gpu-memory-utilization`)."""


class WeightShare(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size_bytes: int


class RankPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What each rank of one pipeline stage holds."""

    stage: int
    layers: int
    weights_bytes: int
    weights: tuple[WeightShare, ...]
    """Parts of the weights; they add up."""
    token_bytes: int
    """Cache of one token in all layers with attention."""
    state_bytes: int
    """State of one sequence in all recurrent layers."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A size or a number that is known as a range."""

    least: int
    likely: int
    most: int


class PoolPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a device is divided, and what fits into its cache: the fullest stage decides."""

    capacity_bytes: int
    requested_bytes: int
    """The server's share of the device."""
    activations_bytes: Span
    """Greatest forward pass: activations and sampling."""
    runtime_bytes: Span
    """Libraries and communication, within the server's share."""
    pool_bytes: Span
    """Cache: what weights, activations and libraries leave of the share."""
    tokens: Span
    """Tokens in the cache, if every layer kept all of them."""
    sequences: Span
    """Sequences of the longest length at once."""
    beyond: tuple[OutsidePart, ...]
    """What the device holds outside of the server's share."""
    does_fit: bool | None
    """Whether one longest sequence fits; null where the range leaves it open."""
    fitting_tensor: int | None = None
    """Where it does not: the smallest TP, a power of two up to 64, with which it would; else null."""


class ServingReport(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a server for a model."""

    schema: str = SCHEMA
    name: str
    model: ServedModel
    setup: ServingSetup
    ranks: int
    parameters: int
    block_tokens: int
    """Tokens in a block of the cache: more than the setup's where a recurrent state is larger."""
    stages: tuple[RankPlan, ...]
    gpu: str | None = None
    pool: PoolPlan | None = None
    """Null without a capacity."""
    assumptions: tuple[str, ...] = ()
    """What was assumed, since no flag or file says it."""
