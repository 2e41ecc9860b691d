"""Scores of the forecast of preemptions, on simulated servers: forecast a minute ahead, and nowhere else.

Every run is made by the simulator of a paged KV cache, whose text is not parsed here: readings are built as
the reader builds them. Nothing of this is measured on a real server.
"""

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from unittest.mock import patch

from vramscope.analyzers.serving import arrivals
from vramscope.analyzers.serving.analyzer import PREEMPTION, ServingAnalyzer
from vramscope.engine.model import (
    DeviceSample,
    EngineReading,
    MemoryReading,
    Sample,
    ServerDevice,
    ServerSample,
)
from vramscope.engine.workloads.serving.pool import Rate
from vramscope.engine.workloads.serving.server import SimulatedServer

from .measure.tables import format_number, format_table
from .serving_engine import make_server
from .serving_scenes import SPLITS, Scene, Split, Task, list_serving_tasks, make_scene, name_serving_family
from .verdict_targets import Target, at_least, at_most

LEAD_S = 60.0
LEAST_GROWTH_S = 180.0
"""Growth of less than this before the first preemption allows no word a minute ahead."""
READ_EVERY_S = 2.0
SLOPE_S = 10.0
"""Time over which the slope of a known rate is taken."""
SIZES = (
    ("pools < 64,000 tokens", 0, 64_000),
    ("pools of 64,000–199,999", 64_000, 200_000),
    ("pools ≥ 200,000", 200_000, 10**9),
    ("pools ≥ 64,000", 64_000, 10**9),
)
"""Sizes of pools that are scored together: from and below so many tokens."""


@dataclass(frozen=True)
class Watched:
    """What was said of one run; times are seconds from its start."""

    family: str
    name: str
    duration_s: float
    growth_s: float | None
    preempted_s: float | None
    opened: tuple[tuple[float, float | None], ...]
    """When a forecast opened and closed; None where it stood to the end."""
    told_in_s: float | None
    """Of the forecast that stood a minute before: time left as it said."""
    split: Split = "sealed"
    pool_tokens: int = 0

    @property
    def begin_s(self) -> float | None:
        """When what led to the first preemption began; None where none came."""
        if self.preempted_s is None:
            return None
        return self.preempted_s if self.growth_s is None else min(self.growth_s, self.preempted_s)

    @property
    def allows_lead(self) -> bool:
        return self.preempted_s is not None and self.preempted_s - (self.begin_s or 0.0) >= LEAST_GROWTH_S

    @property
    def is_forecast(self) -> bool:
        """Whether a forecast stood a minute before the first preemption."""
        if self.preempted_s is None:
            return False
        moment_s = self.preempted_s - LEAD_S
        return any(
            (self.begin_s or 0.0) <= opened_s <= moment_s and (closed_s is None or closed_s > moment_s)
            for opened_s, closed_s in self.opened
        )

    @property
    def lead_s(self) -> float | None:
        """From the first forecast after the growth began to the first preemption."""
        if self.preempted_s is None:
            return None
        begin_s = self.begin_s or 0.0
        first_s = next((opened_s for opened_s, _ in self.opened if opened_s >= begin_s), None)
        return None if first_s is None else max(0.0, self.preempted_s - first_s)

    @property
    def false_words(self) -> int:
        """Forecasts before anything grew, or in a run without a preemption."""
        before_s = self.begin_s
        return sum(before_s is None or opened_s < before_s for opened_s, _ in self.opened)

    @property
    def quiet_hours(self) -> float:
        return (self.duration_s if self.begin_s is None else self.begin_s) / 3600


def list_samples(scene: Scene, server: SimulatedServer) -> Iterator[Sample]:
    """Yield what a node with this server samples, every two seconds."""
    setup = scene.setup
    total = setup.plan.total_bytes
    seq = 0
    while server.now_s < scene.duration_s:
        server.advance(server.now_s + READ_EVERY_S)
        seq += 1
        engine = server.engines[0]
        counters = engine.counters
        used = server.used_bytes
        reading = EngineReading(
            "0",
            len(engine.running),
            len(engine.waiting),
            setup.pool_blocks * setup.block_tokens,
            engine.used_share,
            None,
            counters.preemptions,
            counters.rejections,
            counters.prompt_tokens,
            counters.generation_tokens,
            counters.prefix_queries,
            counters.prefix_hits,
            finished=counters.finished,
        )
        server_sample = ServerSample(
            "vLLM",
            "http://127.0.0.1:8000",
            engines=(reading,),
            devices=(ServerDevice("GPU-0", (1,), None, used),),
            most_sequences=setup.most_sequences if scene.is_limit_known else None,
        )
        device = DeviceSample("GPU-0", 0, age_s=0.0, memory=MemoryReading(total, used, total - used))
        yield Sample("bench", seq, 1.6e9 + server.now_s, READ_EVERY_S, (device,), servers=(server_sample,))


class KnownRate:
    """Stands for the estimate of the arrival rate: the true rate and its slope now, not what comes later.

    It shows how much of what is missed is for want of a better estimate; the rest is chance and the future.
    """

    def __init__(self, rate: Rate, server: SimulatedServer) -> None:
        self._rate = rate
        self._server = server

    @property
    def level(self) -> float:
        return self._rate.at(self._server.now_s)

    @property
    def error(self) -> float:
        return 0.0

    def add(self, per_s: float, seconds: float) -> None:
        """Learn nothing: all is known."""

    def ahead(self, seconds: float, deviations: float = 0.0) -> float:
        slope = (self.level - self._rate.at(self._server.now_s - SLOPE_S)) / SLOPE_S
        return max(0.0, self.level + slope * seconds)


def watch_serving_one(task: Task, *, knows_rate: bool = False) -> Watched:
    """Make one run and note when preemptions were forecast.

    Args:
        knows_rate: Whether the forecast gets the true arrival rate; that of clients is estimated still.
    """
    scene, number = make_scene(task)
    server = make_server(scene.setup, number)
    traffic = scene.setup.traffic
    if not knows_rate or traffic.think_s is not None:
        return _watch(task, scene, server)
    known = KnownRate(traffic.rate_per_s, server)
    with patch.object(arrivals, "_Rate", lambda *_: known):
        return _watch(task, scene, server)


def _watch(task: Task, scene: Scene, server: SimulatedServer) -> Watched:
    analyzer = ServingAnalyzer()
    opened: dict[str, list[float | None]] = {}
    forecasts: list[tuple[float, float]] = []
    first_s: float | None = None
    for sample in list_samples(scene, server):
        at_s = sample.time_s - 1.6e9
        for finding in analyzer.observe(sample):
            if finding.kind != PREEMPTION:
                continue
            span = opened.setdefault(finding.id, [at_s, None])
            if not finding.is_open:
                span[1] = at_s
            left = next((it.value for it in finding.evidence if it.name == "time to exhaustion"), None)
            if isinstance(left, float):
                forecasts.append((at_s, left))
        first_s = server.engines[0].counters.first_preemption_s
        if first_s is not None:
            break
    before = [left - LEAD_S for at_s, left in forecasts if first_s is not None and at_s <= first_s - LEAD_S]
    return Watched(
        name_serving_family(task),
        f"{name_serving_family(task)}/{task[2]}",
        server.now_s,
        scene.growth_s,
        first_s,
        tuple((span[0] or 0.0, span[1]) for span in opened.values()),
        before[-1] + LEAD_S if before else None,
        task[0],
        scene.setup.pool_blocks * scene.setup.block_tokens,
    )


@dataclass(frozen=True)
class ServingScore:
    runs: int
    forecast: int
    forecastable: int
    preempted: int
    false_words: int
    quiet_hours: float

    @property
    def recall(self) -> float | None:
        return self.forecast / self.forecastable if self.forecastable else None

    @property
    def false_per_100_hours(self) -> float | None:
        return 100 * self.false_words / self.quiet_hours if self.quiet_hours else None


def score_serving(runs: Sequence[Watched]) -> ServingScore:
    fit = [run for run in runs if run.allows_lead]
    return ServingScore(
        len(runs),
        sum(run.is_forecast for run in fit),
        len(fit),
        sum(run.preempted_s is not None for run in runs),
        sum(run.false_words for run in runs),
        sum(run.quiet_hours for run in runs),
    )


def judge_serving(runs: Sequence[Watched]) -> list[Target]:
    it = score_serving(runs)
    return [
        at_least("serving: preemption forecast 1 min ahead", it.recall, 0.95),
        at_most("serving: false words in 100 hours", it.false_per_100_hours, 1.0),
    ]


def format_serving(runs: Sequence[Watched], split: Split) -> str:
    names = dict.fromkeys(run.family for run in runs)
    named = [(name, [run for run in runs if run.family == name]) for name in names]
    named += [(name, [run for run in runs if least <= run.pool_tokens < most]) for name, least, most in SIZES]
    rows = [_format_row(name, score_serving(of)) for name, of in (*named, ("all", list(runs)))]
    head = ["", "runs", "preempted", "forecast", "false words", "in quiet hours"]
    title = f"Serving: preemption forecast, by workload and pool (simulated servers, {split})"
    return format_table(title, head, rows)


def _format_row(name: str, it: ServingScore) -> list[str]:
    return [
        name,
        str(it.runs),
        str(it.preempted),
        f"{it.forecast}/{it.forecastable}" if it.forecastable else "—",
        str(it.false_words),
        format_number(it.quiet_hours, 1),
    ]


def list_serving_errors(runs: Sequence[Watched]) -> list[str]:
    found = []
    for run in runs:
        if run.false_words:
            times = ", ".join(f"{opened_s:.0f}" for opened_s, _ in run.opened)
            found.append(f"{run.name}: preemption forecast at {times} s, and nothing came of it")
        if run.allows_lead and not run.is_forecast:
            times = ", ".join(f"{o:.0f}–{'' if c is None else f'{c:.0f}'}" for o, c in run.opened)
            found.append(
                f"{run.name}: not forecast 1 min before {run.preempted_s:.0f} s "
                f"(growth from {run.growth_s}; forecasts: {times})"
            )
    return found


def as_serving_results(runs: Sequence[Watched]) -> dict[str, object]:
    by_split = {split: [run for run in runs if run.split == split] for split in SPLITS}
    return {split: _as_results(of) for split, of in by_split.items() if of}


def _as_results(runs: Sequence[Watched]) -> dict[str, object]:
    it = score_serving(runs)
    leads = [run.lead_s for run in runs if run.allows_lead and run.lead_s is not None]
    return asdict(it) | {
        "recall": it.recall,
        "false_per_100_hours": it.false_per_100_hours,
        "median_lead_s": statistics.median(leads) if leads else None,
        "errors": list_serving_errors(runs),
    }


def main() -> int:
    """Score the forecast alone: python -m benchmarks.serving_verdicts --split tuning."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_verdicts", description=__doc__)
    parser.add_argument("--split", choices=SPLITS, default="sealed")
    parser.add_argument("--family", nargs="+")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--known-rate", action="store_true", help="give the forecast the true arrival rate")
    parser.add_argument("--every", type=int, default=1, help="only each N-th seed")
    options = parser.parse_args()
    tasks = [
        task
        for task in list_serving_tasks(options.split)
        if (not options.family or name_serving_family(task) in options.family)
        and task[2] % options.every == 0
    ]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        watch = partial(watch_serving_one, knows_rate=options.known_rate)
        runs = list(pool.map(watch, tasks, chunksize=2))
    print(format_serving(runs, options.split), *list_serving_errors(runs), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
