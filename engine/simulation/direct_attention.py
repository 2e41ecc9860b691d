"""Attention that a script asks for by its kernel: flash attention, packed sequences too, and FlexAttention.

The host has no such kernels. It computes the same in steps; the card is charged for what the kernel keeps.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .devices import state, targeting
from .kernels import HostSteps
from .patching import replace
from .storages import StorageRegistry, storage_of

# A library's kernels go with it.
_kept: dict[str, Any] = {}


def install(registry: StorageRegistry) -> None:
    """Give the host the kernels of flash attention, and FlexAttention one that keeps no scores."""
    library = _kept.setdefault("flash", torch.library.Library("aten", "IMPL"))
    for name, kernel in (
        ("_flash_attention_forward", _run_flash),
        ("_flash_attention_backward", _run_flash_back),
        ("_scaled_dot_product_flash_attention", _run_product),
        ("_scaled_dot_product_flash_attention_backward", _run_product_back),
    ):
        if hasattr(torch.ops.aten, name):
            library.impl(name, kernel, "CPU")
    # By its name: the package has the operator under it.
    module: Any = sys.modules.get("torch._higher_order_ops.flex_attention")
    if hasattr(module, "FlexAttentionHOP") and hasattr(module, "math_attention"):
        function = _make_flex(registry, module.math_attention)
        replace(
            module.FlexAttentionHOP, "__call__", lambda original: _make_call(original, function, registry)
        )


@dataclass(frozen=True)
class Rules:
    """What a query may see, and how it is weighted."""

    is_causal: bool
    scale: float
    # Keys before and after its own place; None or less than 0 is all.
    left: int | None = None
    right: int | None = None
    dropout_p: float = 0.0
    # Two numbers; the mask of dropout follows from them in both directions.
    seed: Any = None


def _find_scale(scale: float | None, query: Any) -> float:
    """Return the given scale, 0.0 too, else the usual one."""
    return float(query.shape[-1] ** -0.5) if scale is None else scale


def _run_flash(
    query: Any,
    key: Any,
    value: Any,
    begins: Any,
    key_begins: Any,
    longest: int,
    longest_key: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    **others: Any,
) -> Any:
    refused = [name for name in ("seqused_k", "alibi_slopes", "block_table") if others.get(name) is not None]
    if refused:
        raise NotImplementedError(f"flash attention with {refused[0]} is not simulated: leave it out")
    seed = torch.randint(1 << 62, (2,)) if dropout_p else torch.zeros(2, dtype=torch.int64)
    rules = Rules(is_causal, _find_scale(scale, query), window_size_left, window_size_right, dropout_p, seed)
    output, sums = _run(query, key, value, begins, key_begins, rules)
    return output, sums, seed.to(torch.uint64), torch.empty(0, dtype=torch.uint64), query.new_empty(0)


def _run_flash_back(
    gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    output: Any,
    sums: Any,
    begins: Any,
    key_begins: Any,
    longest: int,
    longest_key: int,
    dropout_p: float,
    is_causal: bool,
    rng_state: Any,
    unused: Any,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> Any:
    seed = rng_state.to(torch.int64)
    rules = Rules(is_causal, _find_scale(scale, query), window_size_left, window_size_right, dropout_p, seed)
    return _run_back((gradient, query, key, value, output, sums), begins, key_begins, rules)


def _run_product(
    query: Any,
    key: Any,
    value: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """Heads come before the sequence here."""
    turned = [it.transpose(1, 2) for it in (query, key, value)]
    lengths = query.shape[2], key.shape[2]
    output, sums, seed, unused, mask = _run_flash(
        turned[0], turned[1], turned[2], None, None, *lengths, dropout_p, is_causal, False, scale=scale
    )
    return output.transpose(1, 2), sums, None, None, *lengths, seed, unused, mask


def _run_product_back(
    gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    output: Any,
    sums: Any,
    begins: Any,
    key_begins: Any,
    longest: int,
    longest_key: int,
    dropout_p: float,
    is_causal: bool,
    seed: Any,
    offset: Any,
    *,
    scale: float | None = None,
) -> Any:
    turned = [it.transpose(1, 2) for it in (gradient, query, key, value, output)]
    rules = Rules(is_causal, _find_scale(scale, query), dropout_p=dropout_p, seed=seed.to(torch.int64))
    return tuple(it.transpose(1, 2) for it in _run_back((*turned, sums), None, None, rules))


def _run(query: Any, key: Any, value: Any, begins: Any, key_begins: Any, rules: Rules) -> tuple[Any, Any]:
    """Return the output, and the logarithms of the softmax's sums: of a batch, or of all packed sequences."""
    output = torch.empty_like(query)
    heads = query.shape[-2]
    shape = (query.shape[0], heads, query.shape[1]) if begins is None else (heads, query.shape[0])
    sums = query.new_empty(shape, dtype=torch.float32)
    for part in _list_sequences(begins, key_begins, (query, key, value, output, sums), (1, 2)):
        _attend(part, rules)
    return output, sums


def _run_back(given: tuple[Any, ...], begins: Any, key_begins: Any, rules: Rules) -> tuple[Any, ...]:
    made = tuple(torch.empty_like(it) for it in given[1:4])
    for part in _list_sequences(begins, key_begins, (*given, *made), (2, 3, 7, 8)):
        _attend_back(part, rules)
    return made


def _list_sequences(
    begins: Any, key_begins: Any, tensors: tuple[Any, ...], of_key: tuple[int, ...]
) -> Iterator[tuple[Any, ...]]:
    """Yield the parts of some tensors that belong to one sequence, as views.

    Args:
        begins: Where the packed sequences begin, and the last one ends; None for a batch.
        key_begins: The same of the keys; None if they are as long as the queries.
        tensors: Tokens come first, in the sums of the softmax last.
        of_key: Positions of the tensors that are as long as the keys.
    """
    if begins is None:
        for number in range(len(tensors[0])):
            yield tuple(it[number] for it in tensors)
        return
    places = begins.tolist()
    key_places = places if key_begins is None else key_begins.tolist()
    for own, keys in zip(zip(places, places[1:]), zip(key_places, key_places[1:])):
        cuts = [slice(*keys) if place in of_key else slice(*own) for place in range(len(tensors))]
        yield tuple(it[:, cut] if it.dim() == 2 else it[cut] for it, cut in zip(tensors, cuts))


def _score(query: Any, key: Any, rules: Rules) -> Any:
    """Return the scores of one sequence; what a query must not see is minus infinity."""
    scores = torch.einsum("qhd,khd->hqk", query, key) * rules.scale
    left, right = (None if it is None or it < 0 else it for it in (rules.left, rules.right))
    right = 0 if rules.is_causal else right
    lengths = query.shape[0], key.shape[0]
    # The last query is as far as the last key.
    distance = torch.arange(lengths[1]) - torch.arange(lengths[0])[:, None] - lengths[1] + lengths[0]
    if left is not None:
        scores = scores.masked_fill(distance < -left, float("-inf"))
    if right is not None:
        scores = scores.masked_fill(distance > right, float("-inf"))
    return scores


def _keep_some(shape: Any, rules: Rules) -> Any:
    """Return the factors of dropout."""
    generator = torch.Generator().manual_seed(int(rules.seed[0]))
    kept = torch.empty(shape).bernoulli_(1.0 - rules.dropout_p, generator=generator)
    return kept / (1.0 - rules.dropout_p)


def _attend(part: tuple[Any, ...], rules: Rules) -> None:
    query, key, value, output, sums = part
    groups = query.shape[1] // key.shape[1]
    wide_key, wide_value = (it.float().repeat_interleave(groups, 1) for it in (key, value))
    scores = _score(query.float(), wide_key, rules)
    sums.copy_(scores.logsumexp(-1))
    weights = scores.softmax(-1).nan_to_num(0.0)
    if rules.dropout_p:
        weights = weights * _keep_some(weights.shape, rules)
    output.copy_(torch.einsum("hqk,khd->qhd", weights, wide_value))


def _attend_back(part: tuple[Any, ...], rules: Rules) -> None:
    gradient, query, key, value, output, sums, for_query, for_key, for_value = part
    heads = key.shape[1]
    groups = query.shape[1] // heads
    gradient = gradient.float()
    wide_query = query.float()
    wide_key, wide_value = (it.float().repeat_interleave(groups, 1) for it in (key, value))
    weights = (_score(wide_query, wide_key, rules) - sums[..., None]).exp().nan_to_num(0.0)
    kept = _keep_some(weights.shape, rules) if rules.dropout_p else 1.0
    of_weights = torch.einsum("qhd,khd->hqk", gradient, wide_value) * kept
    of_sums = (gradient * output.float()).sum(-1).t()[..., None]
    of_scores = weights * (of_weights - of_sums) * rules.scale
    for_query.copy_(torch.einsum("hqk,khd->qhd", of_scores, wide_key))
    for target, found in (
        (for_key, torch.einsum("hqk,qhd->khd", of_scores, wide_query)),
        (for_value, torch.einsum("hqk,qhd->khd", weights * kept, gradient)),
    ):
        target.copy_(found.unflatten(1, (heads, groups)).sum(2))


def _make_flex(registry: StorageRegistry, attend: Any) -> Any:
    """Return the autograd function that keeps what the compiled kernel of FlexAttention keeps."""

    class Flex(torch.autograd.Function):
        """FlexAttention whose scores cost nothing on the card."""

        @staticmethod
        def forward(context: Any, query: Any, key: Any, value: Any, *others: Any) -> Any:
            place = registry.where_is(query)
            with targeting(state.device if place is None else place):
                context.steps = HostSteps(
                    lambda *given: attend(*given, *others), (query, key, value), context.needs_input_grad
                )
            outputs = context.steps.hand_out()
            # The kernel writes the largest scores only where they are asked for.
            has_largest = isinstance(others[3], dict) and others[3].get("OUTPUT_MAX")
            for it in outputs if has_largest else outputs[:2]:
                registry.resize(storage_of(it))
            context.save_for_backward(query, key, value, *outputs[:2])
            context.mark_non_differentiable(*outputs[2:])
            context.others = len(others)
            return outputs

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            found = context.steps.go_back(context.saved_tensors[:3], gradients[:2])
            for it in found:
                if it is not None:
                    registry.resize(storage_of(it))
            return (*found, *[None] * context.others)

    return Flex.apply


def _make_call(original: Any, attend: Any, registry: StorageRegistry) -> Any:
    def call(operator: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        if registry.where_is(query) is None or kwargs:
            return original(operator, query, *args, **kwargs)
        return attend(query, *args)

    return call
