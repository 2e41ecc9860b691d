"""The time model against published throughputs: table 1 of Narayanan et al., arXiv 2104.04473.

GPTs of 1.7B to 1T parameters on A100 with full recomputation, sequences of 2,048 tokens, 51,200 words.
Micro-batch and pieces of each rank are not known: they were tuned, and so the best of those that can be
stands here. FLOPs are counted as there, the recomputed pass too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from vramscope.analyzers.planning.cluster import parse_short_form
from vramscope.analyzers.planning.theory import FP16, ModelShape, ParallelLayout, TrainingSetup
from vramscope.analyzers.planning.time import TimeAssumptions, count_model_flops, estimate_step

from .measure.tables import format_number, format_table

SEQUENCE = 2048
RECOMPUTED = 4 / 3
"""Passes with recomputation for those without."""


@dataclass(frozen=True)
class PublishedRun:
    """One row of the table."""

    heads: int
    hidden: int
    layers: int
    tensor: int
    pipeline: int
    devices: int
    global_batch: int
    tflops: float
    """Of one device."""


RUNS = (
    PublishedRun(24, 2304, 24, 1, 1, 32, 512, 137),
    PublishedRun(32, 3072, 30, 2, 1, 64, 512, 138),
    PublishedRun(32, 4096, 36, 4, 1, 128, 512, 142),
    PublishedRun(48, 6144, 40, 8, 1, 256, 1024, 135),
    PublishedRun(64, 8192, 48, 8, 2, 512, 1536, 138),
    PublishedRun(80, 10240, 60, 8, 4, 1024, 1792, 140),
    PublishedRun(96, 12288, 80, 8, 8, 1536, 2304, 148),
    PublishedRun(128, 16384, 96, 8, 16, 1920, 2160, 155),
    PublishedRun(128, 20480, 105, 8, 35, 2520, 2520, 163),
    PublishedRun(160, 25600, 128, 8, 64, 3072, 3072, 163),
)


def estimate_tflops(run: PublishedRun) -> float:
    """Return the estimated throughput of one device, of the best micro-batch and pieces."""
    shape = ModelShape(
        layers=run.layers,
        hidden=run.hidden,
        heads=run.heads,
        kv_groups=run.heads,
        head_channels=run.hidden // run.heads,
        ffn=4 * run.hidden,
        vocab=51200,
        learned_positions=SEQUENCE,
        is_tied=True,
        has_linear_bias=True,
        has_qkv_bias=True,
        has_norm_bias=True,
    )
    cluster = parse_short_form(f"{run.devices // 8}x8xa100-80gb")
    assumed = TimeAssumptions(overlaps_gradients=False)
    seconds, setup = min(
        (
            (estimate_step(shape, layout, setup, cluster, assumed).total_s, setup)
            for layout, setup in _list_ways(run)
        ),
        key=lambda entry: entry[0],
    )
    flops = RECOMPUTED * count_model_flops(shape, setup, run.global_batch)
    return flops / seconds / run.devices / 1e12


def _list_ways(run: PublishedRun) -> Iterator[tuple[ParallelLayout, TrainingSetup]]:
    data = run.devices // run.tensor // run.pipeline
    for size in (1, 2, 4, 8):
        often, rest = divmod(run.global_batch, data * size)
        for pieces in (1, 2, 3, 4):
            is_uneven = run.layers % (run.pipeline * pieces) or often % run.pipeline
            if rest or (pieces > 1 and (run.pipeline == 1 or is_uneven)):
                continue
            yield (
                ParallelLayout(tensor=run.tensor, pipeline=run.pipeline, data=data, virtual_stages=pieces),
                TrainingSetup(
                    seq_length=SEQUENCE,
                    micro_batch_size=size,
                    micro_batches=often,
                    numbers=FP16,
                    attention="unfused",
                    has_attention_dropout=True,
                    has_hidden_dropout=True,
                    recompute="full",
                ),
            )


def format_published() -> str:
    """Return a table of the throughputs."""
    rows, errors = [], []
    for run in RUNS:
        ours = estimate_tflops(run)
        errors.append(100 * (ours / run.tflops - 1))
        rows.append(
            (
                f"{run.hidden:,}",
                f"{run.devices:,}",
                f"{run.tensor} x {run.pipeline}",
                format_number(run.tflops, 0),
                format_number(ours, 0),
                f"{errors[-1]:+.1f}",
            )
        )
    head = ("hidden", "devices", "TP x PP", "published TFLOP/s", "estimated", "error %")
    table = format_table("throughput of one A100, arXiv 2104.04473, table 1; nothing fitted", head, rows)
    return f"{table}\nmean absolute error {fmean(abs(error) for error in errors):.1f} %"
