"""Puts the estimate of a server together."""

from collections import Counter
from typing import NamedTuple

import msgspec

from ....engine.errors import UsageError
from ....engine.units import GIB
from ..steps import OutsidePart
from ..steps.outside import size_context
from ..theory import ModelShape, ParallelLayout
from ..theory.shape import check_layout
from ..theory.weights import (
    WeightTensor,
    count_elements,
    list_attention_weights,
    list_mlp_weights,
    list_norm_weights,
    list_outside_weights,
)
from .model import (
    Cache,
    PoolPlan,
    RankPlan,
    ServedModel,
    ServingReport,
    ServingSetup,
    Span,
    WeightFormat,
    WeightShare,
)

# What the ranks of a server hold: weights of each pipeline stage, and the cache of a token.


ROPE = "rotary tables"
VISION = "vision tower"
RECURRENT = "recurrent"


def plan_ranks(model: ServedModel, setup: ServingSetup) -> tuple[RankPlan, ...]:
    """Return what a rank of each pipeline stage holds.

    Raises:
        UsageError: A degree does not divide what it splits, or there are more stages than layers.
    """
    shape = model.shape
    check_layout(shape, ParallelLayout(tensor=setup.tensor), setup.sequence)
    if model.recurrent is not None and model.recurrent.window_elements % setup.tensor:
        raise UsageError(
            f"TP = {setup.tensor} does not divide the recurrent layers; choose a smaller power of two"
        )
    stages = split_stages(shape.layers, setup.pipeline)
    return tuple(_plan_rank(model, setup, stage, layers) for stage, layers in enumerate(stages))


def split_stages(layers: int, pipeline: int) -> list[range]:
    """Return the layers of each stage as vLLM splits them: the last stage gets none of the remainder.

    (vllm/distributed/utils.py, get_pp_indices.)
    """
    if not 1 <= pipeline <= layers:
        raise UsageError(f"PP is {pipeline}; expected 1 to {layers}, the layers of the model")
    sizes = [layers // pipeline] * pipeline
    for place in range(2, layers % pipeline + 2):
        sizes[-place] += 1
    ends = [sum(sizes[: place + 1]) for place in range(pipeline)]
    return [range(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _plan_rank(model: ServedModel, setup: ServingSetup, stage: int, layers: range) -> RankPlan:
    sizes: Counter[str] = Counter()
    layout = ParallelLayout(tensor=setup.tensor)
    for layer in layers:
        for tensor in list_layer(model, layout, layer):
            sizes[tensor.part] += _weigh(tensor, model.weights, model.element_bytes, model.shape.hidden)
        if model.caches[layer] in ("full", "sliding"):
            sizes["attention"] += _count_absorbed(model.shape, setup.tensor) * model.element_bytes
    is_first = stage == 0
    outside = list_outside_weights(
        model.shape, layout, is_first=is_first, is_last=stage == setup.pipeline - 1
    )
    for tensor in outside:
        sizes[tensor.part] += count_elements([tensor]) * model.element_bytes
    sizes[ROPE] += model.rope_elements * model.element_bytes
    sizes[VISION] += model.vision_elements * model.element_bytes if is_first else 0
    caches = Counter(model.caches[layer] for layer in layers)
    return RankPlan(
        stage=stage,
        layers=len(layers),
        weights_bytes=sizes.total(),
        weights=tuple(WeightShare(name=name, size_bytes=size) for name, size in sizes.most_common() if size),
        token_bytes=(caches["full"] + caches["sliding"]) * count_token_bytes(model, setup),
        state_bytes=caches["state"] * count_state_bytes(model, setup),
    )


def list_layer(model: ServedModel, layout: ParallelLayout, layer: int) -> list[WeightTensor]:
    shape = model.shape
    weights = list_norm_weights(shape, model.norms)
    cache = model.caches[layer]
    if cache == "state" and model.recurrent is not None:
        recurrent = model.recurrent
        weights.append(WeightTensor(RECURRENT, recurrent.matrix_elements // layout.tensor, is_matrix=True))
        weights.append(WeightTensor(RECURRENT, recurrent.other_elements // layout.tensor))
    elif cache in ("full", "sliding"):
        weights += list_attention_weights(shape, layout)
        if model.has_gated_attention:
            gate = shape.hidden * shape.query_size // layout.tensor
            weights.append(WeightTensor("attention", gate, is_matrix=True))
    if model.has_mlp[layer]:
        weights += list_mlp_weights(shape, layout, layer)
    return weights


def _count_absorbed(shape: ModelShape, tensor: int) -> int:
    """Return the elements that latent attention keeps twice: its up-projections, laid out for decoding.

    (vLLM, model_executor/layers/attention/mla_attention.py: W_UK_T and W_UV.)
    """
    if shape.latent is None:
        return 0
    latent = shape.latent
    return shape.heads // tensor * (latent.head_channels + latent.value_channels) * latent.key_value_rank


def _weigh(tensor: WeightTensor, form: WeightFormat, element_bytes: int, hidden: int) -> int:
    """Return the bytes of a tensor of a layer, with its scales where it is quantized."""
    elements = tensor.elements * tensor.copies
    if not tensor.is_matrix or (form.is_expert_only and not tensor.is_expert):
        return elements * element_bytes
    if form.bits >= 8 * element_bytes:
        return elements * form.bits // 8
    # A scale for each group, or for each column: about one for each `hidden` weights.
    scales = elements // (form.group or hidden)
    zeros = scales * form.bits // 8 if form.has_zeros else 0
    return elements * form.bits // 8 + scales * form.scale_bytes + zeros


def count_token_bytes(model: ServedModel, setup: ServingSetup) -> int:
    """Return the cache of one token in one layer on one rank.

    Keys and values, 2 x groups x channels, and a rank has its share of the groups but at least one;
    with latent attention one vector for all heads (arXiv 2405.04434, section 2.1.2), on every rank.
    """
    shape = model.shape
    if shape.latent is not None:
        return (shape.latent.key_value_rank + shape.latent.rope_channels) * setup.cache_bytes
    return 2 * max(1, shape.kv_groups // setup.tensor) * shape.head_channels * setup.cache_bytes


def count_state_bytes(model: ServedModel, setup: ServingSetup) -> int:
    """Return the state of one sequence in one recurrent layer on one rank."""
    recurrent = model.recurrent
    if recurrent is None:
        return 0
    window = recurrent.window_elements * model.element_bytes
    return (window + recurrent.state_elements * recurrent.state_bytes) // setup.tensor


# How a server divides a device, and what fits into its cache, by the rules of vLLM.
#
# A cache is made of blocks, each of which holds some tokens for a group of layers. Layers of one kind form
# groups; all groups are as large as the smallest kind, and filled up where that does not divide them. A
# sequence needs blocks in every group (vLLM, v1/core/kv_cache_utils.py). What a sequence needs of a window
# includes the tokens of one forward pass.


# Bytes of the sampler for each sequence and word, besides a logit: a copy in fp32, sorted values and places,
# and a mask. From vLLM 0.19 on an H100: 1.89 GiB for 1,024 sequences of a vocabulary of 128,256, 2.21 GiB
# for fp32 (llm-d-planner, accuracy/results/v0.19.0).
_SAMPLER_BYTES = 13
# Tensors as large as the hidden states that live together in a layer, by the same runs.
_LIVE_HIDDEN = 4
# Before vLLM 0.17 the same models took 2.5 times as much (accuracy_report.md, part 2, and
# docs/empirical-vllm-memory-results.md of llm-d-planner).
_OLD_SHARE = 2.6
_LEAST_SHARE = 0.75
# Libraries after start-up: on one rank, and with the buffers of tensor parallelism (same sources).
_RUNTIME_ALONE = Span(least=int(0.13 * GIB), likely=int(0.25 * GIB), most=int(0.46 * GIB))
_RUNTIME_TOGETHER = Span(least=int(0.53 * GIB), likely=int(2.1 * GIB), most=int(2.25 * GIB))
GRAPHS = OutsidePart(
    name="CUDA graphs",
    least_bytes=int(0.5 * GIB),
    likely_bytes=GIB,
    most_bytes=int(1.9 * GIB),
    source="llm-d-planner, accuracy/results/v0.19.0",
)
# Above this a server takes larger batches by default (vLLM, engine/arg_utils.py).
_LARGE_BYTES = 70 * GIB


class Batches(NamedTuple):
    tokens: int
    sequences: int


def choose_batches(capacity_bytes: int | None) -> Batches:
    """Return vLLM's default batch: by the memory of the device."""
    is_large = capacity_bytes is not None and capacity_bytes >= _LARGE_BYTES
    return Batches(8192, 1024) if is_large else Batches(2048, 256)


def choose_block(model: ServedModel, setup: ServingSetup) -> int:
    """Return the tokens of a block: so many that its page is not smaller than a recurrent state."""
    token = count_token_bytes(model, setup)
    state = count_state_bytes(model, setup)
    step = setup.block
    return max(step, -(-state // (token * step)) * step)


def plan_pool(
    model: ServedModel,
    setup: ServingSetup,
    stages: tuple[RankPlan, ...],
    capacity_bytes: int,
    context_bytes: int | None = None,
) -> PoolPlan:
    """Divide a device; the stage whose cache holds least decides."""
    requested = int(setup.utilization * capacity_bytes)
    runtime = _RUNTIME_TOGETHER if setup.tensor > 1 else _RUNTIME_ALONE
    plans = []
    for rank, layers in zip(stages, split_stages(model.shape.layers, setup.pipeline), strict=True):
        activations = _span_activations(model, setup, is_last=rank.stage == setup.pipeline - 1)
        rest = requested - rank.weights_bytes
        pool = Span(
            least=rest - activations.most - runtime.most,
            likely=rest - activations.likely - runtime.likely,
            most=rest - activations.least - runtime.least,
        )
        kinds = Counter(model.caches[layer] for layer in layers)
        plans.append((activations, pool, kinds))
    fullest = min(
        range(len(plans)), key=lambda stage: count_room(model, setup, plans[stage][2], plans[stage][1].likely)
    )
    activations, pool, kinds = plans[fullest]
    rooms = [count_room(model, setup, kinds, size) for size in (pool.least, pool.likely, pool.most)]
    return PoolPlan(
        capacity_bytes=capacity_bytes,
        requested_bytes=requested,
        activations_bytes=activations,
        runtime_bytes=runtime,
        pool_bytes=pool,
        tokens=Span(least=rooms[0].tokens, likely=rooms[1].tokens, most=rooms[2].tokens),
        sequences=Span(
            least=int(rooms[0].sequences), likely=int(rooms[1].sequences), most=int(rooms[2].sequences)
        ),
        beyond=(size_context(context_bytes), GRAPHS),
        does_fit=True if rooms[0].sequences >= 1 else False if rooms[2].sequences < 1 else None,
    )


def estimate_activations(shape: ModelShape, setup: ServingSetup, element_bytes: int, *, is_last: bool) -> int:
    """Return the bytes of the greatest forward pass of vLLM 0.17 or newer.

    Sampling: hidden states, and for each sequence and word a logit and the sampler's copies. A layer: four
    times the hidden states, and 3 f / t of a gated MLP. Experts add a workspace for the tokens sent to each,
    which stays: max(2 f / t, h) + max(f / t, h) elements for each of top_k copies of a token.
    """
    tokens = setup.batched_tokens
    inner = shape.ffn // setup.tensor
    layer = tokens * (_LIVE_HIDDEN * shape.hidden + (3 if shape.is_gated else 2) * inner) * element_bytes
    sampling = tokens * shape.hidden * element_bytes
    sampling += setup.sequences * shape.vocab * (_SAMPLER_BYTES + element_bytes)
    workspace = 0
    if shape.experts is not None:
        inner = shape.experts.ffn // setup.tensor
        width = max(2 * inner, shape.hidden) + max(inner, shape.hidden)
        workspace = tokens * shape.experts.top_k * width * element_bytes
        layer = tokens * _LIVE_HIDDEN * shape.hidden * element_bytes
    return workspace + (max(layer, sampling) if is_last else layer)


def _span_activations(model: ServedModel, setup: ServingSetup, *, is_last: bool) -> Span:
    likely = estimate_activations(model.shape, setup, model.element_bytes, is_last=is_last)
    return Span(least=int(_LEAST_SHARE * likely), likely=likely, most=int(_OLD_SHARE * likely))


class Room(NamedTuple):
    """What a cache holds."""

    tokens: int
    """If every layer kept all of them, as servers print it."""
    sequences: float
    """Sequences of the longest length at once."""


def count_room(model: ServedModel, setup: ServingSetup, kinds: Counter[Cache], pool_bytes: int) -> Room:
    """Return what fits into so many bytes of cache.

    Args:
        kinds: Layers of the stage, by what they cache.
    """
    counts = {kind: number for kind, number in kinds.items() if number and kind != "none"}
    block = choose_block(model, setup)
    page = block * count_token_bytes(model, setup)
    size = _choose_group(list(counts.values()))
    blocks = max(0, pool_bytes) // (page * size) if size else 0
    groups = {kind: -(-count // size) for kind, count in counts.items()}
    longest = -(-setup.sequence // block)
    reach = min(model.window - 1 + setup.batched_tokens, setup.sequence)
    needs: dict[Cache, int] = {
        "full": longest,
        "sliding": min(-(-reach // block) + 1, longest + 1),
        "state": 1,
    }
    need = sum(groups[kind] * needs[kind] for kind in groups)
    return Room(blocks // max(1, sum(groups.values())) * block, blocks / max(1, need))


def _choose_group(counts: list[int]) -> int:
    """Return the layers of a group: those of the rarest kind, or of the most frequent one if it is near."""
    if not counts:
        return 0
    least = min(counts)
    most = max(counts)
    return most if most < 1.25 * least else least


_DEGREES = (2, 4, 8, 16, 32, 64)


def estimate_serving(
    model: ServedModel,
    setup: ServingSetup,
    *,
    name: str,
    capacity_bytes: int | None = None,
    context_bytes: int | None = None,
    gpu: str | None = None,
    assumptions: tuple[str, ...] = (),
) -> ServingReport:
    """Return the memory of each rank of a server, and what fits where a capacity is given.

    Args:
        context_bytes: Measured size of the CUDA context; None for a range.
        assumptions: What the caller chose, since no flag or file says it.

    Raises:
        UsageError: A degree does not divide what it splits.
    """
    stages = plan_ranks(model, setup)
    pool = None
    if capacity_bytes is not None:
        pool = plan_pool(model, setup, stages, capacity_bytes, context_bytes)
        if pool.does_fit is False:
            tensor = _find_tensor(model, setup, capacity_bytes)
            pool = msgspec.structs.replace(pool, fitting_tensor=tensor)
    return ServingReport(
        name=name,
        model=model,
        setup=setup,
        ranks=setup.tensor * setup.pipeline,
        parameters=count_served_parameters(model),
        block_tokens=choose_block(model, setup),
        stages=stages,
        gpu=gpu,
        pool=pool,
        assumptions=assumptions,
    )


def _find_tensor(model: ServedModel, setup: ServingSetup, capacity_bytes: int) -> int | None:
    """Return the smallest TP above the given one with which one longest sequence fits."""
    for tensor in _DEGREES:
        if tensor <= setup.tensor:
            continue
        tried = msgspec.structs.replace(setup, tensor=tensor)
        try:
            stages = plan_ranks(model, tried)
        except UsageError:
            return None
        if plan_pool(model, tried, stages, capacity_bytes).does_fit:
            return tensor
    return None


def count_served_parameters(model: ServedModel) -> int:
    """Return the parameters of the whole model, its vocabulary not padded."""
    whole = ParallelLayout()
    layers = [tensor for layer in range(model.shape.layers) for tensor in list_layer(model, whole, layer)]
    outside = list_outside_weights(model.shape, whole, is_first=True, is_last=True)
    padding = (model.shape.pad_vocab(1) - model.shape.vocab) * model.shape.hidden
    tables = 1 if model.shape.is_tied else 2
    return count_elements(layers) + count_elements(outside) - padding * tables + model.vision_elements
