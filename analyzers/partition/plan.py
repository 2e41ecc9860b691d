"""A plan: a model split by several strategies into several numbers of stages, and what is recommended."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from ...engine.errors import NothingFitsError, UsageError
from ..model_graph import ModelGraph
from .graph_analyzer import GraphAnalyzer, Rule
from .recommendation import Device
from .result import GraphAnalysis, Metric, PartitionResult, StageSearch, Strategy

PLAN_SCHEMA = "vramscope.plan/1"


class Assumptions(msgspec.Struct, frozen=True, kw_only=True):
    """What times and capacities rest on; they are not measured."""

    seq_length: int | None
    """Tokens of a sequence; None for a saved graph, which does not tell."""
    micro_batch: int | None
    """Sequences of a micro-batch; None like the other."""
    micro_batches: int
    flops_per_s: float
    link_bytes_per_s: float
    capacity_bytes: int | None
    states: str
    """What training holds for a parameter, a name of `STATE_BYTES`; weights alone are another figure."""
    weight_bytes_per_parameter: float
    """Of `max_memory_usage` and `total_memory_mb`: 4 where weights are in float32."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramscope plan --json` prints."""

    schema: str
    model: str
    analysis: GraphAnalysis
    assumptions: Assumptions
    searches: dict[str, StageSearch]
    """By strategy; one that cannot be used at all is among `refused`."""
    refused: dict[str, str]
    """Why, by strategy."""
    recommended_strategy: Strategy | None
    """None where nothing fits in the capacity."""
    recommended_stages: int | None
    reason: str
    """Why this one; where nothing fits, what would."""

    @property
    def recommended(self) -> PartitionResult:
        """The partition that is recommended.

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
    metric: Metric = "memory",
    device: Device | None = None,
    rule: Rule = "device-time",
) -> Plan:
    """Return the plan of a graph.

    Args:
        analyzer: Of the graph.
        numbers: Of stages.
        strategies: Of several that are worth the same counts the one whose fullest stage holds least while it
            trains, then `exact`, then the first; under `legacy` the first, as in the original.
        metric, device, rule: As `GraphAnalyzer.optimize_pipeline_stages` has them.

    Where nothing fits in the capacity, nothing is recommended.

    Raises:
        UsageError: No strategy can be used with any number; the text is the first one's reason.
    """
    assumed = device or Device()
    judge = partial(analyzer.judge_stage_counts, numbers, metric, device=assumed, rule=rule)
    searches, refused = _search(strategies, judge)
    usable = [each for each in strategies if each in searches]
    fitting = [each for each in usable if searches[each].recommended_stages is not None]
    best = min(fitting, key=lambda each: _rank(each, searches[each], rule), default=None)
    chosen = min(searches.values(), key=_find_least_need) if best is None else searches[best]
    return Plan(
        schema=PLAN_SCHEMA,
        model=analyzer.graph.name,
        analysis=analyzer.analyze(),
        assumptions=_state_assumptions(analyzer, assumed),
        searches=searches,
        refused=refused,
        recommended_strategy=best,
        recommended_stages=chosen.recommended_stages,
        reason=chosen.reason,
    )


def _rank(strategy: Strategy, search: StageSearch, rule: Rule) -> tuple[float, ...]:
    """Return what strategies that fit are put in order by, the best first."""
    score = math.inf if search.best_score is None else search.best_score
    chosen = search.recommended_stages
    result = None if chosen is None else search.optimization_results[chosen].result
    if rule == "legacy" or result is None:
        return (score,)
    fullest = max(result.training_bytes or [result.max_memory_usage])
    return score, fullest, float(strategy != "exact")


def _find_least_need(search: StageSearch) -> int:
    """Return what the fullest stage holds with the number of stages that needs least."""
    results = (count.result for count in search.optimization_results.values())
    return min(max(it.training_bytes) for it in results if it is not None and it.training_bytes)


def _state_assumptions(analyzer: GraphAnalyzer, device: Device) -> Assumptions:
    batch = analyzer.graph.batch
    return Assumptions(
        seq_length=None if batch is None else batch.sequence,
        micro_batch=None if batch is None else batch.sequences,
        micro_batches=analyzer.micro_batches,
        states=analyzer.states,
        weight_bytes_per_parameter=_measure_weight(analyzer.graph),
        **device._asdict(),
    )


def _measure_weight(graph: ModelGraph) -> float:
    """Return the bytes of a parameter, over all layers; 4 where there are none."""
    parameters = sum(layer.held_parameters for layer in graph.layers)
    return sum(layer.weight_bytes for layer in graph.layers) / parameters if parameters else 4.0


def _search(
    strategies: Sequence[Strategy], judge: Callable[[Strategy], StageSearch]
) -> tuple[dict[str, StageSearch], dict[str, str]]:
    """Return what each strategy is worth, and why others cannot be used.

    Raises:
        UsageError: None can.
    """
    searches: dict[str, StageSearch] = {}
    refused: dict[str, str] = {}
    for strategy in strategies:
        try:
            searches[strategy] = judge(strategy)
        except UsageError as error:
            refused[strategy] = str(error)
    if not searches:
        raise UsageError(next(iter(refused.values()), "no strategy was given"))
    return searches, refused
