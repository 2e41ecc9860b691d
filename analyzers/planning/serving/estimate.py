"""Puts the estimate of a server together."""

import msgspec

from ....engine.errors import UsageError
from ..theory import ParallelLayout
from ..theory.weights import count_elements, list_outside_weights
from .model import ServedModel, ServingReport, ServingSetup
from .pool import choose_block, plan_pool
from .ranks import list_layer, plan_ranks

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
