"""A plan: a model split by several strategies into several numbers of stages, and what is recommended."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from ....engine.errors import NothingFitsError, UsageError
from ..theory.configs.flags import NotCounted
from .graph_analyzer import Device, GraphAnalyzer, Rule, recommend
from .result import GraphAnalysis, Metric, PartitionResult, StageCount, StageSearch, Strategy

PLAN_SCHEMA = "vramscope.plan/1"
# Why a strategy is the one to use, by what counts.
_LEAST: Mapping[Metric, str] = {
    "training": "its fullest stage is smallest",
    "memory": "its fullest stage has the fewest bytes of weights",
    "compute": "its slowest stage is fastest",
    "parameters": "its fullest stage has the fewest parameters",
}


class Assumptions(msgspec.Struct, frozen=True, kw_only=True):
    """What times and capacities are based on; they are not measured."""

    seq_length: int | None
    """Tokens of a sequence; None for a saved graph, which does not have them."""
    micro_batch: int | None
    """Sequences of a micro-batch; None for a saved graph."""
    micro_batches: int
    flops_per_s: float
    link_bytes_per_s: float
    capacity_bytes: int | None
    states: str
    """What training keeps for each parameter, a name of `STATE_BYTES`; sizes of weights do not depend on it.
    """
    weight_bytes_per_parameter: float
    """Bytes of a parameter in `max_memory_usage` and `total_memory_mb`: 4 for float32 weights."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramscope plan --json` prints."""

    schema: str
    model: str
    analysis: GraphAnalysis
    assumptions: Assumptions
    searches: dict[Strategy, StageSearch]
    """By strategy; an unusable one is in `refused`."""
    refused: dict[Strategy, str]
    """Reason by strategy."""
    recommended_strategy: Strategy | None
    """None where nothing fits in the capacity."""
    recommended_stages: int | None
    reason: str
    """Why this one; where nothing fits, what would fit."""
    not_counted: tuple[NotCounted, ...] = ()
    """Flags of the model's file that change memory and are not in the sizes, as of `estimate`."""
    assumed: tuple[str, ...] = ()
    """What was assumed, since neither flags nor files say it."""

    @property
    def recommended(self) -> PartitionResult:
        """The recommended partition.

        Raises:
            NothingFitsError: Nothing fits in the capacity; the text says what would.
        """
        if self.recommended_strategy is None or self.recommended_stages is None:
            raise NothingFitsError(self.reason)
        found = self.searches[self.recommended_strategy].optimization_results[self.recommended_stages].result
        assert found is not None  # noqa: S101 - a search recommends what it has a result of
        return found


def make_plan(
    analyzer: GraphAnalyzer,
    numbers: Sequence[int],
    strategies: Sequence[Strategy],
    *,
    metric: Metric | None = None,
    device: Device | None = None,
    rule: Rule = "device-time",
) -> Plan:
    """Return the plan of a graph; nothing is recommended where nothing fits in the capacity.

    Args:
        numbers: Numbers of stages.
        strategies: For each number of stages the one counts that fits and whose fullest stage has least of
            the
            metric, `exact` before others and then the first; among the numbers the one with least device
            time.
            Under `legacy` the least score of all, and the first of equals, as in the original.
        metric, device, rule: As for `GraphAnalyzer.optimize_pipeline_stages`.

    Raises:
        UsageError: No strategy can be used with any number; the text is the first one's reason.
    """
    assumed = device or Device()
    judge = partial(analyzer.judge_stage_counts, numbers, metric, device=assumed, rule=rule)
    searches, refused = _judge_strategies(strategies, judge)
    used_metric = analyzer.usual_metric if metric is None else metric
    chosen: tuple[Strategy, StageSearch] | None
    if rule == "legacy":
        chosen = min(searches.items(), key=lambda each: each[1].best_score or 0.0)
    else:
        chosen = _choose(numbers, searches, used_metric, assumed.capacity_bytes)
    strategy, search = (None, min(searches.values(), key=_find_least_need)) if chosen is None else chosen
    return Plan(
        schema=PLAN_SCHEMA,
        model=analyzer.graph.name,
        analysis=analyzer.analyze(),
        assumptions=_state_assumptions(analyzer, assumed),
        searches=searches,
        refused=refused,
        recommended_strategy=strategy,
        recommended_stages=search.recommended_stages,
        reason=search.reason,
    )


def _choose(
    numbers: Sequence[int],
    searches: Mapping[Strategy, StageSearch],
    metric: Metric,
    capacity_bytes: int | None,
) -> tuple[Strategy, StageSearch] | None:
    """Return the recommended strategy and the search that it comes from; None where nothing fits."""
    best = {
        number: min(
            searches, key=lambda each: _rank(each, searches[each].optimization_results[number], metric)
        )
        for number in numbers
    }
    counts = {number: searches[best[number]].optimization_results[number] for number in numbers}
    search = recommend(counts, capacity_bytes)
    stages = search.recommended_stages
    if stages is None:
        return None
    if len(searches) > 1:
        of_which = "of the strategies" if capacity_bytes is None else "of the strategies that fit,"
        reason = f"{search.reason}; {of_which} {_LEAST[metric]}"
        search = msgspec.structs.replace(search, reason=reason)
    return best[stages], search


def _rank(strategy: Strategy, count: StageCount, metric: Metric) -> tuple[bool, bool, float, bool]:
    """Return the sort key of strategies at one number of stages, the best first."""
    most = math.inf if count.result is None else round(_measure_fullest(count.result, metric), 3)
    return count.score is None, count.fits is False, most, strategy != "exact"


def _measure_fullest(result: PartitionResult, metric: Metric) -> float:
    if metric == "training" and result.training_bytes:
        return max(result.training_bytes)
    if metric == "compute":
        return max(stage.total_compute_gflops for stage in result.partitions)
    if metric == "parameters":
        return max(stage.total_parameters for stage in result.partitions)
    return result.max_memory_usage


def _find_least_need(search: StageSearch) -> int:
    """Return what the fullest stage holds with the number of stages that needs least."""
    results = (count.result for count in search.optimization_results.values())
    return min(max(it.training_bytes) for it in results if it is not None and it.training_bytes)


def _state_assumptions(analyzer: GraphAnalyzer, device: Device) -> Assumptions:
    batch = analyzer.graph.batch
    layers = analyzer.graph.layers
    parameters = sum(layer.held_parameters for layer in layers)
    return Assumptions(
        seq_length=None if batch is None else batch.sequence,
        micro_batch=None if batch is None else batch.sequences,
        micro_batches=analyzer.micro_batches,
        states=analyzer.states,
        weight_bytes_per_parameter=sum(layer.weight_bytes for layer in layers) / parameters
        if parameters
        else 4.0,
        **device._asdict(),
    )


def _judge_strategies(
    strategies: Sequence[Strategy], judge: Callable[[Strategy], StageSearch]
) -> tuple[dict[Strategy, StageSearch], dict[Strategy, str]]:
    """Judge each strategy; return the searches, and why others cannot be used.

    Raises:
        UsageError: No strategy can.
    """
    searches: dict[Strategy, StageSearch] = {}
    refused: dict[Strategy, str] = {}
    for strategy in strategies:
        try:
            searches[strategy] = judge(strategy)
        except UsageError as error:
            refused[strategy] = str(error)
    if not searches:
        raise UsageError(next(iter(refused.values()), "no strategy was given"))
    return searches, refused
