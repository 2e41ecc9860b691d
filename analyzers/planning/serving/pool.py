"""How a server divides a device, and what fits into its cache, by the rules of vLLM.

A cache is made of blocks, each of which holds some tokens for a group of layers. Layers of one kind form
groups; all groups are as large as the smallest kind, and filled up where that does not divide them. A
sequence needs blocks in every group (vLLM, v1/core/kv_cache_utils.py). What a sequence needs of a window
includes the tokens of one forward pass.
"""

from collections import Counter
from typing import NamedTuple

from ....engine.units import GIB
from ..steps import OutsidePart
from ..steps.outside import size_context
from ..theory import ModelShape
from .model import Cache, PoolPlan, RankPlan, ServedModel, ServingSetup, Span
from .ranks import count_state_bytes, count_token_bytes, split_stages

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
