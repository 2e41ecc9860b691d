"""The estimate of servers next to what they printed at their start: python -m benchmarks.serving_estimate.

Weights: of one rank. Tokens: in the cache that the server had, so that only its layout is judged. Division:
tokens from the memory of the device alone, with vLLM's default batch; its constants were read from some of
these starts (`analyzers/planning/serving/estimate.py`), so that column is no test of other versions.
"""

import sys
from collections import Counter
from statistics import median
from typing import NamedTuple

from vramscope.analyzers.planning.serving import (
    PRECISIONS,
    ServingSetup,
    estimate_serving,
    read_served_model,
)
from vramscope.analyzers.planning.serving.estimate import count_room
from vramscope.engine.units import GIB

from .measure.tables import format_table
from .serving_logs import START_UPS, StartUp

WEIGHTS_TARGET = 0.01
TOKENS_TARGET = 0.02


class Comparison(NamedTuple):
    """Relative errors of one start; None where it has no such number."""

    start: StartUp
    weights: float | None
    tokens: float | None
    concurrency: float | None
    division: float | None


def compare(start: StartUp) -> Comparison:
    precision = None if start.precision is None else PRECISIONS[start.precision]
    model = read_served_model(start.config, precision)
    setup = ServingSetup(
        tensor=start.tensor,
        sequence=start.sequence,
        cache_bytes=start.cache_bytes,
        batched_tokens=start.batched,
        sequences=1024,
        utilization=start.utilization,
    )
    capacity = None if start.capacity_gib is None else int(start.capacity_gib * GIB)
    report = estimate_serving(model, setup, name=start.name, capacity_bytes=capacity)
    tokens = None
    concurrency = None
    if start.pool_gib is not None and start.tokens is not None:
        room = count_room(model, setup, Counter(model.caches), round(start.pool_gib * GIB))
        tokens = room.tokens / start.tokens - 1
        concurrency = None if start.concurrency is None else room.sequences / start.concurrency - 1
    weights = start.weights_gib
    divided = report.pool is not None and start.tokens is not None
    return Comparison(
        start,
        None if weights is None else report.stages[0].weights_bytes / (weights * GIB) - 1,
        tokens,
        concurrency,
        report.pool.tokens.likely / start.tokens - 1 if divided and report.pool and start.tokens else None,
    )


def main() -> int:
    comparisons = [compare(start) for start in START_UPS]
    head = ["server", "TP", "weights", "tokens", "sequences", "division", "source"]
    rows = [
        [
            it.start.name,
            str(it.start.tensor),
            *(_show(error) for error in (it.weights, it.tokens, it.concurrency, it.division)),
            it.start.source.split(",")[0],
        ]
        for it in comparisons
    ]
    print(format_table("Relative error of the estimate of a server", head, rows))
    for name, target in (
        ("weights", WEIGHTS_TARGET),
        ("tokens", TOKENS_TARGET),
        ("concurrency", TOKENS_TARGET),
        ("division", TOKENS_TARGET),
    ):
        errors = [abs(error) for it in comparisons if (error := getattr(it, name)) is not None]
        within = sum(error <= target for error in errors)
        print(
            f"{name}: {within} of {len(errors)} within {target:.0%}; median {median(errors):.2%}, "
            f"worst {max(errors):.2%}"
        )
    return 0


def _show(error: float | None) -> str:
    return "—" if error is None else f"{error:+.2%}"


if __name__ == "__main__":
    sys.exit(main())
