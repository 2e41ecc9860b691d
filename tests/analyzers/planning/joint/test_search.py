"""The joint search against trying everything, and what it promises of memory."""

from itertools import product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.analyzers.planning.cluster import Cluster, Link, parse_short_form
from vramscope.analyzers.planning.cluster.building import make_node
from vramscope.analyzers.planning.cluster.model import find_device
from vramscope.analyzers.planning.joint import JointOptions, JointPlan, plan_jointly
from vramscope.analyzers.planning.joint.evaluation import Evaluator, Pricing
from vramscope.analyzers.planning.joint.space import Candidate, Degrees, SearchSpace
from vramscope.analyzers.planning.theory import (
    FP32,
    ModelShape,
    ParallelLayout,
    TrainingSetup,
    estimate_stages,
)
from vramscope.analyzers.planning.theory.presets import find_preset
from vramscope.analyzers.planning.time import TimeAssumptions, estimate_step
from vramscope.engine.errors import UsageError

SMALL = ModelShape(
    layers=4, hidden=1024, heads=4, kv_groups=4, head_channels=256, ffn=4096, vocab=32000, is_gated=True
)
MEMORY_BYTES = 4 << 30
# A training that a model's file may describe, with all that is not usual.
READ = TrainingSetup(
    seq_length=1024,
    micro_batch_size=1,
    numbers=FP32,
    attention="unfused",
    has_attention_dropout=True,
    has_hidden_dropout=True,
    has_attention_mask=True,
    keeps_stage_whole=True,
    deferred_gradients=10**9,
    is_fp8=True,
)


def make_cluster(memory_bytes: int, devices: int = 4) -> Cluster:
    """Return one node of small devices."""
    model = msgspec.structs.replace(find_device("a100-40gb"), memory_mib=memory_bytes >> 20)
    return Cluster(name="small", nodes=(make_node("node0", devices, model),))


def list_splits(layers: int, stages: int) -> list[tuple[int, ...]]:
    """Return all numbers of layers, at least one each, of so many stages."""
    splits = product(range(1, layers + 1), repeat=stages)
    return [split for split in splits if sum(split) == layers]


def try_everything(cluster: Cluster, options: JointOptions) -> list[float]:
    """Return the shortest step of every choice of degrees, over every split, the shortest first."""
    capacity = int(cluster.devices[0].memory_bytes * options.memory_share)
    best: dict[Degrees, float] = {}
    count = len(cluster.devices)
    for each in SearchSpace(SMALL, count, count, options, "a100").list_candidates():
        layouts: list[ParallelLayout] = [each.layout]
        if each.layout.virtual_stages == 1:
            splits = list_splits(SMALL.layers, each.degrees.pipeline)
            layouts = [msgspec.structs.replace(each.layout, stage_layers=split) for split in splits]
        for layout in layouts:
            if max(rank.peak_bytes for rank in estimate_stages(SMALL, layout, each.setup)) <= capacity:
                step = estimate_step(SMALL, layout, each.setup, cluster).total_s
                best[each.degrees] = min(step, best.get(each.degrees, step))
    return sorted(best.values())


@settings(max_examples=4, deadline=None)
@given(
    mib=st.integers(1200, 4000),
    batch=st.sampled_from((4, 8)),
    zero=st.sampled_from(((0, 1), (1, 3))),
)
def test_the_search_finds_what_trying_everything_finds(mib: int, batch: int, zero: tuple[int, ...]) -> None:
    cluster = make_cluster(mib << 20)
    options = JointOptions(
        global_batch=batch, seq_length=1024, zero_stages=zero, recomputes=("none", "full"), top=3
    )
    expected = try_everything(cluster, options)
    try:
        plan = plan_jointly("small", SMALL, cluster, options)
    except UsageError:
        assert not expected
        return
    found = [each.time.total_s for each in plan.configurations]
    # The split of the fastest slowest stage need not be that of the shortest step to the last thousandth.
    assert found == pytest.approx(expected[:3], rel=2e-3)
    check_memory(plan)
    assert plan.considered == sum(each.count for each in plan.pruned) + len(found)


def test_bounds_are_below_every_step_and_memory_grows_with_the_micro_batch() -> None:
    """What the search leaves out by: neither may ever be wrong, also where devices differ."""
    nodes = (make_node("a", 2, find_device("a100-40gb")), make_node("b", 2, find_device("h100")))
    mixed = Cluster(name="mixed", nodes=nodes, network=Link(bytes_per_s=25e9))
    for cluster, training in ((make_cluster(40 << 30), None), (mixed, None), (make_cluster(40 << 30), READ)):
        pricing = Pricing(SMALL, cluster, TimeAssumptions())
        evaluator = Evaluator(SMALL, cluster, pricing, 1.0)
        peaks: dict[tuple[object, ...], tuple[int, int]] = {}
        options = JointOptions(global_batch=4, seq_length=1024, training=training)
        for each in SearchSpace(SMALL, 4, 2, options).list_candidates():
            assert training is None or each.setup.attention == training.attention
            assert each.setup.deferred_gradients <= each.setup.micro_batches
            found = evaluator.evaluate(each)
            assert found is not None
            assert pricing.bound_step(each) <= found.time.total_s * (1 + 1e-9)
            size = each.setup.micro_batch_size
            if each.layout.virtual_stages == 1 and SMALL.layers % each.degrees.pipeline == 0:
                peak = max(rank.peak_bytes for rank in estimate_stages(SMALL, each.layout, each.setup))
                smaller, before = peaks.get(family(each), (0, 0))
                assert size > smaller
                assert peak >= before
                peaks[family(each)] = (size, peak)


def family(candidate: Candidate) -> tuple[object, ...]:
    """Return what candidates share that differ in their micro-batch alone."""
    setup = candidate.setup
    return candidate.layout, setup.zero_stage, setup.recompute


def check_memory(plan: JointPlan) -> None:
    """Check that no stage of any configuration holds more than its devices may."""
    for configuration in plan.configurations:
        assert configuration.least_headroom_bytes >= 0
        assert sum(len(stage.layers) for stage in configuration.stages) > 0


def test_more_memory_never_makes_the_best_slower() -> None:
    options = JointOptions(global_batch=8, seq_length=2048)
    steps = []
    for mib in (1500, 2000, 3000, 6000, 20000):
        plan = plan_jointly("small", SMALL, make_cluster(mib << 20), options)
        check_memory(plan)
        steps.append(plan.configurations[0].time.total_s)
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[-1]


def test_a_plan_of_a_large_model_keeps_to_its_limits_and_tells_why() -> None:
    cluster = parse_short_form("4x8xh100")
    options = JointOptions(global_batch=256, seq_length=4096, zero_stages=(0, 1), top=4)
    plan = plan_jointly("llama2-70b", find_preset("llama2-70b"), cluster, options)
    check_memory(plan)
    assert [each.time.total_s for each in plan.configurations] == sorted(
        each.time.total_s for each in plan.configurations
    )
    assert plan.considered == sum(each.count for each in plan.pruned) + len(plan.configurations)
    assert "faster than the next" in plan.configurations[0].reasons[0]
    assert all(
        len(stage.devices) * each.layout.pipeline == 32
        for each in plan.configurations
        for stage in each.stages
    )
    times = estimate_step(
        find_preset("llama2-70b"), plan.configurations[0].layout, plan.configurations[0].setup, cluster
    )
    assert times == plan.configurations[0].time


def test_faster_devices_get_more_layers() -> None:
    cluster = Cluster(
        name="mixed",
        nodes=(make_node("a", 4, find_device("a100-40gb")), make_node("b", 4, find_device("h100"))),
        network=Link(bytes_per_s=25e9),
    )
    plan = plan_jointly(
        "llama2-7b",
        find_preset("llama2-7b"),
        cluster,
        JointOptions(global_batch=64, seq_length=2048, zero_stages=(1,)),
    )
    check_memory(plan)
    best = next(each for each in plan.configurations if each.layout.pipeline == 2)
    layers = {cluster.devices[stage.devices[0]].node: len(stage.layers) for stage in best.stages}
    assert layers["b"] > 1.5 * layers["a"]
    assert plan.optimality.startswith("order of devices: exact")


def test_limits_that_nothing_meets_say_what_would() -> None:
    shape = find_preset("llama2-7b")
    options = JointOptions(global_batch=64, seq_length=2048, zero_stages=(0,))
    with pytest.raises(UsageError, match=r"no configuration fits into 13\.5 GiB of each device") as refusal:
        plan_jointly("llama2-7b", shape, parse_short_form("4xt4"), options)
    assert "the least that was found is" in str(refusal.value)
    assert "use devices of" in str(refusal.value)
    with pytest.raises(UsageError, match="no degrees use all 37 devices"):
        plan_jointly(
            "llama2-7b", shape, parse_short_form("37xh100"), JointOptions(global_batch=3, seq_length=2048)
        )
