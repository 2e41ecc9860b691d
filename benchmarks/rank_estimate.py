"""One rank of many: what `vramscope estimate --factory … --ranks N --rank R` says next to real ranks.

python -m benchmarks.rank_estimate [TRAINING...] [--ranks N...] [--write]

Real ranks are processes that torchrun starts under `vramscope run --simulate`; gloo moves their tensors. Each
makes some steps of each training, and every rank's peaks of allocated and reserved bytes are compared with
those of an estimate of this rank, which starts no other process. Exit code 1: some differ.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.analyzers.planning.steps import trainings
from tests.analyzers.planning.steps.tracing import WarmTracer
from vramscope import estimates
from vramscope.estimates import StepRequest, judge_traces, trace_steps

from .measure.tables import format_markdown, format_table, replace_table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "estimate-factory.md"
TRAININGS = {
    "replicated": "DDP",
    "sharded": "FSDP2",
    "sharded_checkpointed": "FSDP2 with activation checkpointing",
    "split": "tensor and sequence parallelism (DTensor)",
    "staged": "pipeline, 1F1B",
    "pipelined": "pipeline, interleaved 1F1B",
    "routed": "experts (`all_to_all`)",
    "overlapping": "`async_op=True`, waited for later",
}
RANKS = (2, 4, 8)
Peaks = tuple[int, int]


@dataclass(frozen=True)
class Comparison:
    """Allocated and reserved bytes at the peak of one rank, alone and in each step among the others."""

    training: str
    ranks: int
    rank: int
    estimated: Peaks
    measured: tuple[Peaks, ...]

    @property
    def differences(self) -> list[Peaks]:
        """Of the steps that need something else."""
        allocated, reserved = self.estimated
        found = [(it[0] - allocated, it[1] - reserved) for it in self.measured]
        return [it for it in found if any(it)]


def measure(names: Sequence[str], ranks: int) -> list[dict[str, list[Peaks]]]:
    """Return the peaks of real ranks, by training."""
    with tempfile.TemporaryDirectory() as folder:
        device = ("--simulate", "1GiB", "--device-count", str(ranks))
        launcher = ("-m", "torch.distributed.run", "--nproc-per-node", str(ranks))
        words = ("-m", "vramscope", "run", *device, "--", sys.executable, *launcher)
        subprocess.run(
            [sys.executable, *words, "-m", "benchmarks.rank_estimate", "--as-rank", folder, *names],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(ranks)]


def compare(names: Sequence[str], ranks: int) -> Iterator[Comparison]:
    real = measure(names, ranks)
    for name in names:
        for rank, peaks in enumerate(real):
            request = StepRequest(factory=f"trainings:{name}", ranks=ranks, rank=rank)
            estimate = judge_traces(trace_steps(request), request, None)
            estimated = estimate.allocated_peak_bytes, estimate.reserved_peak_bytes
            yield Comparison(name, ranks, rank, estimated, tuple((it[0], it[1]) for it in peaks[name]))


def tabulate(found: Sequence[Comparison]) -> list[list[str]]:
    """Return a row for each training and number of ranks."""
    rows = []
    for name, ranks in dict.fromkeys((it.training, it.ranks) for it in found):
        of_these = [it for it in found if (it.training, it.ranks) == (name, ranks)]
        equal = sum(not it.differences for it in of_these)
        farthest = max((max(map(abs, it)) for of in of_these for it in of.differences), default=0)
        spans = [format_span([it.estimated[place] for it in of_these]) for place in range(2)]
        rows.append([TRAININGS[name], str(ranks), *spans, f"{equal} of {len(of_these)}", f"{farthest:,}"])
    return rows


def format_span(sizes: Sequence[int]) -> str:
    least, most = min(sizes), max(sizes)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


HEAD = (
    "training",
    "ranks",
    "allocated bytes",
    "reserved bytes",
    "ranks equal in every step",
    "farthest, bytes",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trainings", nargs="*", metavar="TRAINING", choices=[*TRAININGS, []])
    parser.add_argument("--ranks", nargs="+", type=int, default=RANKS)
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.name}")
    parser.add_argument("--as-rank", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = tuple(options.trainings) or tuple(TRAININGS)
    if options.as_rank is not None:
        peaks = trainings.measure(names)
        (options.as_rank / f"{os.environ['RANK']}.json").write_text(json.dumps(peaks))
        return
    with tempfile.TemporaryDirectory() as folder:
        # Each trace in a fork of a process that has imported torch once.
        estimates._call = WarmTracer(Path(folder))  # type: ignore[assignment]
        found = [it for ranks in options.ranks for it in compare(names, ranks)]
    for it in found:
        for difference in it.differences:
            print(f"{it.training}, rank {it.rank} of {it.ranks}: {difference} bytes")
    rows = tabulate(found)
    print(format_table("One rank of many, next to real ranks", HEAD, rows))
    if options.write:
        table = format_markdown(HEAD, rows)
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(replace_table(page, "python -m benchmarks.rank_estimate", table), encoding="utf-8")
    sys.exit(any(it.differences for it in found))


if __name__ == "__main__":
    main()
