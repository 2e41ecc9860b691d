"""What a mixture-of-experts layer saves in place of a dense MLP."""

import math

from .layout import ParallelLayout
from .shape import ExpertShape, ModelShape
from .training import TrainingSetup


def count_expert_rows(experts: ExpertShape, layout: ParallelLayout, setup: TrainingSetup, tokens: int) -> int:
    """Return the tokens that enter the experts of a rank: R = T k e / t, padded where a capacity is set.

    e ranks share an expert and gather its tokens; t ranks hold T / t tokens each (Megatron-LM,
    core/transformer/moe/token_dispatcher.py). Routers are taken as balanced.
    """
    rows = tokens * experts.top_k * layout.expert_shards // layout.tensor
    return rows if setup.expert_capacity is None else math.ceil(rows * setup.expert_capacity)


def list_expert_activations(
    shape: ModelShape, experts: ExpertShape, layout: ParallelLayout, setup: TrainingSetup, tokens: int
) -> dict[str, int]:
    """Return bytes by operation, for tokens that spread evenly over the experts.

    R rows of h elements enter the experts of a rank (`count_expert_rows`), and leave through inner sizes
    divided by the ranks that share an expert. A router that balances badly makes more of it on some ranks.

    Args:
        shape: The model.
        experts: Its experts.
        layout: Degrees of parallelism.
        setup: The run.
        tokens: s b / CP.
    """
    size = setup.numbers.compute_bytes
    own = tokens // layout.norm_shards
    input_bytes = 1 if setup.is_fp8 else size
    rows = count_expert_rows(experts, layout, setup, tokens)
    inner = rows * experts.ffn // layout.expert_shards
    wide = 2 if shape.is_gated else 1
    saved = {
        "router input": own * shape.hidden * size,
        "router scores": own * experts.experts * 4 * 2,
        "expert input": rows * shape.hidden * input_bytes,
        "expert input of activation": inner * wide * size,
        "expert gate": 0 if setup.fuses_gate or not shape.is_gated else inner * size,
        "expert output of activation": inner * input_bytes,
        # A gated unit is fused with the weighting by the router; others keep what is to be weighted.
        "expert weighted output": 0 if shape.is_gated else inner * size,
    }
    if experts.shared_ffn:
        shared = tokens * experts.shared_ffn // layout.tensor
        saved["shared expert input of activation"] = shared * wide * size
        saved["shared expert output of activation"] = shared * input_bytes
    return saved
