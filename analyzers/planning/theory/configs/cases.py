"""Rows of a table of cases: columns, and Megatron-LM's flags where a row has them."""

import math
import re
from collections.abc import Mapping

import msgspec

from .....engine.errors import UsageError
from ..training import GPUS, Gpu
from .flags import BERT, Flags
from .megatron import read_megatron_run
from .run import TrainingRun

COLUMNS = {
    "num_layers": "num-layers",
    "hidden": "hidden-size",
    "heads": "num-attention-heads",
    "seq": "seq-length",
    "mbs": "micro-batch-size",
    "gbs": "global-batch-size",
    "tp": "tensor-model-parallel-size",
    "pp": "pipeline-model-parallel-size",
    "cp": "context-parallel-size",
    "ep": "expert-model-parallel-size",
    "layers_per_vstage": "num-layers-per-virtual-pipeline-stage",
    "dist_opt": "use-distributed-optimizer",
    "seq_parallel": "sequence-parallel",
    "recompute": "recompute-granularity",
    "bf16": "bf16",
    "transformer_impl": "transformer-impl",
    "vocab_size": "vocab-size",
}
"""Columns that stand for a flag."""
NOT_MODELLED = ("t5", "multimodal", "vlm", "hybrid", "mamba", "retro")
"""Beginnings of families that are no plain stack of layers."""
DEFAULT_WORLD_SIZE = 8
"""Ranks of a case that does not say, where its degrees allow it: one node."""
DEGREES = (
    "tensor-model-parallel-size",
    "pipeline-model-parallel-size",
    "context-parallel-size",
    "expert-model-parallel-size",
)
_RESHARD = re.compile(r"reshard_(\d+)x(\d+)x(\d+|None)")
_FREE_RUNS = (
    "nondeterministic",
    "memory_speed",
    "perf",
    "release",
    "_cp2",
    "_cp4",
    "cross_entropy_loss_fusion",
)


def read_case(row: Mapping[str, str]) -> TrainingRun:
    """Return the run of one row: its `arguments`, else its plain columns.

    Raises:
        UsageError: What of the row is missing or impossible.
    """
    family = row.get("family", "").lower()
    if family.startswith(NOT_MODELLED):
        raise UsageError(f"models of the family {family!r} cannot be estimated; expected gpt, moe or bert")
    flags = _read_flags(row)
    given = Flags({"world_size": row.get("world_size") or None})
    world_size = given.find_count("world-size", 0) if given.has("world-size") else _assume_world_size(flags)
    platform = row.get("platform", "").lower()
    # The longest name that fits: gb200 is no b200.
    gpu: Gpu = max((name for name in GPUS if name in platform), key=len, default="h100")
    return read_megatron_run(
        flags,
        world_size=world_size,
        gpu=gpu,
        is_deterministic=_is_deterministic(row),
        name=row.get("case", ""),
    )


def _assume_world_size(flags: Flags) -> int:
    """Return the ranks of a case that does not say: one node, or the fewest that its degrees divide."""
    if flags.has("world-size"):
        return flags.get_count("world-size")
    degrees = [max(1, flags.find_count(name, 1)) for name in DEGREES]
    tensor, pipeline, context, expert = degrees
    shared = max(1, flags.find_count("expert-tensor-parallel-size", tensor)) if expert > 1 else 1
    least = math.lcm(tensor * pipeline * context, pipeline * expert * shared)
    return DEFAULT_WORLD_SIZE if DEFAULT_WORLD_SIZE % least == 0 else least


def _read_flags(row: Mapping[str, str]) -> Flags:
    columns: dict[str, object] = {flag: row[column] for column, flag in COLUMNS.items() if row.get(column)}
    columns[BERT] = row.get("family", "").lower().startswith("bert")
    if row.get("kv_groups"):
        columns |= {"group-query-attention": True, "num-query-groups": row["kv_groups"]}
    text = (row.get("arguments") or "").strip()
    if not text:
        return Flags({"bf16": True, **columns, **_read_second_run(row)})
    try:
        given = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"arguments are not a JSON object of flags: {error}") from None
    # A size that a tokenizer decides is no flag; the table may know it nevertheless.
    known = {name: columns.get(name) for name in ("vocab-size", BERT)}
    return Flags({**known, **given, **_read_second_run(row)})


def _read_second_run(row: Mapping[str, str]) -> dict[str, object]:
    """Return the degrees of a run that goes on with another layout, and was measured with that.

    Names of such cases end in TP x PP x layers of a piece: `reshard_8x1xNone`.
    """
    match = _RESHARD.search(row.get("case", ""))
    if match is None:
        return {}
    tensor, pipeline, size = match.groups()
    return {
        "tensor-model-parallel-size": tensor,
        "pipeline-model-parallel-size": pipeline,
        "num-layers-per-virtual-pipeline-stage": size,
    }


def _is_deterministic(row: Mapping[str, str]) -> bool:
    """Return whether a functional test of Megatron-LM ran with deterministic kernels.

    They set CUBLAS_WORKSPACE_CONFIG=:4096:8 and --deterministic-mode except where the name says otherwise,
    with context parallelism, and in measurements of speed (tests/functional_tests/test_cases).
    """
    if not row.get("golden_file"):
        return False
    return not any(word in row.get("case", "") for word in _FREE_RUNS)
