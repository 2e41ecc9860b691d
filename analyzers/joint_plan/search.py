"""The search: configurations in the order of what they take at best, until nothing left can be faster.

Every candidate has a bound that its step cannot be shorter than (`Pricing.bound_step`). Candidates are
taken in the order of their bounds; once as many choices of degrees as are wanted have been found, and the
next bound is above the slowest of them, no candidate that is left can come before it: the list is exact,
within what is searched and what the models say. A rank's memory grows with its micro-batch, all else equal,
so that what did not fit is not tried with more.
"""

from collections import Counter
from collections.abc import Iterable

from ..cluster_graph import Cluster
from ..memory_theory import ModelShape, TrainingSetup
from ..memory_theory.shape import check_shape
from ..time_model import TimeAssumptions, count_model_flops, settle_assumptions
from .evaluation import Evaluation, Evaluator
from .explanation import explain
from .least_memory import refuse_limits
from .model import JOINT_PLAN_SCHEMA, JointAssumptions, JointConfiguration, JointPlan, PrunedCount
from .options import JointOptions, check_options
from .outcome import describe_configuration
from .pricing import Pricing
from .space import (
    SAME_DEGREES,
    SLOWER_THAN_LISTED,
    TOO_LARGE,
    Candidate,
    Degrees,
    SearchSpace,
    name_gpu,
)


def plan_jointly(
    name: str,
    shape: ModelShape,
    cluster: Cluster,
    options: JointOptions,
    assumptions: TimeAssumptions | None = None,
) -> JointPlan:
    """Return the fastest configurations that fit, one for each choice of degrees, the fastest first.

    Args:
        name: What the model is called.
        shape: Its sizes.
        cluster: All of its devices are used.
        options: The batch, and what is searched.
        assumptions: What times rest on.

    Raises:
        UsageError: Sizes or options that cannot be, or nothing fits; the text says what would.
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
    """One search, and what it counts."""

    def __init__(
        self, shape: ModelShape, cluster: Cluster, options: JointOptions, assumptions: TimeAssumptions
    ) -> None:
        node = min(len(each.devices) for each in cluster.nodes)
        gpu = name_gpu(cluster.devices[0].kind)
        self.space = SearchSpace(shape, len(cluster.devices), node, options, gpu)
        self.pricing = Pricing(shape, cluster, assumptions)
        self.evaluator = Evaluator(shape, cluster, self.pricing, options.memory_share)
        self.pruned: Counter[str] = Counter()
        self._shape, self._cluster, self._options = shape, cluster, options
        self._best: dict[Degrees, Evaluation] = {}
        self._too_large: dict[tuple[object, ...], int] = {}

    def run(self) -> list[Evaluation]:
        """Return the best of each choice of degrees, as many as are wanted, the fastest first.

        Raises:
            UsageError: Nothing fits.
        """
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
        """Return the FLOPs of the model in one step."""
        options = self._options
        setup = TrainingSetup(seq_length=options.seq_length, micro_batch_size=1, attention=options.attention)
        return count_model_flops(self._shape, setup, options.global_batch)

    def list_pruned(self) -> tuple[PrunedCount, ...]:
        """Return how many configurations were left out, by reason, the most frequent first."""
        pruned = self.space.pruned + self.pruned
        return tuple(PrunedCount(reason, count) for reason, count in pruned.most_common())

    def describe(self, found: Iterable[Evaluation]) -> list[JointConfiguration]:
        """Return what was found in full."""
        return [describe_configuration(self._shape, each, self.evaluator, self.pricing) for each in found]

    def _try(self, bound: float, candidate: Candidate) -> None:
        if (reason := self._outpace(bound, candidate)) is not None:
            self.pruned[reason] += 1
        elif self._is_too_large(candidate) or (found := self.evaluator.evaluate(candidate)) is None:
            self.pruned[TOO_LARGE] += 1
            self._remember(candidate)
        else:
            self._keep(found)

    def _outpace(self, bound: float, candidate: Candidate) -> str | None:
        """Return why a candidate cannot be of use, whether it fits or not; None where it can."""
        best = self._best.get(candidate.degrees)
        own = float("inf") if best is None else best.time.total_s
        listed = self._find_slowest_listed()
        if bound < min(own, listed):
            bound = max(bound, self.evaluator.tighten(candidate))
        if bound >= own:
            return SAME_DEGREES
        return SLOWER_THAN_LISTED if bound >= listed else None

    def _keep(self, found: Evaluation) -> None:
        """Keep the faster of two of the same degrees; count the other."""
        best = self._best.get(found.candidate.degrees)
        self.pruned[SAME_DEGREES] += best is not None
        if best is None or found.time.total_s < best.time.total_s:
            self._best[found.candidate.degrees] = found

    def _find_slowest_listed(self) -> float:
        """Return the step of the last that is wanted, once there are as many."""
        if len(self._best) < self._options.top:
            return float("inf")
        return sorted(each.time.total_s for each in self._best.values())[self._options.top - 1]

    def _is_too_large(self, candidate: Candidate) -> bool:
        least = self._too_large.get(_describe_family(candidate))
        return least is not None and candidate.setup.micro_batch_size >= least

    def _remember(self, candidate: Candidate) -> None:
        family, size = _describe_family(candidate), candidate.setup.micro_batch_size
        self._too_large[family] = min(size, self._too_large.get(family, size))


def _describe_family(candidate: Candidate) -> tuple[object, ...]:
    """Return what candidates share that differ in their micro-batch alone."""
    layout, setup = candidate.layout, candidate.setup
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
    """Return how good the list is, within what was searched and what the models say."""
    unlike = shape.experts is not None and len({*shape.experts.is_expert_layer}) > 1
    layers = "; for memory a layer without experts counts as one with them" if unlike else ""
    if cluster.is_uniform:
        return f"exact: devices are alike, and layers are split for the fastest slowest stage{layers}"
    gaps = [each.gap for each in found]
    known = [gap for gap in gaps if gap is not None]
    if len(known) == len(gaps) and not any(known):
        return f"order of devices: exact for each listed, by the time and memory of its layers{layers}"
    return (
        f"order of devices: heuristic, the slowest stage at most {max(known, default=0):.1%} above the best "
        f"where that is known{layers}"
    )
