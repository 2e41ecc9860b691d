"""The time model against formulas worked out by hand or published."""

import msgspec
import pytest

from vramscope.analyzers.planning.cluster import CollectiveTable, parse_short_form
from vramscope.analyzers.planning.theory import ModelShape, ParallelLayout, TrainingSetup
from vramscope.analyzers.planning.theory.presets import find_preset
from vramscope.analyzers.planning.time import (
    DeviceSpeed,
    StageGroups,
    StageTime,
    TimeAssumptions,
    TimedRun,
    add_up_step,
    count_model_flops,
    estimate_step,
    find_groups,
    fit_layer_profile,
    fit_runs,
    place_stages,
)
from vramscope.analyzers.planning.time.estimate import Parameters, time_gradients
from vramscope.analyzers.planning.time.groups import Ring
from vramscope.analyzers.planning.time.layer_time import KernelTimes, LayerTime, PassTime, Product

A100 = DeviceSpeed(flops_per_s=312e12, memory_bytes_per_s=2.039e12, multiprocessors=108)
RING = Ring(ranks=4, bytes_per_s=100e9, phase_latency_s=0.0)
SETUP = TrainingSetup(seq_length=2048, micro_batch_size=1, micro_batches=8)


def make_stage(seconds: float, sent: float = 0.0) -> StageTime:
    """Return a stage that takes so long for a micro-batch."""
    work = LayerTime(PassTime(seconds / 3), PassTime(2 * seconds / 3, sent))
    return StageTime(work, 0.01, 0.5, 0.25)


def test_a_ring_moves_the_published_shares() -> None:
    assert RING.time_all_reduce(1e9) == pytest.approx(2 * 3 / 4 * 1e9 / 100e9)
    assert RING.time_phase(1e9) == pytest.approx(3 / 4 * 1e9 / 100e9)


def test_products_pay_for_flops_for_bytes_and_for_idle_multiprocessors() -> None:
    kernels = KernelTimes(A100, TimeAssumptions(product_efficiency=0.5, bandwidth_share=1.0))
    even = Product(128 * 12, 128 * 9, 4096)
    assert kernels.time_product(even) == pytest.approx(even.flops / 156e12)
    one_tile_more = Product(128 * 109, 128, 4096)
    assert kernels.count_busy_share(one_tile_more) == pytest.approx(109 / 216)
    thin = Product(1536, 1152, 8)
    assert kernels.time_product(thin) == pytest.approx((1536 * 8 + 8 * 1152 + 1536 * 1152) * 2 / 2.039e12)


def test_model_flops_are_those_of_the_megatron_paper() -> None:
    """Narayanan et al., arXiv 2104.04473, section 5.1: 96 B s l h^2 (...), a quarter of it recomputed."""
    layers, hidden, vocab, batch, seq = 96, 12288, 51200, 1536, 2048
    shape = ModelShape(
        layers=layers,
        hidden=hidden,
        heads=96,
        kv_groups=96,
        head_channels=128,
        ffn=4 * hidden,
        vocab=vocab,
    )
    setup = TrainingSetup(seq_length=seq, micro_batch_size=1, attention="unfused")
    brackets = 1 + seq / (6 * hidden) + vocab / (12 * layers * hidden)
    expected = 72 * batch * seq * layers * hidden**2 * brackets
    assert count_model_flops(shape, setup, batch) == pytest.approx(expected, rel=1e-9)


def test_pipelines_wait_as_published_and_uneven_ones_for_their_slowest() -> None:
    layout = ParallelLayout(pipeline=4)
    even = add_up_step([make_stage(1.0)] * 4, layout, SETUP)
    assert (even.compute_s, even.bubble_s) == pytest.approx((8.0, 3.0))
    assert even.pipeline_s == pytest.approx(2 * (8 + 3) * 0.01)
    assert (even.data_s, even.optimizer_s) == (0.5, 0.25)
    pieces = add_up_step([make_stage(1.0)] * 4, ParallelLayout(pipeline=4, virtual_stages=2), SETUP)
    assert pieces.bubble_s == pytest.approx(1.5)
    uneven = add_up_step([make_stage(1.0), make_stage(2.0, 0.5), make_stage(1.0)], layout, SETUP)
    assert (uneven.compute_s, uneven.tensor_s, uneven.bubble_s) == pytest.approx((16.0, 4.0, 2.0))


@pytest.mark.parametrize(("zero", "factor"), [(0, 2 * 4), (1, 4 + 2), (2, 8 * 4 + 2), (3, 8 * (4 + 2 * 2))])
def test_zero_sends_what_its_paper_says(zero: int, factor: int) -> None:
    """Bytes a parameter: gradients in fp32, weights gathered in 16 bits, 8 micro-batches."""
    setup = TrainingSetup(seq_length=2048, micro_batch_size=1, micro_batches=8, zero_stage=zero)
    plain = TimeAssumptions(overlaps_gradients=False)
    seconds = time_gradients(Parameters(1_000_000), setup, StageGroups(data=RING), plain, 1.0)
    assert seconds == pytest.approx(factor * 1_000_000 * 3 / 4 / 100e9)
    hidden = time_gradients(Parameters(1_000_000), setup, StageGroups(data=RING), TimeAssumptions(), 1.0)
    assert hidden == pytest.approx(0.13 * seconds)


def test_rings_across_nodes_have_a_share_of_the_network_for_each_member_on_a_node() -> None:
    cluster = parse_short_form("2x8xa100-80gb")
    plain = TimeAssumptions(link_share=1.0)
    layout = ParallelLayout(tensor=4, data=4)
    (groups,) = find_groups(cluster, layout, place_stages(layout), plain)
    assert groups.tensor.bytes_per_s == pytest.approx(300e9)
    assert groups.data.bytes_per_s == pytest.approx(2 * 25e9)
    table = CollectiveTable(
        allreduce_bytes_per_s={(4, True): 7e9},
        point_to_point_bytes_per_s={},
        allreduce_s={4: ((7_000_000, 3e-3),)},
    )
    measured = msgspec.structs.replace(cluster, measured=table)
    (groups,) = find_groups(measured, layout, place_stages(layout), plain)
    assert groups.tensor.bytes_per_s == 7e9
    assert groups.tensor.time_all_reduce(7_000_000) == pytest.approx(3e-3)


def test_recomputation_adds_one_forward_pass_with_its_collectives() -> None:
    cluster, shape = parse_short_form("8xa100-80gb"), find_preset("gpt3-175b")
    layout = ParallelLayout(tensor=8)
    times = {}
    for recompute in ("none", "full"):
        setup = TrainingSetup(seq_length=2048, micro_batch_size=1, attention="unfused", recompute=recompute)
        times[recompute] = estimate_step(shape, layout, setup, cluster)
    assert times["full"].tensor_s / times["none"].tensor_s == pytest.approx(1.5, rel=0.01)
    assert times["full"].compute_s / times["none"].compute_s == pytest.approx(4 / 3, rel=0.03)


def test_calibration_finds_the_efficiency_and_factor_that_made_the_runs() -> None:
    cluster, shape = parse_short_form("8xa100-80gb"), find_preset("llama2-7b")
    truth = TimeAssumptions(product_efficiency=0.55, factor=1.2)
    runs = [
        TimedRun(
            shape=shape,
            layout=layout,
            setup=SETUP,
            step_s=estimate_step(shape, layout, SETUP, cluster, truth).total_s,
        )
        for layout in (ParallelLayout(tensor=8), ParallelLayout(data=8), ParallelLayout(pipeline=8))
    ]
    learnt = fit_runs(runs, cluster, TimeAssumptions(), "runs.csv")
    assert (learnt.product_efficiency, learnt.factor) == pytest.approx((0.55, 1.2))
    assert learnt.calibration == "runs.csv: 3 measured steps"
    single = fit_runs(runs[:1], cluster, TimeAssumptions(product_efficiency=0.55), "runs.csv")
    assert single.factor == pytest.approx(1.2)


def test_a_profiled_layer_gives_the_efficiency() -> None:
    setup = TrainingSetup(seq_length=2048, micro_batch_size=12)
    learnt = fit_layer_profile(
        12 * 3.918e-3, find_preset("llama2-7b"), setup, A100, TimeAssumptions(), "profile"
    )
    assert learnt.product_efficiency == pytest.approx(0.77, abs=0.01)
