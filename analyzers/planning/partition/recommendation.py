"""How many stages to use: what a step costs in device time, among the numbers of stages that fit.

A step of m micro-batches over p stages takes (m + p - 1) turns of the slowest stage and its transfer (D.
Narayanan et al., SC 2021): the share (p - 1) / (m + p - 1) is bubble. More stages end a step sooner and use p
devices for it; the devices that fewer stages leave free can run copies of the model. So device time decides,
not the time alone, and not how even memory is.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ....engine.errors import UsageError
from ....engine.units import GIB
from ..graph import MIB, ModelGraph
from .costs import count_flops
from .result import PartitionResult, StageCount, StageSearch

THIN_SHARE = 0.1
"""Of a device: a plan that leaves less is said to have a thin margin."""


class Device(NamedTuple):
    """What is assumed of every device and of the links between them."""

    flops_per_s: float = 1e14
    link_bytes_per_s: float = 25e9
    capacity_bytes: int | None = None


def judge_stages(
    graph: ModelGraph, result: PartitionResult, micro_batches: int, device: Device
) -> StageCount:
    """Return what a partition is worth on such devices."""
    flops = {layer.layer_id: count_flops(layer) for layer in graph.layers}
    most_flops = max(sum(flops[each] for each in stage.layer_ids) for stage in result.partitions)
    compute_s = most_flops / device.flops_per_s
    sent_mib = max(stage.communication_cost for stage in result.partitions)
    transfer_s = 2 * sent_mib * MIB / device.link_bytes_per_s
    turns = micro_batches + result.total_stages - 1
    step_s = turns * (compute_s + transfer_s)
    return StageCount(
        result=result,
        score=step_s * result.total_stages,
        step_s=step_s,
        bubble_share=(result.total_stages - 1) / turns,
        communication_share=transfer_s / (compute_s + transfer_s) if compute_s + transfer_s else 0.0,
        fits=_is_within(result, device.capacity_bytes),
    )


def recommend(counts: Mapping[int, StageCount], capacity_bytes: int | None) -> StageSearch:
    """Return the number of stages of least score among those that fit, none where nothing fits.

    Raises:
        UsageError: No number can be used, whatever the capacity.
    """
    usable = {number: count for number, count in counts.items() if count.score is not None}
    if not usable:
        raise UsageError(_say_why_none(counts))
    fitting = {number: count for number, count in usable.items() if count.fits is not False}
    if not fitting:
        reason = _say_what_would_fit(usable, capacity_bytes)
        return StageSearch(
            optimization_results=dict(counts), recommended_stages=None, best_score=None, reason=reason
        )
    best = min(fitting, key=lambda number: (fitting[number].score or 0.0, number))
    chosen = fitting[best]
    reason = f"least device time of a step ({chosen.score:.2f} device-seconds: "
    reason += f"bubble {chosen.bubble_share:.0%}, communication {chosen.communication_share:.1%})"
    left_out = [number for number in usable if number not in fitting]
    if capacity_bytes is None:
        reason += "; no capacity was given, so every number of stages counts as fitting"
    elif chosen.fits is None:
        reason += "; activations of the layers are not known, so nothing can be said of the capacity"
    else:
        if left_out:
            reason += (
                f"; {', '.join(map(str, left_out))} stages do not fit in {capacity_bytes / MIB:,.0f} MiB"
            )
        reason += _describe_margin(chosen.result, capacity_bytes)
    return StageSearch(
        optimization_results=dict(counts),
        recommended_stages=best,
        best_score=chosen.score or 0.0,
        reason=reason,
    )


def _describe_margin(result: PartitionResult | None, capacity_bytes: int) -> str:
    """Return how much of a device the fullest stage leaves, with a warning where that is little."""
    if result is None or not result.training_bytes:
        return ""
    fullest = max(result.training_bytes)
    left_share = 1 - fullest / capacity_bytes
    told = (
        f"; the fullest stage needs {fullest / GIB:,.1f} of {capacity_bytes / GIB:,.1f} GiB and leaves "
        f"{left_share:.1%}"
    )
    if left_share >= THIN_SHARE:
        return told
    return (
        f"{told}, a thin margin: CUDA's context, communication buffers and fragmentation are not counted and "
        "often take more"
    )


def recommend_as_original(counts: Mapping[int, PartitionResult | str]) -> StageSearch:
    """Return the original's choice: least coefficient of variation plus a tenth of the MiB sent."""
    judged = {
        number: StageCount(error=result)
        if isinstance(result, str)
        else StageCount(result=result, score=result.balance_score + 0.1 * result.total_communication_cost)
        for number, result in counts.items()
    }
    scores = {number: count.score for number, count in judged.items() if count.score is not None}
    if not scores:
        raise UsageError(_say_why_none(judged))
    best = min(scores, key=lambda number: scores[number])
    return StageSearch(
        optimization_results=judged,
        recommended_stages=best,
        best_score=scores[best],
        reason="Best balance between memory distribution and communication cost",
    )


def _say_why_none(counts: Mapping[int, StageCount]) -> str:
    return next((count.error for count in counts.values() if count.error), "no number of stages was given")


def _is_within(result: PartitionResult, capacity_bytes: int | None) -> bool | None:
    if capacity_bytes is None or result.training_bytes is None:
        return None
    return max(result.training_bytes) <= capacity_bytes


def _say_what_would_fit(usable: Mapping[int, StageCount], capacity_bytes: int | None) -> str:
    needs = {
        number: max(count.result.training_bytes)
        for number, count in usable.items()
        if count.result is not None and count.result.training_bytes is not None
    }
    number = min(needs, key=lambda each: needs[each])
    return (
        f"no number of stages fits in {(capacity_bytes or 0) / MIB:,.0f} MiB: the least any needs is "
        f"{needs[number] / MIB:,.0f} MiB, with {number} stages; allow more stages, smaller micro-batches or "
        "larger devices"
    )
