"""The original's table under its own rule, and the exact one beside it."""

import json

import pytest

from vramscope import GraphAnalyzer, create_gpt_model_graph
from vramscope.analyzers.planning.partition import (
    METRICS,
    STRATEGIES,
    Device,
    Metric,
    PartitionResult,
    Strategy,
    make_plan,
)
from vramscope.engine.errors import UsageError
from vramscope.exporters.plan.partition import encode_graph

ORIGINAL = {
    2: (0.0000, 3119.54, 6.25),
    3: (0.0695, 2181.95, 12.5),
    4: (0.0983, 1713.15, 18.75),
    5: (0.1215, 1478.75, 25.0),
    6: (0.1391, 1244.35, 31.25),
    7: (0.1306, 1127.15, 37.5),
    8: (0.1703, 1009.95, 43.75),
    12: (0.2199, 775.55, 68.75),
    16: (0.2602, 658.35, 93.75),
}
"""Stages: balance score, MiB of the fullest stage, MiB sent, of llm_parallel_strategy's balanced_memory."""
EXACT = {2: 3119.54, 4: 1595.95, 6: 1054.80, 8: 820.40}


@pytest.fixture(scope="module")
def analyzer() -> GraphAnalyzer:
    return GraphAnalyzer(create_gpt_model_graph("gpt-1.5b", figures="legacy"))


@pytest.fixture(scope="module")
def counted() -> GraphAnalyzer:
    return GraphAnalyzer(create_gpt_model_graph("gpt-1.5b"))


@pytest.mark.parametrize("stages", ORIGINAL)
def test_the_original_s_rule_gives_its_table(analyzer: GraphAnalyzer, stages: int) -> None:
    result = analyzer.partition_graph_balanced(stages, strategy="balanced_memory")
    found = (
        round(result.balance_score, 4),
        round(result.max_memory_usage, 2),
        result.total_communication_cost,
    )
    assert found == ORIGINAL[stages]


@pytest.mark.parametrize("stages", EXACT)
def test_the_exact_split_is_fuller_nowhere(analyzer: GraphAnalyzer, stages: int) -> None:
    result = analyzer.partition_graph_balanced(num_stages=stages, balance_metric="memory")
    assert round(result.max_memory_usage, 2) == EXACT[stages]
    assert result.total_communication_cost == ORIGINAL[stages][2]
    assert [each for stage in result.partitions for each in stage.layer_ids] == list(range(51))


def test_the_original_s_two_stages_are_met_to_the_last_digit(analyzer: GraphAnalyzer) -> None:
    result = analyzer.partition_graph_balanced(2, strategy="uniform")
    assert result.balance_score == 9.782716092861454e-07
    assert [stage.total_memory_mb for stage in result.partitions] == [3119.537353515625, 3119.54345703125]
    assert [stage.total_compute_gflops for stage in result.partitions] == [
        3278974.3271935955,
        2256.6764543999993,
    ]


def test_uniform_gives_the_first_stages_one_block_more(analyzer: GraphAnalyzer) -> None:
    result = analyzer.partition_graph_balanced(5, strategy="uniform")
    assert [len(stage.layer_ids) for stage in result.partitions] == [11, 10, 10, 9, 11]


def test_the_original_always_recommends_two_stages(analyzer: GraphAnalyzer) -> None:
    search = analyzer.optimize_pipeline_stages(min_stages=2, max_stages=8, rule="legacy")
    assert search["recommended_stages"] == 2
    assert search.best_score == pytest.approx(0.625001, abs=1e-6)


def test_fewest_stages_that_fit_cost_least_device_time() -> None:
    analyzer = GraphAnalyzer(create_gpt_model_graph("gpt-1.5b"))
    device = Device(capacity_bytes=10 << 30)
    search = analyzer.optimize_pipeline_stages(strategy="exact-1f1b", device=device)
    assert search.recommended_stages == 4
    assert "2, 3 stages do not fit in 10,240 MiB" in search.reason
    fits = [number for number, count in search.optimization_results.items() if count.fits]
    assert fits == [4, 5, 6, 7, 8]
    with pytest.raises(UsageError, match="the least any needs is 5,179 MiB, with 8 stages"):
        analyzer.optimize_pipeline_stages(strategy="exact-1f1b", device=Device(capacity_bytes=1 << 30))


def test_a_capacity_says_nothing_where_activations_are_unknown(analyzer: GraphAnalyzer) -> None:
    search = analyzer.optimize_pipeline_stages(device=Device(capacity_bytes=1))
    assert "the capacity cannot be checked" in search.reason


def test_1f1b_holds_less_than_any_other_strategy() -> None:
    analyzer = GraphAnalyzer(create_gpt_model_graph("llama2-7b", micro_batch=2), micro_batches=16)
    for stages in (2, 5, 8):
        held = {
            name: max(result.training_bytes)
            for name, result in analyzer.compare_strategies(stages).items()
            if isinstance(result, PartitionResult) and result.training_bytes is not None
        }
        assert set(held) == set(STRATEGIES)
        assert held["exact-1f1b"] == min(held.values())


def test_an_encoder_is_sent_to_each_stage_of_decoders_once() -> None:
    graph = create_gpt_model_graph("t5-small", seq_length=256)
    result = GraphAnalyzer(graph).partition_graph_balanced(5, "compute")
    ids = {layer.name: layer.layer_id for layer in graph.layers}
    norm = ids["encoder_layer_norm"]
    decoders = {ids[f"decoder_block_{number}"] for number in range(6)}
    later = [
        stage for stage in result.partitions if stage.start_layer > norm and decoders & {*stage.layer_ids}
    ]
    with_both = next(stage for stage in result.partitions if norm in stage.layer_ids)
    assert len(later) == 2
    assert with_both.end_layer > norm
    assert result.total_communication_cost == (4 + len(later)) * graph.edges[0].communication_cost


def test_a_tied_head_weighs_on_the_last_stage() -> None:
    result = GraphAnalyzer(create_gpt_model_graph("gpt2-xl")).partition_graph_balanced(8, "memory")
    assert sum(stage.total_parameters for stage in result.partitions) == 1_557_611_200
    assert len(result.partitions[-1].layer_ids) < len(result.partitions[3].layer_ids) + 2
    assert result.partitions[-1].total_memory_mb > 50257 * 1600 * 4 / 2**20


def test_bottlenecks_and_distributions_are_of_the_counted_figures() -> None:
    analysis = GraphAnalyzer(create_gpt_model_graph("gpt-1.5b")).analyze()
    names = (
        analysis.max_memory_layer.name,
        analysis.max_compute_layer.name,
        analysis.max_parameter_layer.name,
    )
    assert names == ("word_embeddings", "lm_head", "word_embeddings")
    assert analysis.parameters.by_type["transformer_block"] == 48 * 30_723_200
    assert round(analysis.compute_gflops.total, 1) == 3506.7


def test_what_cannot_be_is_refused(analyzer: GraphAnalyzer) -> None:
    with pytest.raises(UsageError, match="52 stages for 51 layers"):
        analyzer.partition_graph_balanced(52)
    with pytest.raises(UsageError, match=r"Number of stages \(49\) cannot exceed transformer layers \(48\)"):
        analyzer.partition_graph_balanced(49, strategy="uniform")
    with pytest.raises(UsageError, match="the activations of its layers are unknown"):
        analyzer.partition_graph_balanced(4, strategy="exact-1f1b")
    with pytest.raises(UsageError, match="4 to 2 stages"):
        analyzer.optimize_pipeline_stages(4, 2)


@pytest.mark.parametrize("stages", [1, 4, 8])
def test_what_a_stage_holds_adds_up_by_kind(stages: int) -> None:
    analyzer = GraphAnalyzer(create_gpt_model_graph("gpt-1.5b"), micro_batches=3)
    result = analyzer.partition_graph_balanced(stages)
    held = analyzer.split_memory(result)
    assert tuple(stage.total_bytes for stage in held) == result.training_bytes
    assert [stage.in_flight for stage in held] == [min(stages - number, 3) for number in range(stages)]
    assert all(stage.optimizer_bytes == 6 * stage.weights_bytes for stage in held)


STRATEGIES_ASKED: list[Strategy] = ["uniform", "balanced_memory", "exact"]


@pytest.mark.parametrize("metric", [None, *METRICS])
def test_of_several_strategies_the_one_is_recommended_whose_fullest_stage_has_least(
    counted: GraphAnalyzer, metric: Metric | None
) -> None:
    plan = make_plan(counted, (2, 4), STRATEGIES_ASKED, metric=metric)
    assert (plan.recommended_strategy, plan.recommended_stages) == ("exact", 2)
    alone = make_plan(counted, (2, 4), ["exact"], metric=metric)
    assert plan.recommended == alone.recommended
    assert make_plan(counted, (2,), STRATEGIES_ASKED, rule="legacy").recommended_strategy == "uniform"


def test_a_strategy_that_fits_is_recommended_before_one_that_computes_least(counted: GraphAnalyzer) -> None:
    needs = {
        strategy: max(counted.partition_graph_balanced(2, "compute", strategy).training_bytes or ())
        for strategy in STRATEGIES_ASKED
    }
    capacity = Device(capacity_bytes=needs["exact"] - 1)
    assert needs["uniform"] < needs["exact"]
    plan = make_plan(counted, (2,), STRATEGIES_ASKED, metric="compute", device=capacity)
    assert plan.recommended_strategy == "uniform"


def test_the_usual_metric_is_what_training_holds_and_weights_where_that_is_unknown(
    counted: GraphAnalyzer,
) -> None:
    assert counted.partition_graph_balanced(4) == counted.partition_graph_balanced(4, "training")
    assert counted.optimize_pipeline_stages(2, 4) == counted.optimize_pipeline_stages(
        2, 4, balance_metric="training"
    )
    unknown = GraphAnalyzer(create_gpt_model_graph("gpt-1.5b", figures="legacy"))
    assert unknown.partition_graph_balanced(4) == unknown.partition_graph_balanced(4, "memory")


def test_the_original_s_script_finds_every_name_that_it_uses(analyzer: GraphAnalyzer) -> None:
    graph = create_gpt_model_graph("gpt-1.5b", figures="legacy")
    blocks = graph.get_transformer_nodes()
    assert (len(graph.nodes), len(blocks), graph.nodes[1]) == (51, 48, blocks[0])
    assert graph.get_execution_order() == list(range(51))
    assert [it.layer_type for it in graph.get_layers_by_type("embedding")] == ["embedding"]
    assert graph.get_layer_by_id(51) is None
    totals = (graph.get_total_parameters(), round(graph.get_total_memory_usage(), 2))
    assert totals == (1_635_537_600, 6239.08)
    properties = analyzer.analyze_graph_properties()
    assert properties["basic_stats"]["total_layers"] == 51  # type: ignore[call-overload]
    assert json.loads(json.dumps(properties)) == properties
    strategies = analyzer.compare_partitioning_strategies(4)
    assert list(strategies) == list(STRATEGIES)
    assert json.loads(json.dumps(graph.to_dict())) == json.loads(encode_graph(graph))
    uniform = analyzer.partition_graph_uniform(4)
    assert strategies["uniform"] == uniform.to_dict()
    assert [stage["end_layer"] for stage in uniform.to_dict()["partitions"]] == [12, 24, 36, 50]  # type: ignore[attr-defined]
    report = analyzer.generate_partitioning_report(4)
    assert "Total Parameters: 1,635,537,600" in report
    assert "BALANCED_MEMORY:\n  Balance Score: 0.0983" in report
    assert list(analyzer.compare_partitioning_strategies(51)["balanced_memory"]) == ["error"]
