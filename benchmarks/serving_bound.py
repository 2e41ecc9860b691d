"""How well preemptions can be forecast at all, on the simulated servers of `serving_verdicts`.

A forecaster that knows the complete state of the simulator, the laws of its traffic and the arrival rate asks
many futures of each moment how often a preemption comes within some minutes. No forecaster that reads metrics
knows more of the present; what it misses is chance. Its words open, stand and close as those of the product,
and are scored by the same code.

    python -m benchmarks.serving_bound

needs a C compiler: runs and futures are computed by `serving_rollouts.c`, an exact copy of the simulator.
`--tokens 24000` asks for the runs of one size of pool alone, `--every 4` for a quarter of the seeds.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramscope.analyzers.serving import arrivals
from vramscope.analyzers.serving.analyzer import HOLD_S, STANDS_SHARE
from vramscope.engine.errors import UsageError
from vramscope.engine.workloads.serving.pool import Rate

from .measure.tables import format_number, format_table
from .serving_engine import CompiledEngine, CompiledServer, Numbers, load_library
from .serving_scenes import (
    SPLITS,
    Scene,
    Split,
    Task,
    find_blocks,
    list_serving_tasks,
    make_scene,
    name_serving_family,
)
from .serving_verdicts import READ_EVERY_S, SIZES, Watched, score_serving

LOOK_EVERY_S = 20
COUNT_EVERY_S = 10
HORIZONS_S = (180, 240, 300)
FUTURES = 100
SCREEN = 25
"""Where so many futures have no preemption, the others count as having none."""
FIRST = 8
ROOM_SHARE = 0.7
"""Where so many futures, at the highest of all known rates, use no more than this share of the pool, no
preemption is expected whatever is known."""
SLOPE_S = 60.0
LEVEL_S = 60.0
THRESHOLDS = (0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5)
LOOKS = (1, 2, 3)
"""Looks in a row that must agree."""
BLOCK_TOKENS = 16


class Knowledge(NamedTuple):
    """What a forecaster knows of the requests."""

    lengths: str
    """`law`: how outputs of present requests are distributed, given their length so far; `drawn`: how long
    each will be."""
    rate: str
    """`now`: the true rate, which is taken to stay; `trend`: it and its slope over a minute; `coming`: the
    true rate of the next minutes; `counted`: what the product estimates from the requests that came."""


KNOWLEDGES = (
    Knowledge("law", "now"),
    Knowledge("drawn", "now"),
    Knowledge("law", "trend"),
    Knowledge("law", "coming"),
    Knowledge("law", "counted"),
)


@dataclass(frozen=True)
class Looked:
    """What forecasters found at the moments of one run."""

    watched: Watched
    """The run, without words."""
    pool_tokens: int
    times_s: tuple[float, ...]
    levels: tuple[float, ...]
    """Use of the pool over the last minute."""
    chances: npt.NDArray[np.float64]
    """Of a preemption: by knowledge, moment and horizon."""

    def say(self, knowledge: int, horizon: int, threshold: float, looks: int) -> Watched:
        """Return the run with the words of a forecaster that speaks from a chance on."""
        opened: list[tuple[float, float | None]] = []
        begin_s = calm_s = None
        agreed = 0
        chances = self.chances[knowledge, :, horizon]
        for at_s, level, chance in zip(self.times_s, self.levels, chances, strict=True):
            if chance >= threshold:
                agreed += 1
                calm_s = None
                if begin_s is None and agreed >= looks:
                    begin_s = at_s
                continue
            agreed = 0
            if begin_s is None:
                continue
            if calm_s is None or level >= STANDS_SHARE:
                calm_s = at_s
            if at_s - calm_s >= HOLD_S:
                opened.append((begin_s, at_s))
                begin_s = calm_s = None
        if begin_s is not None:
            opened.append((begin_s, None))
        it = self.watched
        return Watched(
            it.family, it.name, it.duration_s, it.growth_s, it.preempted_s, tuple(opened), None, it.split
        )


def look_at_run(task: Task, *, futures: int = FUTURES) -> Looked:
    """Make one run and ask its futures at each look."""
    scene, number = make_scene(task)
    server = CompiledServer(scene.setup, number)
    [engine] = server.engines
    if not isinstance(engine, CompiledEngine):  # for mypy
        raise TypeError(engine)
    counted: arrivals._Rate | None = None
    arrived = 0
    levels, times = [], []
    used: list[float] = []
    chances: list[list[list[float]]] = []
    while server.now_s < scene.duration_s:
        server.advance(server.now_s + READ_EVERY_S)
        used.append(engine.used_share)
        if engine.counters.first_preemption_s is not None:
            break
        if int(server.now_s) % COUNT_EVERY_S == 0:
            before = arrived
            arrived = engine.counters.finished + len(engine.running) + len(engine.waiting)
            per_s = (arrived - before) / COUNT_EVERY_S
            if counted is None:
                counted = arrivals._Rate(per_s, COUNT_EVERY_S)
            else:
                counted.add(per_s, COUNT_EVERY_S)
        if int(server.now_s) % LOOK_EVERY_S or server.now_s < LEVEL_S or counted is None:
            continue
        newest = used[-round(LEVEL_S / READ_EVERY_S) :]
        times.append(server.now_s)
        levels.append(sum(newest) / len(newest))
        chances.append(_find_chances(scene, engine, counted, futures))
    watched = Watched(
        name_serving_family(task),
        f"{name_serving_family(task)}/{task[2]}",
        server.now_s,
        scene.growth_s,
        engine.counters.first_preemption_s,
        (),
        None,
        task[0],
    )
    tokens = scene.setup.pool_blocks * scene.setup.block_tokens
    return Looked(watched, tokens, tuple(times), tuple(levels), np.array(chances).transpose(1, 0, 2))


def _find_chances(
    scene: Scene, engine: CompiledEngine, counted: arrivals._Rate, futures: int
) -> list[list[float]]:
    """Return the chances of a preemption within each horizon, by knowledge."""
    traffic, now_s = scene.setup.traffic, engine.now_s
    seconds = max(HORIZONS_S)
    seed = 1000 * int(now_s)
    coming = []
    for knowledge in KNOWLEDGES:
        rates = _predict_rates(traffic.rate_per_s, knowledge.rate, now_s, seconds)
        if knowledge.rate == "counted" and traffic.think_s is None:
            rates = np.array([counted.ahead(second) for second in range(seconds)])
        coming.append(
            (rates, _predict_rates(traffic.length or Rate(((0.0, 1.0),)), knowledge.rate, now_s, seconds))
        )
    rates, factors = (np.max(of, axis=0) for of in zip(*coming, strict=True))
    _, most = engine.roll_ahead(rates, factors, redraws=True, futures=FIRST, screen=FIRST, seed=seed)
    if most <= ROOM_SHARE:
        return [[0.0] * len(HORIZONS_S) for _ in KNOWLEDGES]
    found = []
    for at, (knowledge, (rates, factors)) in enumerate(zip(KNOWLEDGES, coming, strict=True)):
        redraws = knowledge.lengths == "law"
        first, _ = engine.roll_ahead(
            rates, factors, redraws=redraws, futures=futures, screen=SCREEN, seed=seed + at + 1
        )
        found.append([float(np.mean(first <= horizon)) for horizon in HORIZONS_S])
    return found


def _predict_rates(rate: Rate, known: str, now_s: float, seconds: int) -> Numbers:
    ahead = np.arange(seconds, dtype=np.float64)
    if known == "coming":
        return np.array([rate.at(now_s + second) for second in ahead])
    level = rate.at(now_s)
    slope = (level - rate.at(now_s - SLOPE_S)) / SLOPE_S if known == "trend" else 0.0
    return np.maximum(0.0, level + slope * ahead)


def list_rows(looked: Sequence[Looked]) -> Iterator[list[str]]:
    """Yield the best of each forecaster: most forecasts and fewest false words that meet a target."""
    for at, knowledge in enumerate(KNOWLEDGES):
        scores = [
            score_serving([it.say(at, horizon, threshold, looks) for it in looked])
            for horizon in range(len(HORIZONS_S))
            for threshold in THRESHOLDS
            for looks in LOOKS
        ]
        fit = scores[0].forecastable
        allowed = [it for it in scores if (it.false_per_100_hours or 0.0) <= 1.0]
        enough = [it for it in scores if it.forecast >= 0.95 * fit]
        most = max(allowed, key=lambda it: (it.forecast, -it.false_words), default=None)
        fewest = min(enough, key=lambda it: (it.false_words, -it.forecast), default=None)
        yield [
            f"{knowledge.lengths}, {knowledge.rate}",
            "—" if most is None else f"{most.forecast}/{fit} ({most.false_words} false)",
            "—" if fewest is None else f"{fewest.forecast}/{fit} ({fewest.false_words} false)",
            format_number(scores[0].quiet_hours, 1),
        ]


def format_curve(looked: Sequence[Looked], knowledge: int) -> str:
    """Write forecasts and false words at each threshold, of one forecaster with the longest horizon."""
    rows = []
    for threshold in THRESHOLDS:
        scores = [
            score_serving([it.say(knowledge, len(HORIZONS_S) - 1, threshold, looks) for it in looked])
            for looks in LOOKS
        ]
        cells = [
            f"{it.forecast}/{it.forecastable}, {format_number(it.false_per_100_hours or 0.0, 1)}"
            for it in scores
        ]
        rows.append([f"{threshold:.0%}", *cells])
    name = ", ".join(KNOWLEDGES[knowledge])
    head = ["chance within 300 s", *(f"{looks} looks" for looks in LOOKS)]
    return format_table(f"Forecast, false words in 100 hours: {name}", head, rows)


def print_bound(looked: Sequence[Looked], split: Split) -> None:
    """Print what each forecaster achieves, by size of pool."""
    head = ["knows", "≤ 1 false in 100 h", "≥ 95 % forecast", "quiet hours"]
    for name, least, most in SIZES:
        of = [it for it in looked if least <= it.pool_tokens < most]
        if not of:
            continue
        title = (
            f"{name.capitalize()}: the best of any threshold, {len(of)} runs of {split} (simulated servers)"
        )
        print(format_table(title, head, list(list_rows(of))), end="\n\n")
        print(format_curve(of, 0), end="\n\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_bound", description=__doc__)
    parser.add_argument("--split", choices=SPLITS, default="sealed3")
    parser.add_argument("--tokens", nargs="+", type=int, help="sizes of pools (default all)")
    parser.add_argument("--every", type=int, default=1, help="only each N-th seed")
    parser.add_argument("--futures", type=int, default=FUTURES)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    load_library()
    tasks = [
        task
        for task in list_serving_tasks(options.split)
        if task[2] % options.every == 0
        and (options.tokens is None or find_blocks(task) * BLOCK_TOKENS in options.tokens)
    ]
    if not tasks:
        raise UsageError(f"{options.split} has no run with a pool of {options.tokens} tokens and such a seed")
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        looked = list(pool.map(partial(look_at_run, futures=options.futures), tasks))
    print_bound(looked, options.split)
    return 0


if __name__ == "__main__":
    sys.exit(main())
