"""How far the estimate of a step is from what a card showed: python -m benchmarks.card_estimate CSV.

The file has rows of single-GPU training of timm models: `timm_model`, `batch_size` and
`max_gpu_memory_mib_measured`, as GPUMemNet published them (A100 40 GB, seen from outside the process). Each
model is traced without a GPU. What such a card shows beyond the tensors is learnt from half of the model
families, as one constant, and judged on the other half, and the other way round. It needs timm, which the
project does not.

Rows that end at the card, and rows that measured less than their tensors take (the run died early), do not
say what is needed and are left out; how many they are is printed.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median

from vramscope.engine.units import MIB

from .measure.tables import format_table

CARD_MIB = 38_900
"""Rows above it end at the card of 40 GB."""
LEAST_SHARE = 0.9
"""Of the reserved bytes; a row that measured less has not made a whole step."""
STEP = "benchmarks.card_estimate_step:make_step"


@dataclass(frozen=True)
class Row:
    """One run: what its card showed, and what is estimated, in MiB."""

    model: str
    batch: int
    measured: float
    reserved: float
    card_most: float

    @property
    def half(self) -> int:
        """0 or 1, by the model's family."""
        return int(sha256(self.model.partition("_")[0].encode()).hexdigest(), 16) % 2

    @property
    def is_whole(self) -> bool:
        """Whether the run made whole steps on a card with room."""
        return self.measured < CARD_MIB and self.measured > LEAST_SHARE * self.reserved


@dataclass(frozen=True)
class Half:
    """Errors of the rows of one half, with the constant of the other."""

    rows: int
    constant_mib: float
    median_error: float
    mean_error: float
    above_most: float
    """Share of rows that measured more than the upper end."""


def judge(rows: Sequence[Row], half: int) -> Half:
    """Return the errors of one half of the families."""
    learnt = [row.measured - row.reserved for row in rows if row.half != half]
    constant = median(learnt)
    judged = [row for row in rows if row.half == half]
    errors = [abs(row.reserved + constant - row.measured) / row.measured for row in judged]
    above = sum(row.measured > row.card_most for row in judged)
    return Half(len(judged), constant, median(errors), sum(errors) / len(errors), above / len(judged))


def read_rows(path: Path, most: int | None) -> list[tuple[str, int, float]]:
    """Return model, batch size and measured MiB of a file, of each family at most so many models."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [
            (row["timm_model"], int(row["batch_size"]), float(row["max_gpu_memory_mib_measured"]))
            for row in csv.DictReader(file)
        ]
    if most is None:
        return rows
    families: dict[str, dict[str, None]] = {}
    for model, _, _ in rows:
        models = families.setdefault(model.partition("_")[0], {})
        if len(models) < most:
            models[model] = None
    chosen = {model for models in families.values() for model in models}
    return [row for row in rows if row[0] in chosen]


def estimate_row(model: str, batch: int, measured: float) -> Row | str:
    """Return a row with its estimate, or why there is none."""
    words = ("estimate", "--factory", STEP, "--batch-size", str(batch), "--json")
    ended = subprocess.run(
        [sys.executable, "-m", "vramscope", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "VRAMSCOPE_BENCH_MODEL": model},
    )
    if ended.returncode:
        return (ended.stderr.strip().splitlines() or ["no message"])[-1]
    found = json.loads(ended.stdout)
    return Row(model, batch, measured, found["reserved_peak_bytes"] / MIB, found["card_most_bytes"] / MIB)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--models", type=int, help="of each family at most so many")
    parser.add_argument("--batches", type=lambda text: {int(word) for word in text.split(",")}, default=None)
    options = parser.parse_args()
    rows: list[Row] = []
    refused: dict[str, str] = {}
    for model, batch, measured in read_rows(options.file, options.models):
        if options.batches and batch not in options.batches:
            continue
        found = estimate_row(model, batch, measured)
        if isinstance(found, str):
            refused[model] = found
        else:
            rows.append(found)
    whole = [row for row in rows if row.is_whole]
    halves = [judge(whole, half) for half in (0, 1)]
    lines = [
        [
            str(number + 1),
            str(each.rows),
            f"{each.constant_mib:,.0f}",
            f"{each.median_error:.1%}",
            f"{each.mean_error:.1%}",
            f"{each.above_most:.1%}",
        ]
        for number, each in enumerate(halves)
    ]
    head = ["half", "rows judged", "constant MiB", "median error", "mean error", "above the upper end"]
    print(format_table("Families not learnt from", head, lines))
    print(f"{len(rows) - len(whole)} of {len(rows)} rows left out: at the card, or died early")
    for model, why in refused.items():
        print(f"{model}: {why}")


if __name__ == "__main__":
    main()
