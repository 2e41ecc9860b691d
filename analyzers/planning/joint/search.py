"""The search: configurations in the order of their lower bounds, until nothing left can be faster.

Every candidate has a bound that its step cannot be shorter than (`Pricing.bound_step`). Candidates are
tried in the order of their bounds; once as many choices of degrees as are wanted have been found, and the
next bound is above the slowest of them, no candidate that is left can come before it: the list is exact,
within what is searched and what the models say. A rank's memory grows with its micro-batch, all else equal,
so that what did not fit is not tried with a larger one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

import msgspec

from ....engine.errors import NothingFitsError, UsageError
from ....engine.units import GIB, format_share
from ..cluster import Cluster
from ..theory import ModelShape, estimate_stages
from ..theory.shape import check_shape
from ..time import StepTime, TimeAssumptions, count_model_flops, settle_assumptions
from .evaluation import Evaluation, Evaluator, Pricing
from .space import (
    JOINT_PLAN_SCHEMA,
    RECOMPUTES,
    SAME_DEGREES,
    SLOWER_THAN_LISTED,
    TOO_LARGE,
    ZERO_STAGES,
    Candidate,
    Degrees,
    JointAssumptions,
    JointConfiguration,
    JointOptions,
    JointPlan,
    JointStage,
    PrunedCount,
    SearchSpace,
    check_options,
    find_gpu,
)


def plan_jointly(
    name: str,
    shape: ModelShape,
    cluster: Cluster,
    options: JointOptions,
    assumptions: TimeAssumptions | None = None,
) -> JointPlan:
    """Return the fastest configurations that fit and use all devices, one for each choice of degrees.

    The fastest is first.

    Raises:
        UsageError: Sizes or options are impossible, or nothing fits; the text says what would.
    """
    check_shape(shape)
    check_options(options)
    assumed = settle_assumptions(assumptions, cluster)
    found = (search := _Search(shape, cluster, options, assumed)).run()
    return JointPlan(
        schema=JOINT_PLAN_SCHEMA,
        model=name,
        cluster=cluster.name,
        devices=len(cluster.devices),
        assumptions=_describe_assumptions(options, assumed, cluster),
        model_flops=search.count_flops(),
        configurations=tuple(explain(search.describe(found))),
        considered=search.space.considered,
        pruned=search.list_pruned(),
        optimality=_describe_optimality(shape, cluster, found),
    )


class _Search:
    def __init__(
        self, shape: ModelShape, cluster: Cluster, options: JointOptions, assumptions: TimeAssumptions
    ) -> None:
        node = min(len(each.devices) for each in cluster.nodes)
        gpu = find_gpu(cluster.devices[0].kind)
        self.space = SearchSpace(shape, len(cluster.devices), node, options, gpu)
        self.pricing = Pricing(shape, cluster, assumptions)
        self.evaluator = Evaluator(shape, cluster, self.pricing, options.memory_share)
        self.pruned: Counter[str] = Counter()
        self._shape = shape
        self._cluster = cluster
        self._options = options
        self._best: dict[Degrees, Evaluation] = {}
        self._too_large: dict[tuple[object, ...], int] = {}

    def run(self) -> list[Evaluation]:
        """Return the best of each choice of degrees, as many as are wanted, the fastest first."""
        candidates = self.space.list_candidates()
        bounded = sorted(
            ((self.pricing.bound_step(each), number, each) for number, each in enumerate(candidates)),
            key=lambda entry: entry[:2],
        )
        for bound, _, candidate in bounded:
            self._try(bound, candidate)
        matched = (self.evaluator.match(each) for each in self._best.values())
        kept = sorted(matched, key=lambda each: each.time.total_s)
        self.pruned[SLOWER_THAN_LISTED] += max(0, len(kept) - self._options.top)
        if not kept:
            pruned = self.space.pruned
            refuse_limits(self._shape, self._cluster, self._options, candidates, self.evaluator, pruned)
        return kept[: self._options.top]

    def count_flops(self) -> float:
        options = self._options
        return count_model_flops(self._shape, options.make_setup(), options.global_batch)

    def list_pruned(self) -> tuple[PrunedCount, ...]:
        pruned = self.space.pruned + self.pruned
        return tuple(PrunedCount(reason, count) for reason, count in pruned.most_common())

    def describe(self, found: Iterable[Evaluation]) -> list[JointConfiguration]:
        return [describe_configuration(self._shape, each, self.evaluator, self.pricing) for each in found]

    def _try(self, bound: float, candidate: Candidate) -> None:
        if (reason := self._rule_out(bound, candidate)) is not None:
            self.pruned[reason] += 1
            return
        family = _describe_family(candidate)
        size = candidate.setup.micro_batch_size
        least_too_large = self._too_large.get(family)
        is_too_large = least_too_large is not None and size >= least_too_large
        if is_too_large or (found := self.evaluator.evaluate(candidate)) is None:
            self.pruned[TOO_LARGE] += 1
            self._too_large[family] = min(size, self._too_large.get(family, size))
            return
        best = self._best.get(candidate.degrees)
        self.pruned[SAME_DEGREES] += best is not None
        if best is None or found.time.total_s < best.time.total_s:
            self._best[candidate.degrees] = found

    def _rule_out(self, bound: float, candidate: Candidate) -> str | None:
        """Return why a candidate is useless whether it fits or not; None where it may be of use."""
        best = self._best.get(candidate.degrees)
        own = float("inf") if best is None else best.time.total_s
        listed = self._find_slowest_listed()
        if bound < min(own, listed):
            bound = max(bound, self.evaluator.tighten(candidate))
        if bound >= own:
            return SAME_DEGREES
        return SLOWER_THAN_LISTED if bound >= listed else None

    def _find_slowest_listed(self) -> float:
        """Return the step of the last wanted configuration, once there are as many; infinite before."""
        if len(self._best) < self._options.top:
            return float("inf")
        return sorted(each.time.total_s for each in self._best.values())[self._options.top - 1]


def _describe_family(candidate: Candidate) -> tuple[object, ...]:
    """Return what candidates share that differ in their micro-batch alone."""
    layout = candidate.layout
    setup = candidate.setup
    return (
        candidate.degrees,
        layout.virtual_stages,
        layout.is_sequence_parallel,
        setup.recompute,
        setup.zero_stage,
    )


def _describe_assumptions(
    options: JointOptions, assumptions: TimeAssumptions, cluster: Cluster
) -> JointAssumptions:
    links = None if cluster.measured is None else "bandwidths measured on the cluster"
    learnt = [each for each in (assumptions.calibration, links) if each is not None]
    return JointAssumptions(
        global_batch=options.global_batch,
        seq_length=options.seq_length,
        efficiency=assumptions.product_efficiency,
        memory_share=options.memory_share,
        calibration="; ".join(learnt) or None,
    )


def _describe_optimality(shape: ModelShape, cluster: Cluster, found: list[Evaluation]) -> str:
    """Describe how good the list is, within what was searched and what the models say."""
    unlike = shape.experts is not None and len({*shape.experts.is_expert_layer}) > 1
    layers = "; for memory, a layer without experts counts as one with them" if unlike else ""
    if cluster.is_uniform:
        return (
            "exact: devices are alike, and layers are split so that the slowest stage is as fast as "
            f"possible{layers}"
        )
    gaps = [each.gap for each in found]
    known = [gap for gap in gaps if gap is not None]
    if len(known) == len(gaps) and not any(known):
        return f"order of devices: exact for each listed, by the time and memory of its layers{layers}"
    return (
        "order of devices: heuristic, the slowest stage at most "
        f"{format_share(max(known, default=0), 1)} above the best where that is known{layers}"
    )


def describe_configuration(
    shape: ModelShape, found: Evaluation, evaluator: Evaluator, pricing: Pricing
) -> JointConfiguration:
    layout = found.layout
    setup = found.candidate.setup
    memory = estimate_stages(shape, layout, setup)
    places = pricing.place(found.candidate.layout, found.order)
    capacities = evaluator.list_capacities(found.candidate.layout, found.order)
    stages = tuple(
        JointStage(
            stage=number,
            layers=memory[number].layers,
            devices=places[number],
            capacity_bytes=capacities[number],
            memory=memory[number],
            compute_s=found.stage_s[number],
        )
        for number in range(layout.pipeline)
    )
    return JointConfiguration(layout=layout, setup=setup, stages=stages, time=found.time)


PARTS = {
    "compute_s": "kernels",
    "tensor_s": "collectives of tensor ranks",
    "pipeline_s": "transfers between stages",
    "bubble_s": "bubble",
    "data_s": "collectives of data ranks",
    "optimizer_s": "optimizer",
}
# Parts below this share of the difference are not named.
LEAST_SHARE = 0.1


def explain(configurations: Sequence[JointConfiguration]) -> Iterator[JointConfiguration]:
    """Yield configurations with their reasons: the first is compared with the second, each other with the one
    before.
    """
    for number, configuration in enumerate(configurations):
        if len(configurations) == 1:
            yield configuration
            return
        other = configurations[number - 1 if number else 1]
        reason = compare_times(configuration.time, other.time, "next" if number == 0 else "one before")
        yield msgspec.structs.replace(configuration, reasons=(reason,))


def compare_times(own: StepTime, other: StepTime, name: str) -> str:
    """Describe by how much a step is faster or slower than another, and in which parts."""
    difference = own.total_s - other.total_s
    parts = {words: getattr(own, part) - getattr(other, part) for part, words in PARTS.items()}
    named = [each for each in parts.items() if abs(each[1]) > LEAST_SHARE * abs(difference)]
    named.sort(key=lambda each: (each[1] * difference < 0, -abs(each[1])))
    what = ", ".join(f"{words} {seconds:+.3g} s" for words, seconds in named if seconds)
    share = abs(difference) / other.total_s
    word = "faster" if difference < 0 else "slower"
    return f"{format_share(share, 1)} {word} than the {name}" + (f": {what}" if what else "")


# Suggest at most so many times the devices.
MOST_TIMES = 64


def refuse_limits(
    shape: ModelShape,
    cluster: Cluster,
    options: JointOptions,
    candidates: Sequence[Candidate],
    evaluator: Evaluator,
    pruned: Counter[str],
) -> NoReturn:
    """Raise an error that says what would fit where nothing does; `pruned` counts excluded choices by reason.

    Raises:
        UsageError: No degrees can use the devices.
        NothingFitsError: Every configuration needs more memory than the devices have.
    """
    if not candidates:
        raise UsageError(_explain_degrees(shape, cluster, options, pruned))
    needed, candidate = min(
        ((_find_peak(shape, each), each) for each in _list_smallest(candidates)),
        key=lambda entry: entry[0],
    )
    most = min(evaluator.list_capacities(candidate.layout))
    raise NothingFitsError(
        f"no configuration fits into {most / GIB:.1f} GiB of each device "
        f"({format_share(options.memory_share)} of its memory): the least that was found is "
        f"{needed / GIB:.1f} GiB ({describe_candidate(candidate)}); "
        + _suggest(shape, cluster, options, needed)
    )


def describe_candidate(candidate: Candidate) -> str:
    degrees = candidate.degrees
    layout = candidate.layout
    setup = candidate.setup
    words = [f"TP {degrees.tensor}", f"PP {degrees.pipeline}", f"DP {degrees.data}"]
    words += [f"EP {degrees.expert}"] if degrees.expert > 1 else []
    words += ["SP"] if layout.is_sequence_parallel else []
    return ", ".join(
        [
            *words,
            f"ZeRO {setup.zero_stage}",
            f"recompute {setup.recompute}",
            f"micro-batch {setup.micro_batch_size}",
        ]
    )


def _explain_degrees(shape: ModelShape, cluster: Cluster, options: JointOptions, pruned: Counter[str]) -> str:
    devices = len(cluster.devices)
    if devices % options.context:
        return f"CP = {options.context} does not divide the {devices:,} devices; choose a divisor of them"
    reasons = ", ".join(f"{reason} ({count:,})" for reason, count in pruned.most_common(3))
    return (
        f"no degrees use all {devices:,} devices for {shape.heads} heads, {shape.layers} layers and a "
        f"global batch of {options.global_batch:,}: {reasons}; choose a global batch that more data "
        "ranks divide, or a different number of devices"
    )


def _list_smallest(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return those that hold least: small micro-batches, one piece a rank, most sharded and recomputed."""
    smallest: dict[Degrees, Candidate] = {}
    for each in candidates:
        if each.setup.micro_batch_size == 1 and each.layout.virtual_stages == 1:
            best = smallest.setdefault(each.degrees, each)
            smallest[each.degrees] = max(best, each, key=_count_savings)
    return list(smallest.values())


def _count_savings(candidate: Candidate) -> tuple[bool, int, int]:
    setup = candidate.setup
    return candidate.layout.is_sequence_parallel, RECOMPUTES.index(setup.recompute), setup.zero_stage


def _find_peak(shape: ModelShape, candidate: Candidate) -> int:
    """Return the peak in bytes of the fullest rank where stages are as even as they can be."""
    stages = candidate.degrees.pipeline
    share, rest = divmod(shape.layers, stages)
    sizes = tuple(share + (stage >= stages - rest) for stage in range(stages))
    layout = msgspec.structs.replace(candidate.layout, stage_layers=sizes)
    return max(rank.peak_bytes for rank in estimate_stages(shape, layout, candidate.setup))


def _suggest(shape: ModelShape, cluster: Cluster, options: JointOptions, needed: int) -> str:
    """Suggest what would fit: what was excluded, more devices, larger ones."""
    ways = []
    memory = min(device.memory_bytes for device in cluster.devices)
    allowed = msgspec.structs.replace(options, zero_stages=ZERO_STAGES, recomputes=RECOMPUTES)
    if allowed != options and _fits(shape, len(cluster.devices), cluster, allowed):
        ways.append("allow every ZeRO stage and recomputation")
    more = (2**power for power in range(1, MOST_TIMES.bit_length()))
    enough = next(
        (times for times in more if _fits(shape, times * len(cluster.devices), cluster, options)), None
    )
    if enough is not None:
        ways.append(f"use {enough * len(cluster.devices):,} such devices")
    ways.append(f"use devices of {needed / options.memory_share / GIB:.0f} GiB")
    if needed <= memory:
        ways.append(f"give a memory share of {needed / memory + 0.005:.2f}")
    return "to make it fit, " + ", or ".join(ways)


def _fits(shape: ModelShape, devices: int, cluster: Cluster, options: JointOptions) -> bool:
    """Return whether so many devices, as small as the smallest, have a configuration that fits."""
    node = min(len(each.devices) for each in cluster.nodes)
    most = min(device.memory_bytes for device in cluster.devices) * options.memory_share
    gpu = find_gpu(cluster.devices[0].kind)
    space = SearchSpace(shape, devices, max(node, 1), options, gpu)
    return any(_find_peak(shape, each) <= most for each in _list_smallest(space.list_candidates()))
