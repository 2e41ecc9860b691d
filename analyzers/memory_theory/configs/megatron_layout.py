"""Degrees of parallelism in Megatron-LM's flags."""

import re

from ....engine.errors import UsageError
from ..layout import ParallelLayout
from ..shape import ModelShape
from .flags import Flags

_GROUP = re.compile(r"\(([^()]*)\)\*(\d+)|([Etm|L])\*(\d+)")
_MOST_STAGES = 4096


def read_layout(flags: Flags, shape: ModelShape, world_size: int) -> ParallelLayout:
    """Return the degrees; DP is what the world size leaves.

    Raises:
        UsageError: The world size is no multiple of TP x PP x CP, or the stages do not hold the layers.
    """
    tensor = flags.find_count("tensor-model-parallel-size", 1)
    pipeline = flags.find_count("pipeline-model-parallel-size", 1)
    context = flags.find_count("context-parallel-size", 1)
    for degree, value in (("TP", tensor), ("PP", pipeline), ("CP", context)):
        if value < 1:
            raise UsageError(f"{degree} is {value}; expected at least 1")
    ranks = tensor * pipeline * context
    if world_size < 1 or world_size % ranks:
        raise UsageError(
            f"world size {world_size} is no multiple of TP x PP x CP = {tensor} x {pipeline} x {context} = "
            f"{ranks}; choose degrees whose product divides it"
        )
    stages = _read_stages(flags, pipeline)
    first, last = "decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"
    return ParallelLayout(
        tensor=tensor,
        pipeline=pipeline,
        data=world_size // ranks,
        context=context,
        expert=flags.find_count("expert-model-parallel-size", 1),
        expert_tensor=flags.find_count("expert-tensor-parallel-size", tensor) if shape.experts else None,
        # Megatron-LM switches sequence parallelism off where there is nothing to split over.
        is_sequence_parallel=flags.is_on("sequence-parallel") and tensor > 1,
        virtual_stages=len(stages) // pipeline if stages else _count_pieces(flags, shape.layers, pipeline),
        first_stage_layers=flags.get_count(first) if flags.has(first) else None,
        last_stage_layers=flags.get_count(last) if flags.has(last) else None,
        counts_embedding=flags.is_on("account-for-embedding-in-pipeline-split"),
        counts_loss=flags.is_on("account-for-loss-in-pipeline-split"),
        stage_layers=stages,
    )


def _count_pieces(flags: Flags, layers: int, pipeline: int) -> int:
    if pipeline == 1:
        return 1
    for name in ("num-virtual-stages-per-pipeline-rank", "virtual-pipeline-model-parallel-size"):
        if flags.has(name):
            return flags.get_count(name)
    if not flags.has("num-layers-per-virtual-pipeline-stage"):
        return 1
    size = flags.get_count("num-layers-per-virtual-pipeline-stage")
    counted = layers + flags.is_on("account-for-embedding-in-pipeline-split")
    counted += flags.is_on("account-for-loss-in-pipeline-split")
    if size < 1 or counted % (pipeline * size):
        raise UsageError(
            f"{counted} layers do not divide into pieces of {size} over PP = {pipeline}; choose a divisor"
        )
    return counted // (pipeline * size)


def _read_stages(flags: Flags, pipeline: int) -> tuple[int, ...] | None:
    """Return the layers of each stage from a layout such as `Et*2|(t|)*3,m|L`; t stands for a layer."""
    text = flags.find_text("pipeline-model-parallel-layout")
    if text is None:
        return None
    text = re.sub(r"[,\s]", "", text)
    while match := _GROUP.search(text):
        unit, times = match.group(1) or match.group(3) or "", int(match.group(2) or match.group(4))
        if len(text) + len(unit) * times > 64 * _MOST_STAGES:
            raise UsageError("pipeline-model-parallel-layout is longer than any pipeline; shorten it")
        text = text[: match.start()] + unit * times + text[match.end() :]
    if re.search(r"[^Etm|L]", text):
        raise UsageError(
            f"pipeline-model-parallel-layout {text!r} is not understood; expected E, t, m, L and |"
        )
    stages = tuple(stage.count("t") for stage in text.split("|"))
    if len(stages) % pipeline:
        raise UsageError(
            f"pipeline-model-parallel-layout has {len(stages)} stages, no multiple of PP = {pipeline}; "
            "choose as many for each pipeline rank"
        )
    return stages
