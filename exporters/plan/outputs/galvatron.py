"""Strategies of Galvatron: `galvatron_config_*.json` of its release 2.4 and of 3.0.

Both releases tell every transformer layer its degrees, in words with a comma between two. `pp_division`
counts transformer layers alone: the embedding goes to the first stage, norm and head to the last. 2.4 reads
`embed_sdp`; 3.0 writes it, and reads `vocab_sdp`: both are given. 3.0 wants `world_size` and has degrees of
context and expert parallelism besides (galvatron/core/runtime/hybrid_parallel_config.py,
galvatron/utils/strategy_utils.py).
"""

import json

from ....engine.errors import UsageError
from .split import PipelineSplit, join_words, list_recomputed

_DATA_TYPES = {0: "ddp", 1: "zero2", 2: "zero2", 3: "zero3"}
"""By ZeRO stage. There is no ZeRO-1: `zero2` shards what it shards, and gradients too."""


def encode_galvatron_2(split: PipelineSplit) -> bytes:
    """Return the strategy for Galvatron 2.4.

    Raises:
        UsageError: It knows no context or expert parallelism, no interleaved stages, none without a block.
    """
    layout = split.layout
    if layout.context > 1 or layout.expert > 1:
        raise UsageError("Galvatron 2.4 has neither context nor expert parallelism; 3.0 has both")
    return _encode(_describe(split))


def encode_galvatron_3(split: PipelineSplit) -> bytes:
    """Return the strategy for Galvatron 3.0.

    Raises:
        UsageError: It knows no interleaved stages, and none without a transformer block.
    """
    layout = split.layout
    layers = sum(split.blocks)
    shards = layout.expert_shards if layout.expert > 1 else 1
    added = {
        "cp_sizes_enc": join_words([layout.context] * layers),
        "ep_sizes_enc": join_words([layout.expert] * layers),
        "tp_of_ep_sizes_enc": join_words([shards] * layers),
        "vcp": layout.context,
        "world_size": layout.world_size,
    }
    return _encode(_describe(split) | added)


def _describe(split: PipelineSplit) -> dict[str, object]:
    layout = split.layout
    setup = split.setup
    layers = sum(split.blocks)
    if layout.virtual_stages > 1:
        raise UsageError("Galvatron gives each device one stage, and the plan gives it several pieces")
    if not all(split.blocks):
        empty = split.blocks.index(0)
        raise UsageError(
            f"Galvatron divides transformer layers, and stage {empty} has none: it holds an embedding, norm "
            "or head alone"
        )
    is_sharded = int(setup.zero_stage == 3)
    return {
        "pp_deg": layout.pipeline,
        "tp_sizes_enc": join_words([layout.tensor] * layers),
        "tp_consecutive_flags": join_words([1] * layers),
        "dp_types_enc": join_words([is_sharded] * layers),
        "use_sp": join_words([0] * layers),
        "checkpoint": join_words([int(each) for each in list_recomputed(split)]),
        "global_bsz": split.global_batch,
        "chunks": setup.micro_batches,
        "pp_division": join_words(split.blocks),
        "pipeline_type": "gpipe" if setup.is_gpipe else "pipedream_flush",
        "default_dp_type": _DATA_TYPES[setup.zero_stage],
        "vtp": layout.tensor,
        "vsp": 0,
        "embed_sdp": is_sharded,
        "vocab_sdp": is_sharded,
    }


def _encode(content: dict[str, object]) -> bytes:
    return json.dumps(content, indent=4).encode() + b"\n"
