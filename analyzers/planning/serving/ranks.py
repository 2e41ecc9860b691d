"""What the ranks of a server hold: weights of each pipeline stage, and the cache of a token."""

from collections import Counter

from ....engine.errors import UsageError
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
from .model import RankPlan, ServedModel, ServingSetup, WeightFormat, WeightShare

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

    Keys and values, 2 x groups x channels, of which a rank has its share of the groups but at least one;
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
