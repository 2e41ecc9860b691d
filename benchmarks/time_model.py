"""How far the time model is from measured steps: python -m benchmarks.time_model multi.csv single.csv.

The files are vTrain's ground truth (github VIA-Research/vTrain, `data/ground_truth_*.csv`; arXiv
2312.12391): GPTs trained with Megatron-LM on A100 in nodes of 8 with NVLink and 800 Gbit/s of network, full
recomputation, fp16, no flash attention, no overlap. Nothing is fitted to the rows that are judged; further
lines learn an efficiency, the host's time of a launch and a factor from other rows. Next to it stands 6 N
tokens over the peak at one efficiency, which is fitted to the rows that it is judged on.
"""

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from vramscope.analyzers.planning.cluster import Cluster, ClusterDevice, ClusterNode, Link
from vramscope.analyzers.planning.cluster.model import find_link
from vramscope.analyzers.planning.theory import (
    FP16,
    ModelShape,
    ParallelLayout,
    TrainingSetup,
    count_parameters,
)
from vramscope.analyzers.planning.time import TimeAssumptions, TimedRun, estimate_step, fit_runs

from .measure.tables import format_number, format_table
from .time_model_published import format_published

DEVICES_PER_NODE = 8
A100_FLOPS_PER_S = 312e12
VOCABULARY = 50257
EVERY = 10
"""Runs that something is learnt from: each tenth."""
NETWORK = Link(bytes_per_s=100e9 / DEVICES_PER_NODE, latency_s=find_link("ib-hdr").latency_s)
"""Of one device: four ports of 200 Gbit/s for eight."""
ASSUMED = TimeAssumptions(overlaps_gradients=False)


@dataclass(frozen=True)
class Errors:
    """How far the estimates of some rows are off."""

    what: str
    rows: int
    mean_percent: float
    median_percent: float
    """Signed."""
    worst_percent: float
    """Signed."""
    rank_correlation: float


def read_rows(path: Path) -> list[TimedRun]:
    """Return the runs of a file of vTrain."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [read_row(row) for row in csv.DictReader(file)]


def read_row(row: dict[str, str]) -> TimedRun:
    """Return one run."""
    hidden, heads = int(row["hidden size"]), int(row["attention heads"])
    data, micro_batch = int(row["data parallelism"]), int(row["micro batch"])
    shape = ModelShape(
        layers=int(row["# layers"]),
        hidden=hidden,
        heads=heads,
        kv_groups=heads,
        head_channels=hidden // heads,
        ffn=4 * hidden,
        vocab=VOCABULARY,
        vocab_multiple=128,
        learned_positions=int(row["sequence length"]),
        is_tied=True,
        has_linear_bias=True,
        has_qkv_bias=True,
        has_norm_bias=True,
    )
    layout = ParallelLayout(
        tensor=int(row["tensor parallelism"]), pipeline=int(row["pipeline parallelism"]), data=data
    )
    setup = TrainingSetup(
        seq_length=int(row["sequence length"]),
        micro_batch_size=micro_batch,
        micro_batches=max(1, int(row["global batch"]) // (data * micro_batch)),
        numbers=FP16,
        attention="unfused",
        has_attention_dropout=True,
        has_hidden_dropout=True,
        recompute="full",
        gpu="a100",
    )
    return TimedRun(shape=shape, layout=layout, setup=setup, step_s=float(row["iteration time (ms)"]) / 1000)


def make_cluster(devices: int) -> Cluster:
    """Return the nodes of vTrain's paper: 300 GB/s of NVLink one way, four times 200 Gbit/s a node."""
    count = max(1, devices // DEVICES_PER_NODE)
    nodes = tuple(_make_node(f"n{number}", min(devices, DEVICES_PER_NODE)) for number in range(count))
    return Cluster(name="A100", nodes=nodes, network=NETWORK)


def _make_node(name: str, count: int) -> ClusterNode:
    devices = tuple(
        ClusterDevice(
            node=name,
            local_index=index,
            kind="A100 80GB",
            memory_bytes=80 << 30,
            flops_per_s=A100_FLOPS_PER_S,
            memory_bytes_per_s=2.039e12,
        )
        for index in range(count)
    )
    return ClusterNode(name=name, devices=devices, link=find_link("nvlink3"))


CLUSTERS = {count: make_cluster(count) for count in (2, 4, 8, 64, 256, 512)}


def estimate(run: TimedRun, assumptions: TimeAssumptions = ASSUMED) -> float:
    """Return the estimated seconds of a run's step."""
    cluster = CLUSTERS[run.layout.world_size]
    return estimate_step(run.shape, run.layout, run.setup, cluster, assumptions).total_s


def estimate_plainly(run: TimedRun) -> float:
    """Return 6 N tokens over the peak of all devices."""
    setup, layout = run.setup, run.layout
    sequences = setup.micro_batch_size * setup.micro_batches * layout.data
    flops = 6 * count_parameters(run.shape) * sequences * setup.seq_length
    return flops / (A100_FLOPS_PER_S * layout.world_size)


def judge(what: str, runs: Sequence[TimedRun], estimates: Sequence[float]) -> Errors:
    """Return the errors of some estimates."""
    signed = [100 * (each / run.step_s - 1) for each, run in zip(estimates, runs, strict=True)]
    return Errors(
        what,
        len(runs),
        fmean(abs(error) for error in signed),
        median(signed),
        max(signed, key=abs),
        correlate_ranks(estimates, [run.step_s for run in runs]),
    )


def correlate_ranks(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's coefficient; equal values share the mean of their ranks."""
    ranks = [_rank(first), _rank(second)]
    means = [fmean(each) for each in ranks]
    moved = [[value - mean for value in each] for each, mean in zip(ranks, means, strict=True)]
    product = sum(a * b for a, b in zip(*moved, strict=True))
    sizes = [sum(value * value for value in each) for each in moved]
    return float(product / (sizes[0] * sizes[1]) ** 0.5) if all(sizes) else 1.0


def _rank(values: Sequence[float]) -> list[float]:
    positions = defaultdict(list)
    for position, value in enumerate(sorted(values)):
        positions[value].append(position)
    return [fmean(positions[value]) for value in values]


def judge_files(multi: Sequence[TimedRun], single: Sequence[TimedRun]) -> list[Errors]:
    """Return the errors on runs of many nodes and of one, without and with what other runs teach."""
    errors = []
    for what, runs in (("many nodes", multi), ("one node", single)):
        errors.append(judge(f"{what}: nothing fitted", runs, [estimate(run) for run in runs]))
        plain = [estimate_plainly(run) for run in runs]
        factor = median(run.step_s / each for run, each in zip(runs, plain, strict=True))
        fitted = [factor * each for each in plain]
        errors.append(judge(f"{what}: 6 N tokens, its efficiency fitted to them", runs, fitted))
    small, large = (
        [run for run in single if run.shape.hidden == hidden]
        for hidden in sorted({run.shape.hidden for run in single})
    )
    for what, learnt, runs in (
        ("one node, larger model: learnt from the smaller", small, large),
        ("one node, smaller model: learnt from the larger", large, small),
        ("many nodes: learnt from one node", single, multi),
    ):
        assumptions = fit_runs(learnt[::EVERY], CLUSTERS[512], ASSUMED, what)
        shown = (
            f"{what} (efficiency {assumptions.product_efficiency:.2f}, "
            f"{1e6 * assumptions.launch_s:.0f} us a launch, factor {assumptions.factor:.2f})"
        )
        errors.append(judge(shown, runs, [estimate(run, assumptions) for run in runs]))
    return errors


def format_errors(errors: Sequence[Errors]) -> str:
    """Return errors as a table."""
    head = ("estimates", "rows", "mean %", "median %", "worst %", "rank correlation")
    rows = [
        (
            each.what,
            f"{each.rows:,}",
            format_number(each.mean_percent),
            format_number(each.median_percent),
            format_number(each.worst_percent),
            format_number(each.rank_correlation, 3),
        )
        for each in errors
    ]
    return format_table("time of a step, estimated, against vTrain's measurements on A100", head, rows)


GROUPS: dict[str, Callable[[TimedRun], int]] = {
    "hidden": lambda run: run.shape.hidden,
    "micro-batch": lambda run: run.setup.micro_batch_size,
    "TP": lambda run: run.layout.tensor,
    "PP": lambda run: run.layout.pipeline,
}


def format_groups(name: str, runs: Sequence[TimedRun]) -> str:
    """Return the median signed error of the rows of each size and degree, nothing fitted."""
    errors = {id(run): 100 * (estimate(run) / run.step_s - 1) for run in runs}
    lines = []
    for what, get in GROUPS.items():
        groups = defaultdict(list)
        for run in runs:
            groups[get(run)].append(errors[id(run)])
        parts = (f"{value}: {median(group):+.0f} ({len(group)})" for value, group in sorted(groups.items()))
        lines.append(f"  {what:12} {'  '.join(parts)}")
    return "\n".join([f"{name}: median error in percent (rows), nothing fitted", *lines])


def format_choices(runs: Sequence[TimedRun]) -> str:
    """Return what it would cost to train each model in the way that is estimated to be the fastest."""
    models = defaultdict(list)
    for run in runs:
        models[run.shape.hidden].append(run)
    lines = ["the fastest by estimate against the fastest measured, of all that were measured:"]
    for hidden, group in sorted(models.items()):
        chosen = min(group, key=estimate)
        best, median_s = min(run.step_s for run in group), median(run.step_s for run in group)
        lines.append(
            f"  hidden {hidden:6,}: {len(group):3} ways, chosen {chosen.step_s:.2f} s, best {best:.2f} s "
            f"({100 * (chosen.step_s / best - 1):+.1f} %), median {median_s:.2f} s"
        )
    return "\n".join(lines)


def main() -> int:
    """Judge the time model; return 2 where a file is missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.time_model", description=__doc__)
    parser.add_argument("multi", type=Path, help="ground_truth_multi.csv of vTrain")
    parser.add_argument("single", type=Path, help="ground_truth_single.csv of vTrain")
    options = parser.parse_args()
    for path in (options.multi, options.single):
        if not path.is_file():
            print(f"benchmarks: {path}: no such file", file=sys.stderr)
            return 2
    multi, single = read_rows(options.multi), read_rows(options.single)
    print(format_errors(judge_files(multi, single)), "\n", flush=True)
    print(format_groups("many nodes", multi))
    print(format_groups("one node", single), "\n")
    print(format_choices(multi), "\n")
    print(format_published())
    return 0


if __name__ == "__main__":
    sys.exit(main())
