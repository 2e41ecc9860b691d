"""Scores of the forecast of preemptions, on simulated servers: forecast a minute ahead, and nowhere else.

Every run is made by the simulator of a paged KV cache, whose text is not parsed here: readings are built as
the reader builds them. Nothing of this is measured on a real server.
"""

import argparse
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context

from vramscope.analyzers.serving.analyzer import PREEMPTION, ServingAnalyzer
from vramscope.engine.model import (
    DeviceSample,
    EngineReading,
    MemoryReading,
    Sample,
    ServerDevice,
    ServerSample,
)
from vramscope.engine.workloads.serving.pool import Rate, Traffic
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer

from .measure.tables import format_number, format_table
from .verdict_targets import Target, at_least, at_most

LEAD_S = 60.0
LEAST_GROWTH_S = 180.0
"""Growth of less than this before the first preemption allows no word a minute ahead."""
READ_EVERY_S = 2.0
Rng = random.Random
Task = tuple[str, int, int]
"""Split, number of the family, seed."""


@dataclass(frozen=True)
class Scene:
    """One run: a server, how long it lasts, and when the load begins to grow that may exhaust the pool."""

    setup: ServerSetup
    duration_s: float
    growth_s: float | None = None
    is_limit_known: bool = False
    """Whether `--max-num-seqs` is on the command line."""


@dataclass(frozen=True)
class Family:
    name: str
    make: Callable[[Rng, bool], Scene]
    """Given numbers, and whether it is to tune on: tuning has other sizes and lengths than scoring."""
    seeds: int
    split: str | None = None
    """The only split that it is in; None for both."""


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
    def false_words(self) -> int:
        """Forecasts before anything grew, or in a run without a preemption."""
        before_s = self.begin_s
        return sum(before_s is None or opened_s < before_s for opened_s, _ in self.opened)

    @property
    def quiet_hours(self) -> float:
        return (self.duration_s if self.begin_s is None else self.begin_s) / 3600


def _make_setup(traffic: Traffic, *, blocks: int, most: int = 256) -> ServerSetup:
    return ServerSetup(traffic=traffic, blocks=blocks, most_sequences=most)


def _lengths(draw: Rng, is_tuning: bool) -> Traffic:
    """Return traffic with lengths of prompts and outputs: chat, retrieval, long answers."""
    kinds = (
        [(400.0, 250.0), (1500.0, 150.0), (300.0, 900.0)]
        if is_tuning
        else [(250.0, 350.0), (2500.0, 200.0), (600.0, 600.0), (200.0, 1500.0)]
    )
    prompt, output = draw.choice(kinds)
    return Traffic(
        Rate(((0.0, 1.0),)),
        prompt_tokens=prompt * draw.uniform(0.8, 1.25),
        output_tokens=output * draw.uniform(0.8, 1.25),
        prompt_spread=draw.uniform(0.4, 0.9),
        output_spread=draw.uniform(0.4, 0.9),
        prefix_share=draw.choice([0.0, 0.5, 0.9]),
    )


def _find_capacity(lengths: Traffic, blocks: int) -> float:
    """Return the requests a second that keep the pool about full: found by running it for a while."""
    low, high = 0.05, 200.0
    for _ in range(9):
        rate = (low * high) ** 0.5
        server = SimulatedServer(
            _make_setup(_traffic([(0.0, 1.0)], rate, lengths), blocks=blocks, most=100_000), 7
        )
        server.advance(180.0)
        engine = server.engines[0]
        is_full = engine.counters.preemptions > 0 or len(engine.waiting) > 5 or engine.used_share > 0.95
        low, high = (low, rate) if is_full else (rate, high)
    return low


def _draw_size(draw: Rng, is_tuning: bool) -> int:
    """Return blocks of a pool: 64,000 to 480,000 tokens; half of `serving_logs` have more than 476,000."""
    return draw.choice([6000, 20_000] if is_tuning else [4000, 10_000, 30_000])


def _traffic(points: Sequence[tuple[float, float]], capacity: float, lengths: Traffic) -> Traffic:
    return replace(lengths, rate_per_s=Rate(tuple((at_s, share * capacity) for at_s, share in points)))


def _steady(draw: Rng, is_tuning: bool) -> Scene:
    lengths, blocks = _lengths(draw, is_tuning), _draw_size(draw, is_tuning)
    load = draw.uniform(0.15, 0.6)
    traffic = _traffic([(0.0, load)], _find_capacity(lengths, blocks), lengths)
    return Scene(_make_setup(traffic, blocks=blocks), 7200.0, is_limit_known=draw.random() < 0.5)


def _waves(draw: Rng, is_tuning: bool) -> Scene:
    """Load that goes up and down within half an hour to three hours, never enough to fill the pool."""
    lengths, blocks = _lengths(draw, is_tuning), _draw_size(draw, is_tuning)
    period_s = draw.uniform(1800.0, 7200.0) if is_tuning else draw.uniform(1200.0, 10_800.0)
    low, high = draw.uniform(0.1, 0.3), draw.uniform(0.45, 0.65)
    points = []
    for turn in range(12):
        points += [(turn * period_s, low), ((turn + 0.5) * period_s, high * draw.uniform(0.85, 1.0))]
    traffic = _traffic(points, _find_capacity(lengths, blocks), lengths)
    return Scene(_make_setup(traffic, blocks=blocks), 10_800.0)


def _bursts(draw: Rng, is_tuning: bool) -> Scene:
    """Short bursts of one and a half to three times the usual load."""
    lengths, blocks = _lengths(draw, is_tuning), _draw_size(draw, is_tuning)
    usual = draw.uniform(0.1, 0.25)
    points = [(0.0, usual)]
    at_s = 300.0
    while at_s < 7000.0:
        length_s = draw.uniform(20.0, 120.0)
        peak = min(0.6, usual * draw.uniform(1.5, 3.0))
        points += [(at_s, usual), (at_s + 1, peak), (at_s + length_s, peak), (at_s + length_s + 1, usual)]
        at_s += length_s + draw.uniform(120.0, 900.0)
    traffic = _traffic(points, _find_capacity(lengths, blocks), lengths)
    return Scene(_make_setup(traffic, blocks=blocks), 7200.0)


def _ramp(draw: Rng, is_tuning: bool) -> Scene:
    """Load that grows steadily beyond what the pool can hold."""
    lengths, blocks = _lengths(draw, is_tuning), _draw_size(draw, is_tuning)
    start = draw.uniform(0.1, 0.4)
    begin_s = draw.uniform(600.0, 1800.0)
    length_s = draw.uniform(600.0, 3600.0) if is_tuning else draw.uniform(400.0, 5400.0)
    points = [(0.0, start), (begin_s, start), (begin_s + length_s, draw.uniform(1.3, 1.8))]
    traffic = _traffic(points, _find_capacity(lengths, blocks), lengths)
    return Scene(_make_setup(traffic, blocks=blocks, most=100_000), begin_s + length_s + 900.0, begin_s)


def _knee(draw: Rng, is_tuning: bool) -> Scene:
    """Load that grows slowly, then faster: half of it in the last third."""
    lengths, blocks = _lengths(draw, is_tuning), _draw_size(draw, is_tuning)
    start = draw.uniform(0.1, 0.3)
    begin_s = draw.uniform(600.0, 1200.0)
    length_s = draw.uniform(900.0, 3600.0)
    middle = start + 0.35
    points = [
        (0.0, start),
        (begin_s, start),
        (begin_s + 2 / 3 * length_s, middle),
        (begin_s + length_s, draw.uniform(1.3, 1.7)),
    ]
    traffic = _traffic(points, _find_capacity(lengths, blocks), lengths)
    return Scene(_make_setup(traffic, blocks=blocks, most=100_000), begin_s + length_s + 600.0, begin_s)


def _capped(draw: Rng, is_tuning: bool) -> Scene:
    """More load than the engine computes, but fewer sequences at once than exhaust the pool: a queue."""
    lengths, blocks = _lengths(draw, is_tuning), _draw_size(draw, is_tuning)
    capacity = _find_capacity(lengths, blocks)
    probe = SimulatedServer(_make_setup(_traffic([(0.0, 0.9)], capacity, lengths), blocks=blocks), 5)
    probe.advance(240.0)
    running = max(4, len(probe.engines[0].running))
    most = max(3, int(running * draw.uniform(0.45, 0.65) / max(0.5, probe.engines[0].used_share)))
    begin_s = draw.uniform(600.0, 1800.0)
    points = [(0.0, 0.2), (begin_s, 0.2), (begin_s + draw.uniform(300.0, 1800.0), 1.2)]
    traffic = _traffic(points, capacity, lengths)
    return Scene(_make_setup(traffic, blocks=blocks, most=most), 5400.0, is_limit_known=draw.random() < 0.5)


def _plateau(draw: Rng, is_tuning: bool) -> Scene:
    """Load that grows for minutes, as in the morning, and then stays below what fills the pool."""
    lengths, blocks = _lengths(draw, is_tuning), _draw_size(draw, is_tuning)
    low, high = draw.uniform(0.1, 0.2), draw.uniform(0.4, 0.6)
    begin_s = draw.uniform(600.0, 1800.0)
    points = [(0.0, low), (begin_s, low), (begin_s + draw.uniform(300.0, 1800.0), high)]
    traffic = _traffic(points, _find_capacity(lengths, blocks), lengths)
    return Scene(_make_setup(traffic, blocks=blocks), 7200.0)


def _steps(draw: Rng, is_tuning: bool) -> Scene:
    """Clients that come and go in groups: the load jumps every quarter of an hour or so."""
    lengths, blocks = _lengths(draw, is_tuning), _draw_size(draw, is_tuning)
    points = []
    at_s = 0.0
    while at_s < 7200.0:
        share = draw.uniform(0.1, 0.55)
        length_s = draw.uniform(300.0, 1500.0)
        points += [(at_s, share), (at_s + length_s - 5.0, share)]
        at_s += length_s
    traffic = _traffic(points, _find_capacity(lengths, blocks), lengths)
    return Scene(_make_setup(traffic, blocks=blocks), 7200.0)


def _surge(draw: Rng, is_tuning: bool) -> Scene:
    """Load that goes up and down for hours and then beyond what the pool can hold."""
    lengths, blocks = _lengths(draw, is_tuning), _draw_size(draw, is_tuning)
    period_s = draw.uniform(1200.0, 3600.0)
    points = []
    for turn in range(2):
        points += [(turn * period_s, 0.15), ((turn + 0.5) * period_s, draw.uniform(0.4, 0.55))]
    begin_s = 2 * period_s
    points += [(begin_s, 0.15), (begin_s + draw.uniform(600.0, 2400.0), draw.uniform(1.2, 1.6))]
    traffic = _traffic(points, _find_capacity(lengths, blocks), lengths)
    return Scene(_make_setup(traffic, blocks=blocks, most=100_000), points[-1][0] + 600.0, begin_s)


FAMILIES = (
    Family("steady", _steady, 24),
    Family("waves", _waves, 24),
    Family("bursts", _bursts, 24),
    Family("capped", _capped, 16),
    Family("ramp", _ramp, 40),
    Family("knee", _knee, 24),
    Family("plateau", _plateau, 24, "tuning"),
    Family("steps", _steps, 32, "scored"),
    Family("surge", _surge, 32, "scored"),
)


def list_serving_tasks(split: str) -> list[Task]:
    return [
        (split, at, seed)
        for at, family in enumerate(FAMILIES)
        for seed in range(family.seeds)
        if family.split in (None, split)
    ]


def name_serving_family(task: Task) -> str:
    return FAMILIES[task[1]].name


def find_seed(task: Task) -> int:
    """Return the seed of a task's scene and traffic, the same in every process."""
    split, at, seed = task
    return zlib.crc32(f"serving/{split}/{FAMILIES[at].name}/{seed}".encode())


def make_scene(task: Task) -> tuple[Scene, int]:
    """Return the scene of a task and the seed of its traffic."""
    split, at, _ = task
    number = find_seed(task)
    return FAMILIES[at].make(Rng(number), split == "tuning"), number


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
        )
        told = ServerSample(
            "vLLM",
            "http://127.0.0.1:8000",
            engines=(reading,),
            devices=(ServerDevice("GPU-0", (1,), None, used),),
            most_sequences=setup.most_sequences if scene.is_limit_known else None,
        )
        device = DeviceSample("GPU-0", 0, age_s=0.0, memory=MemoryReading(total, used, total - used))
        yield Sample("bench", seq, 1.6e9 + server.now_s, READ_EVERY_S, (device,), servers=(told,))


def watch_serving_one(task: Task) -> Watched:
    """Make one run and note when preemptions were forecast."""
    scene, number = make_scene(task)
    server = SimulatedServer(scene.setup, number)
    analyzer = ServingAnalyzer()
    opened: dict[str, list[float | None]] = {}
    told: list[tuple[float, float]] = []
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
                told.append((at_s, left))
        first_s = server.engines[0].counters.first_preemption_s
        if first_s is not None:
            break
    before = [left - LEAD_S for at_s, left in told if first_s is not None and at_s <= first_s - LEAD_S]
    return Watched(
        FAMILIES[task[1]].name,
        f"{FAMILIES[task[1]].name}/{task[2]}",
        server.now_s,
        scene.growth_s,
        first_s,
        tuple((span[0] or 0.0, span[1]) for span in opened.values()),
        before[-1] + LEAD_S if before else None,
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


def format_serving(runs: Sequence[Watched]) -> str:
    names = dict.fromkeys(run.family for run in runs)
    named = [(name, [run for run in runs if run.family == name]) for name in names]
    rows = [_format_row(name, score_serving(of)) for name, of in (*named, ("all", list(runs)))]
    head = ["", "runs", "preempted", "forecast", "false words", "in quiet hours"]
    return format_table("Serving: preemption forecast, by workload (simulated servers)", head, rows)


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
    it = score_serving(runs)
    return asdict(it) | {
        "recall": it.recall,
        "false_per_100_hours": it.false_per_100_hours,
        "errors": list_serving_errors(runs),
    }


def main() -> int:
    """Score the forecast alone: python -m benchmarks.serving_verdicts --split tuning."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_verdicts", description=__doc__)
    parser.add_argument("--split", choices=("scored", "tuning"), default="scored")
    parser.add_argument("--family", nargs="+")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help="only each N-th seed")
    options = parser.parse_args()
    tasks = [
        task
        for task in list_serving_tasks(options.split)
        if (not options.family or FAMILIES[task[1]].name in options.family) and task[2] % options.every == 0
    ]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        runs = list(pool.map(watch_serving_one, tasks, chunksize=2))
    print(format_serving(runs), *list_serving_errors(runs), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
