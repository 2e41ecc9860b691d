"""How fast and how good exact partitions are, compared with DeepSpeed's rule and a plain dynamic programme.

DeepSpeed's `partition_balanced` (since its pull request 4312) makes the difference of the dearest and the
cheapest stage small, by a recursion over layers and stages that keeps one best prefix for each. That rule is
written here from its description; the library itself is not run.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise

from vramscope.analyzers.planning.partition import split_exactly

from .budgets import Budget
from .measure.tables import format_number, format_table

LAYER_BYTES = 30_723_200 * 4
VOCABULARY_BYTES = 80_411_200 * 4
PEER_LIMIT_S = 5.0
"""CPU seconds after which a peer is stopped."""
INSTANCES = 60
Splitter = Callable[[Sequence[int], int], int]
"""Returns the cost of the dearest stage."""
Watch = Callable[[], None]
"""Called now and then by a peer; raises `_OutOfTimeError` where it has taken too long."""
_Prefix = tuple[float, float, int]
"""Dearest stage, cheapest stage and last cut of the layers before a position."""


@dataclass(frozen=True)
class PartitionTime:
    """CPU time of one split: of the exact one the quickest of some runs; None for a peer that was stopped."""

    what: str
    layers: int
    stages: int
    exact_ms: float
    programme_ms: float | None
    spread_ms: float | None


@dataclass(frozen=True)
class PartitionQuality:
    """DeepSpeed's rule against the exact split, over random rows of layers."""

    instances: int
    worse: int
    worst_percent: float


def measure_partition(runs: int) -> tuple[list[PartitionTime], PartitionQuality]:
    """Return times on several rows of layers, and how often the peer's split is worse.

    Args:
        runs: Runs of the exact split; the quickest counts.
    """
    source = random.Random(7)

    def draw(count: int) -> list[int]:
        return [source.randrange(1, 10**9) for _ in range(count)]

    def model(count: int) -> list[int]:
        return [VOCABULARY_BYTES, *[LAYER_BYTES] * (count - 3), 6_400, VOCABULARY_BYTES]

    rows = [
        ("GPT-1.5B", model(51), 8),
        ("random", draw(128), 16),
        ("random", draw(512), 32),
        ("random", draw(2_048), 64),
        ("identical", [LAYER_BYTES] * 2_048, 64),
        ("model", model(2_048), 64),
        ("random", draw(100_000), 1_024),
        ("identical", [LAYER_BYTES] * 100_000, 1_024),
        ("model", model(100_000), 1_024),
    ]
    return [_measure(what, costs, stages, runs) for what, costs, stages in rows], _compare(source)


class _OutOfTimeError(Exception):
    """A peer took longer than it may."""


def _measure(what: str, costs: Sequence[int], stages: int, runs: int) -> PartitionTime:
    return PartitionTime(
        what=what,
        layers=len(costs),
        stages=stages,
        exact_ms=min(_time(_split, costs, stages) for _ in range(runs)),
        programme_ms=_time_peer(_split_by_programme, costs, stages),
        spread_ms=_time_peer(_split_by_spread, costs, stages),
    )


def _time(split: Splitter, costs: Sequence[int], stages: int) -> float:
    start = time.process_time()
    split(costs, stages)
    return 1000.0 * (time.process_time() - start)


def _time_peer(
    split: Callable[[Sequence[int], int, Watch], int], costs: Sequence[int], stages: int
) -> float | None:
    """Return the milliseconds of a peer; None where it was stopped."""
    end_s = time.process_time() + PEER_LIMIT_S

    def watch() -> None:
        if time.process_time() > end_s:
            raise _OutOfTimeError

    try:
        return _time(lambda row, count: split(row, count, watch), costs, stages)
    except _OutOfTimeError:
        return None


def _go_on() -> None:
    """Watch nothing."""


def _compare(source: random.Random) -> PartitionQuality:
    excess = []
    for _ in range(INSTANCES):
        count = source.randrange(8, 25)
        costs = [source.randrange(1, 1000) for _ in range(count)]
        stages = source.randrange(2, min(count, 7))
        best = _split(costs, stages)
        if best != _split_by_programme(costs, stages):
            raise RuntimeError(f"not the least maximum: {costs} into {stages}")
        excess.append(100.0 * (_split_by_spread(costs, stages) / best - 1.0))
    return PartitionQuality(INSTANCES, sum(each > 0 for each in excess), max(excess))


def _split(costs: Sequence[int], stages: int) -> int:
    return split_exactly(costs, stages).maximum


def _split_by_programme(costs: Sequence[int], stages: int, watch: Watch = _go_on) -> int:
    """Return the least maximum by the recursion over last cuts, without any shortcut."""
    before = list(accumulate(costs, initial=0))
    best: list[float] = [0.0, *[math.inf] * len(costs)]
    for _ in range(stages):
        row = [math.inf]
        for end in range(1, len(before)):
            watch()
            row.append(min(max(best[cut], before[end] - before[cut]) for cut in range(end)))
        best = row
    return int(best[-1])


def _split_by_spread(costs: Sequence[int], stages: int, watch: Watch = _go_on) -> int:
    """Return the dearest stage where the recursion keeps the least difference of dearest and cheapest."""
    before = list(accumulate(costs, initial=0))
    kept: list[_Prefix | None] = [(0.0, math.inf, 0), *[None] * len(costs)]
    tables = []
    for _ in range(stages):
        row: list[_Prefix | None] = [None]
        for end in range(1, len(before)):
            watch()
            row.append(_keep_least_spread(before, kept, end))
        kept = row
        tables.append(kept)
    bounds = [len(costs)]
    for table in reversed(tables):
        entry = table[bounds[-1]]
        bounds.append(0 if entry is None else entry[2])
    return max(before[end] - before[start] for end, start in pairwise(bounds))


def _keep_least_spread(before: Sequence[int], kept: Sequence[_Prefix | None], end: int) -> _Prefix | None:
    best: _Prefix | None = None
    for cut in range(end):
        prefix = kept[cut]
        if prefix is None:
            continue
        cost = before[end] - before[cut]
        entry = (max(prefix[0], cost), min(prefix[1], cost), cut)
        if best is None or entry[0] - entry[1] <= best[0] - best[1]:
            best = entry
    return best


def format_partition(times: Sequence[PartitionTime], quality: PartitionQuality) -> str:
    """Return a table of times, and a sentence on quality."""
    head = ("layers", "count", "stages", "exact ms", "plain programme ms", "DeepSpeed's rule ms")
    rows = [
        (
            it.what,
            f"{it.layers:,}",
            f"{it.stages:,}",
            format_number(it.exact_ms, 3),
            _show_peer(it.programme_ms),
            _show_peer(it.spread_ms),
        )
        for it in times
    ]
    table = format_table("partition into contiguous stages (exact: ties broken as well)", head, rows)
    return (
        f"{table}\nDeepSpeed's rule: {quality.worse} of {quality.instances} random rows worse, "
        f"by up to {quality.worst_percent:.1f} %"
    )


def _show_peer(milliseconds: float | None) -> str:
    return f"not done in {PEER_LIMIT_S:g} s" if milliseconds is None else format_number(milliseconds)


def as_partition_figures(times: Sequence[PartitionTime], quality: PartitionQuality) -> dict[str, object]:
    """Return what was measured, for the JSON."""
    return {"times": [asdict(it) for it in times], "quality": asdict(quality)}


def judge_partition(times: Sequence[PartitionTime]) -> list[Budget]:
    """Return the budgets of the exact split."""
    limits = {
        ("random", 2_048): 1.0,
        ("identical", 2_048): 1.0,
        ("model", 2_048): 1.0,
        ("random", 100_000): 100.0,
        ("identical", 100_000): 1000.0,
        ("model", 100_000): 1000.0,
    }
    return [
        Budget(
            f"exact partition, {it.layers:,} {it.what} layers into {it.stages:,}",
            it.exact_ms,
            limits[it.what, it.layers],
            "ms",
            it.programme_ms,
        )
        for it in times
        if (it.what, it.layers) in limits
    ]
