"""How far the estimate of a step is from what a card showed: python -m benchmarks.card_estimate CSV.

The file has rows of single-GPU training of timm models: `timm_model`, `batch_size` and
`max_gpu_memory_mib_measured`, as GPUMemNet published them (A100 40 GB, seen from outside the process). Each
model is traced without a GPU. What such a card shows beyond the tensors is learnt from half of the model
families, as one constant, and judged on the other half, and the other way round. It needs timm, which the
project does not.

Rows that end at the card, and rows that measured less than their tensors take (the run died early), do not
say what is needed and are left out; how many they are is printed.

Every row is also asked whether it fits into cards of common sizes, with the usual range of what no tensor
holds. A row fits where it measured no more than the card has. A row that measured more counts as
one that does not fit, though on a smaller card PyTorch may have kept less in its cache.
`--output FILE` writes these answers and every miss as a table in Markdown.
"""

import argparse
import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median

from vramscope.analyzers.planning.steps.outside import WORKSPACES_NAME
from vramscope.engine.errors import VramscopeError
from vramscope.engine.units import GIB, MIB
from vramscope.estimates import StepRequest, Tracing, judge_traces, trace_steps

from .measure.tables import format_table

CARD_MIB = 38_900
"""Rows above it end at the card of 40 GB."""
LEAST_SHARE = 0.9
"""Of the reserved bytes; a row that measured less has not made a whole step."""
STEP = "benchmarks.card_estimate_step:make_step"
CARDS_GIB = (4, 6, 8, 12, 16, 24, 32)
"""Cards that each row is asked about; smaller than the one that it ran on."""


@dataclass(frozen=True)
class Row:
    """One run: what its card showed, and what is estimated, in MiB."""

    model: str
    batch: int
    measured: float
    reserved: float
    likely: float
    """With what the workspaces of convolutions are likely to add."""
    card_least: float
    card_likely: float
    card_most: float
    answers: tuple[bool | None, ...]
    """For each of `CARDS_GIB` whether it fits; None where the range leaves it open."""

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
    learnt = [row.measured - row.likely for row in rows if row.half != half]
    constant = median(learnt)
    judged = [row for row in rows if row.half == half]
    errors = [abs(row.likely + constant - row.measured) / row.measured for row in judged]
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
    os.environ["VRAMSCOPE_BENCH_MODEL"] = model
    request = StepRequest(factory=STEP, batch_size=batch)
    try:
        return describe_row(model, batch, measured, trace_steps(request))
    except VramscopeError as error:
        return str(error).splitlines()[-1]


def describe_row(model: str, batch: int, measured: float, traced: Tracing) -> Row:
    """Return what a trace says of a row."""
    request = StepRequest(factory=STEP, batch_size=batch)
    found = judge_traces(traced, request, None)
    workspaces = next(part for part in found.outside if part.name == WORKSPACES_NAME)
    checks = [judge_traces(traced, request, card * GIB).capacity for card in CARDS_GIB]
    return Row(
        model=model,
        batch=batch,
        measured=measured,
        reserved=found.reserved_peak_bytes / MIB,
        likely=(found.reserved_peak_bytes + workspaces.likely_bytes) / MIB,
        card_least=found.card_least_bytes / MIB,
        card_likely=found.card_likely_bytes / MIB,
        card_most=found.card_most_bytes / MIB,
        answers=tuple(None if check is None else check.does_fit for check in checks),
    )


def count_answers(rows: Sequence[Row]) -> list[list[str]]:
    """Return a line for each card: right and wrong answers, and how often there was none."""
    lines = []
    for place, card in enumerate(CARDS_GIB):
        judged = [(row.answers[place], row.measured <= card * GIB / MIB) for row in rows]
        counts = [judged.count(pair) for pair in ((True, True), (True, False), (False, False), (False, True))]
        is_open = sum(answer is None for answer, _ in judged)
        lines.append([f"{card} GiB", *(str(count) for count in (*counts, is_open))])
    return lines


def list_misses(rows: Sequence[Row]) -> list[list[str]]:
    """Return a line for each row outside its range, or with a wrong answer, the worst first."""
    lines = []
    for row in sorted(rows, key=lambda it: it.card_most / it.measured):
        wrong = [
            f"{'fits' if answer else 'does not fit'} into {card} GiB"
            for card, answer in zip(CARDS_GIB, row.answers, strict=True)
            if answer is not None and answer != (row.measured <= card * GIB / MIB)
        ]
        if row.card_least <= row.measured <= row.card_most and not wrong:
            continue
        where = (
            "above" if row.measured > row.card_most else "below" if row.measured < row.card_least else "in"
        )
        lines.append(
            [
                f"{row.model}, batch {row.batch}",
                f"{row.measured:,.0f}",
                f"{row.card_least:,.0f}-{row.card_most:,.0f}",
                where,
                f"{(row.card_likely - row.measured) / row.measured:+.1%}",
                "; ".join(wrong) or "none",
            ]
        )
    return lines


ANSWERS = ["card", "fits: right", "wrong", "does not fit: right", "wrong", "cannot say"]
MISSES = ["run", "measured MiB", "estimated MiB", "measured is", "likely size", "wrong answer"]


def write_tables(rows: Sequence[Row], path: Path) -> None:
    """Write answers and misses as Markdown."""
    text = ""
    for head, lines in ((ANSWERS, count_answers(rows)), (MISSES, list_misses(rows))):
        for cells in (head, ["---"] * len(head), *lines):
            text += f"| {' | '.join(cells)} |\n"
        text += "\n"
    path.write_text(text.rstrip() + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--models", type=int, help="of each family at most so many")
    parser.add_argument("--batches", type=lambda text: {int(word) for word in text.split(",")}, default=None)
    parser.add_argument("--output", type=Path, help="file for answers and misses, in Markdown")
    parser.add_argument("--tries", action="store_true", help="with torch.backends.cudnn.benchmark on")
    options = parser.parse_args()
    os.environ["VRAMSCOPE_BENCH_TRIES"] = "1" if options.tries else ""
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
    print(format_table("Does it fit?", ANSWERS, count_answers(whole)))
    print(format_table("Misses", MISSES, list_misses(whole)))
    if options.output is not None:
        write_tables(whole, options.output)
    print(f"{len(rows) - len(whole)} of {len(rows)} rows left out: at the card, or died early")
    for model, why in refused.items():
        print(f"{model}: {why}")


if __name__ == "__main__":
    main()
