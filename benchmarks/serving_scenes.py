"""Simulated servers and their load, for the score of the forecast of preemptions.

The forecast is tuned on the sets before `sealed4`. `scored`, `fresh` and `sealed` were made to score earlier
forecasts, and their misses have been looked at since; `small` has pools for a few sequences alone; `broad`
has all families and lengths, and as many runs of each of nine sizes. `sealed2` and `sealed3` have the
families, sizes and lengths of `sealed` with seeds of their own, `sealed3` has as many runs of each size.
The model of the pool was chosen on `sealed2`, `sealed3` and `broad`. `sealed4` has sizes and lengths of its
own, and five families more; it was made before anything was scored on it.
"""

import math
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from vramscope.engine.workloads.serving.pool import Rate, Speed, Traffic
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer

from .serving_engine import make_server


class Rng(random.Random):
    """The chance of one scene."""

    turn = 0
    """Number of the scene in its family."""


Split = Literal["tuning", "scored", "fresh", "small", "broad", "sealed", "sealed2", "sealed3", "sealed4"]
SPLITS: tuple[Split, ...] = get_args(Split)
Task = tuple[Split, int, int]
"""Split, number of the family, seed."""
Points = list[tuple[float, float]]
"""Times, and the load at each as a share of what the server can hold."""

# Medians of prompt and output: chat, retrieval, long answers, agents.
_LENGTHS: dict[Split, list[tuple[float, float]]] = {
    "tuning": [(400.0, 250.0), (1500.0, 150.0), (300.0, 900.0)],
    "scored": [(250.0, 350.0), (2500.0, 200.0), (600.0, 600.0), (200.0, 1500.0)],
    "fresh": [(800.0, 400.0), (3500.0, 300.0), (150.0, 700.0), (1000.0, 1100.0), (120.0, 180.0)],
    "sealed": [(500.0, 300.0), (2000.0, 400.0), (250.0, 1000.0), (1200.0, 120.0), (700.0, 700.0)],
}
_LENGTHS["sealed2"] = _LENGTHS["sealed"]
_LENGTHS["sealed3"] = _LENGTHS["sealed"]
_LENGTHS["sealed4"] = [
    (350.0, 450.0),
    (1600.0, 250.0),
    (180.0, 850.0),
    (900.0, 160.0),
    (550.0, 550.0),
    (2800.0, 350.0),
    (400.0, 1300.0),
]
_LENGTHS["small"] = _LENGTHS["sealed"] + _LENGTHS["fresh"]
_LENGTHS["broad"] = _LENGTHS["small"] + _LENGTHS["scored"] + _LENGTHS["tuning"]
# Blocks of a pool: 24,000 to 800,000 tokens; half of `serving_logs` have more than 476,000.
_SIZES: dict[Split, list[int]] = {
    "tuning": [6000, 20_000],
    "scored": [4000, 10_000, 30_000],
    "fresh": [3000, 8000, 16_000, 50_000],
    "small": [1500, 1500, 1500, 2500, 4000],
    "broad": [1500, 3000, 4000, 5000, 6000, 9000, 14_000, 20_000, 32_000],
    "sealed": [1500, 4000, 6000, 12_500, 25_000, 40_000],
    "sealed4": [1750, 4200, 5500, 8000, 15_000, 35_000],
}
_SIZES["sealed2"] = _SIZES["sealed"]
_SIZES["sealed3"] = _SIZES["sealed"]
# Splits whose engines all have a speed of their own, and whose capacity was found over a longer time.
_LATER: tuple[Split, ...] = ("fresh", "small", "broad", "sealed", "sealed2", "sealed3", "sealed4")
# Splits in which each size of pool has as many runs of a family as the others.
_EVEN: tuple[Split, ...] = ("broad", "sealed3", "sealed4")
# As a share of a family's seeds. Runs of large pools take longest, and `fresh` has most of them.
_SEEDS: dict[Split, float] = {
    "tuning": 2.0,
    "scored": 1.0,
    "fresh": 0.5,
    "small": 0.5,
    "sealed": 0.5,
    "sealed2": 0.5,
    "broad": 2.25,
    "sealed3": 1.5,
    "sealed4": 0.6,
}
# Any number that the simulator never reaches.
_NO_LIMIT = 100_000
# A queue of so many requests will not go away.
_BACKLOG = 500


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
    make: Callable[[Rng, Split], Scene]
    seeds: int
    splits: tuple[Split, ...] = SPLITS


class _Server:
    """The lengths of requests, the pool and the speed of the server of one scene."""

    def __init__(self, draw: Rng, split: Split, *, has_own_speed: bool = False) -> None:
        prompt, output = draw.choice(_LENGTHS[split])
        self.lengths = Traffic(
            Rate(((0.0, 1.0),)),
            prompt_tokens=prompt * draw.uniform(0.8, 1.25),
            output_tokens=output * draw.uniform(0.8, 1.25),
            prompt_spread=draw.uniform(0.4, 0.9),
            output_spread=draw.uniform(0.4, 0.9),
            prefix_share=draw.choice([0.0, 0.5, 0.9]),
        )
        self.blocks = draw.choice(_SIZES[split])
        if split in _EVEN:
            self.blocks = _SIZES[split][draw.turn % len(_SIZES[split])]
        self.speed = _draw_speed(draw, split) if has_own_speed or split in _LATER else Speed()
        # Near its end the use of a pool settles only after minutes, so 180 s find more than it can hold:
        # some runs of `tuning` and `scored` that are meant to be quiet almost fill it, and stay as they were.
        self._trial_s = 600 if split in _LATER else 180
        self._capacity: float | None = None

    @property
    def capacity(self) -> float:
        """Requests a second that keep the pool about full: found by running it for a while."""
        if self._capacity is None:
            low, high = 0.05, 200.0
            for _ in range(9):
                rate = (low * high) ** 0.5
                low, high = (low, rate) if self._is_exhausted_by(rate) else (rate, high)
            self._capacity = low
        return self._capacity

    def _is_exhausted_by(self, rate: float) -> bool:
        server = self.start([(0.0, rate)], 7)
        engine = server.engines[0]
        for at_s in range(60, self._trial_s + 1, 60):
            server.advance(float(at_s))
            if engine.counters.preemptions > 0 or len(engine.waiting) > _BACKLOG:
                return True
        return len(engine.waiting) > 5 or engine.used_share > 0.95

    def start(self, points: Points, seed: int, most: int = _NO_LIMIT) -> SimulatedServer:
        """Return a server under so many requests a second."""
        return make_server(self.make_setup(replace(self.lengths, rate_per_s=Rate(tuple(points))), most), seed)

    def make_setup(self, traffic: Traffic, most: int) -> ServerSetup:
        return ServerSetup(traffic=traffic, blocks=self.blocks, most_sequences=most, speed=self.speed)

    def load(self, points: Points, most: int = 256) -> ServerSetup:
        """Return a server under a load over time, as shares of its capacity."""
        rates = Rate(tuple((at_s, share * self.capacity) for at_s, share in points))
        return self.make_setup(replace(self.lengths, rate_per_s=rates), most)

    def count_running(self, seed: int = 5) -> tuple[int, float]:
        """Return how many sequences run near the end of the pool, and the share of it that they use."""
        server = self.start([(0.0, 0.9 * self.capacity)], seed, 256)
        server.advance(240.0)
        if server.engines[0].counters.preemptions:
            server = SimulatedServer(server.setup, seed)
            server.advance(240.0)
        engine = server.engines[0]
        return max(4, len(engine.running)), max(0.5, engine.used_share)


def _draw_speed(draw: Rng, split: Split) -> Speed:
    """Return how fast an engine is: a small model on a large device, or a large one."""
    slower = draw.choice([0.7, 2.0] if split == "tuning" else [0.5, 1.0, 1.6, 3.0])
    return Speed(
        12_000.0 / slower,
        0.012 * slower,
        0.00015 * slower * draw.uniform(0.3, 1.2),
        draw.choice([0.0, 5e-8] if split == "tuning" else [0.0, 3e-8, 1e-7]),
    )


def _steady(draw: Rng, split: Split) -> Scene:
    server = _Server(draw, split)
    setup = server.load([(0.0, draw.uniform(0.15, 0.6))])
    return Scene(setup, 7200.0, is_limit_known=draw.random() < 0.5)


def _waves(draw: Rng, split: Split) -> Scene:
    """Load that goes up and down within half an hour to three hours, never enough to fill the pool."""
    server = _Server(draw, split)
    period_s = draw.uniform(1800.0, 7200.0) if split == "tuning" else draw.uniform(1200.0, 10_800.0)
    low, high = draw.uniform(0.1, 0.3), draw.uniform(0.45, 0.65)
    points = []
    for turn in range(12):
        points += [(turn * period_s, low), ((turn + 0.5) * period_s, high * draw.uniform(0.85, 1.0))]
    return Scene(server.load(points), 10_800.0)


def _bursts(draw: Rng, split: Split) -> Scene:
    """Short bursts of one and a half to three times the usual load."""
    server = _Server(draw, split)
    usual = draw.uniform(0.1, 0.25)
    points = [(0.0, usual)]
    at_s = 300.0
    while at_s < 7000.0:
        length_s = draw.uniform(20.0, 120.0)
        peak = min(0.6, usual * draw.uniform(1.5, 3.0))
        points += [(at_s, usual), (at_s + 1, peak), (at_s + length_s, peak), (at_s + length_s + 1, usual)]
        at_s += length_s + draw.uniform(120.0, 900.0)
    return Scene(server.load(points), 7200.0)


def _ramp(draw: Rng, split: Split) -> Scene:
    """Load that grows steadily beyond what the pool can hold."""
    server = _Server(draw, split)
    start = draw.uniform(0.1, 0.4)
    begin_s = draw.uniform(600.0, 1800.0)
    length_s = draw.uniform(600.0, 3600.0) if split == "tuning" else draw.uniform(400.0, 5400.0)
    points = [(0.0, start), (begin_s, start), (begin_s + length_s, draw.uniform(1.3, 1.8))]
    return Scene(server.load(points, _NO_LIMIT), begin_s + length_s + 900.0, begin_s)


def _knee(draw: Rng, split: Split) -> Scene:
    """Load that grows slowly, then faster: half of it in the last third."""
    server = _Server(draw, split)
    start = draw.uniform(0.1, 0.3)
    begin_s = draw.uniform(600.0, 1200.0)
    length_s = draw.uniform(900.0, 3600.0)
    points = [
        (0.0, start),
        (begin_s, start),
        (begin_s + 2 / 3 * length_s, start + 0.35),
        (begin_s + length_s, draw.uniform(1.3, 1.7)),
    ]
    return Scene(server.load(points, _NO_LIMIT), begin_s + length_s + 600.0, begin_s)


def _capped(draw: Rng, split: Split) -> Scene:
    """More load than the engine computes, but fewer sequences at once than exhaust the pool: a queue."""
    server = _Server(draw, split)
    running, used = server.count_running()
    most = max(3, int(running * draw.uniform(0.45, 0.65) / used))
    begin_s = draw.uniform(600.0, 1800.0)
    points = [(0.0, 0.2), (begin_s, 0.2), (begin_s + draw.uniform(300.0, 1800.0), 1.2)]
    return Scene(server.load(points, most), 5400.0, is_limit_known=draw.random() < 0.5)


def _plateau(draw: Rng, split: Split) -> Scene:
    """Load that grows for minutes, as in the morning, and then stays below what fills the pool."""
    server = _Server(draw, split)
    low, high = draw.uniform(0.1, 0.2), draw.uniform(0.4, 0.6)
    begin_s = draw.uniform(600.0, 1800.0)
    points = [(0.0, low), (begin_s, low), (begin_s + draw.uniform(300.0, 1800.0), high)]
    return Scene(server.load(points), 7200.0)


def _steps(draw: Rng, split: Split) -> Scene:
    """Clients that come and go in groups: the load jumps every quarter of an hour or so."""
    server = _Server(draw, split)
    points = []
    at_s = 0.0
    while at_s < 7200.0:
        share = draw.uniform(0.1, 0.55)
        length_s = draw.uniform(300.0, 1500.0)
        points += [(at_s, share), (at_s + length_s - 5.0, share)]
        at_s += length_s
    return Scene(server.load(points), 7200.0)


def _surge(draw: Rng, split: Split) -> Scene:
    """Load that goes up and down for hours and then beyond what the pool can hold."""
    server = _Server(draw, split)
    period_s = draw.uniform(1200.0, 3600.0)
    points = []
    for turn in range(2):
        points += [(turn * period_s, 0.15), ((turn + 0.5) * period_s, draw.uniform(0.4, 0.55))]
    begin_s = 2 * period_s
    points += [(begin_s, 0.15), (begin_s + draw.uniform(600.0, 2400.0), draw.uniform(1.2, 1.6))]
    return Scene(server.load(points, _NO_LIMIT), points[-1][0] + 600.0, begin_s)


def _rush(draw: Rng, split: Split) -> Scene:
    """Load that grows within minutes beyond what the pool can hold."""
    server = _Server(draw, split, has_own_speed=True)
    start = draw.uniform(0.1, 0.5)
    begin_s = draw.uniform(600.0, 1800.0)
    length_s = draw.uniform(240.0, 700.0)
    points = [(0.0, start), (begin_s, start), (begin_s + length_s, draw.uniform(1.3, 1.8))]
    return Scene(server.load(points, _NO_LIMIT), begin_s + length_s + 900.0, begin_s)


def _swell(draw: Rng, split: Split) -> Scene:
    """Load that grows within minutes to what the pool still holds, stays, and goes again."""
    server = _Server(draw, split, has_own_speed=True)
    low = draw.uniform(0.1, 0.3)
    points = []
    at_s = 0.0
    while at_s < 7200.0:
        high = draw.uniform(0.4, 0.65)
        for length_s, share in (
            (draw.uniform(600.0, 1800.0), low),
            (draw.uniform(200.0, 900.0), low),
            (draw.uniform(600.0, 2400.0), high),
            (draw.uniform(200.0, 900.0), high),
        ):
            points.append((at_s, share))
            at_s += length_s
    return Scene(server.load(points), 7200.0)


def _smooth(draw: Rng, split: Split) -> Scene:
    """Smooth waves of half an hour to two and a half hours, each with a height of its own."""
    server = _Server(draw, split)
    period_s = draw.uniform(1800.0, 9000.0)
    low = draw.uniform(0.05, 0.2)
    points = []
    for turn in range(8):
        high = draw.uniform(0.5, 0.65)
        for part in range(16):
            share = low + (high - low) * (1 - math.cos(2 * math.pi * part / 16)) / 2
            points.append(((turn + part / 16) * period_s, share))
    return Scene(server.load(points), 10_800.0)


def _sprint(draw: Rng, split: Split) -> Scene:
    """Load that is at its height within three to ten minutes, far beyond what the pool can hold."""
    server = _Server(draw, split)
    start = draw.uniform(0.2, 0.5)
    begin_s = draw.uniform(900.0, 2400.0)
    length_s = draw.uniform(200.0, 600.0)
    points = [(0.0, start), (begin_s, start), (begin_s + length_s, draw.uniform(1.2, 2.0))]
    return Scene(server.load(points, _NO_LIMIT), begin_s + length_s + 900.0, begin_s)


def _outgrow(draw: Rng, split: Split) -> Scene:
    """As many requests as before, whose prompts and outputs get longer until the pool cannot hold them."""
    server = _Server(draw, split)
    begin_s = draw.uniform(600.0, 1800.0)
    length_s = draw.uniform(900.0, 3600.0)
    setup = server.load([(0.0, draw.uniform(0.3, 0.5))], _NO_LIMIT)
    length = Rate(((0.0, 1.0), (begin_s, 1.0), (begin_s + length_s, draw.uniform(2.5, 4.0))))
    traffic = replace(setup.traffic, length=length)
    return Scene(replace(setup, traffic=traffic), begin_s + length_s + 900.0, begin_s)


def _clients(draw: Rng, split: Split) -> Scene:
    """Clients who wait for each answer before they ask again become too many for the pool."""
    server = _Server(draw, split)
    begin_s = draw.uniform(600.0, 1800.0)
    length_s = draw.uniform(600.0, 3600.0)
    start, end = draw.uniform(0.1, 0.3), draw.uniform(1.4, 2.0)
    points = [(0.0, start), (begin_s, start), (begin_s + length_s, end)]
    setup = _ask_in_turn(server, points, draw.uniform(10.0, 90.0), _NO_LIMIT)
    return Scene(setup, begin_s + length_s + 900.0, begin_s)


def _crowd(draw: Rng, split: Split) -> Scene:
    """Clients who wait for each answer come and go, never enough of them to fill the pool."""
    server = _Server(draw, split)
    points = []
    at_s = 0.0
    while at_s < 7200.0:
        points.append((at_s, draw.uniform(0.1, 0.55)))
        at_s += draw.uniform(300.0, 1500.0)
    return Scene(_ask_in_turn(server, points, draw.uniform(10.0, 90.0), 256), 7200.0)


def _stairs(draw: Rng, split: Split) -> Scene:
    """Groups of users join one after another until the pool cannot hold them."""
    server = _Server(draw, split)
    share = draw.uniform(0.1, 0.3)
    at_s = begin_s = draw.uniform(900.0, 2400.0)
    points = [(0.0, share), (at_s, share)]
    while share < 1.3:
        share += draw.uniform(0.08, 0.2)
        length_s = draw.uniform(180.0, 600.0)
        points += [(at_s + 20.0, share), (at_s + length_s, share)]
        at_s += length_s
    return Scene(server.load(points, _NO_LIMIT), at_s + 600.0, begin_s)


def _doubling(draw: Rng, split: Split) -> Scene:
    """Load that doubles every few minutes to half an hour until it exceeds what the pool can hold."""
    server = _Server(draw, split)
    start = draw.uniform(0.08, 0.25)
    begin_s = draw.uniform(600.0, 1800.0)
    double_s = draw.uniform(240.0, 1500.0)
    points = [(0.0, start)]
    points += [(begin_s + part / 8 * double_s, start * 2 ** (part / 8)) for part in range(36)]
    points = [point for point in points if point[1] <= 1.8]
    return Scene(server.load(points, _NO_LIMIT), points[-1][0] + 900.0, begin_s)


def _lull(draw: Rng, split: Split) -> Scene:
    """Load that falls for a while, as over lunch, and then grows beyond what the pool can hold."""
    server = _Server(draw, split)
    usual, least = draw.uniform(0.4, 0.55), draw.uniform(0.1, 0.3)
    fall_s, begin_s = draw.uniform(1200.0, 2400.0), draw.uniform(3000.0, 4800.0)
    length_s = draw.uniform(500.0, 3000.0)
    points = [
        (0.0, usual),
        (fall_s, usual),
        (fall_s + 400.0, least),
        (begin_s, least),
        (begin_s + length_s, draw.uniform(1.3, 1.8)),
    ]
    return Scene(server.load(points, _NO_LIMIT), begin_s + length_s + 900.0, begin_s)


def _drift(draw: Rng, split: Split) -> Scene:
    """Load that grows for two hours up to what the pool still holds."""
    server = _Server(draw, split)
    points = [(0.0, draw.uniform(0.1, 0.3)), (7200.0, draw.uniform(0.45, 0.6))]
    return Scene(server.load(points), 7200.0)


def _terrace(draw: Rng, split: Split) -> Scene:
    """Load that grows within minutes to one height after another; the pool holds all of them."""
    server = _Server(draw, split)
    points = [(0.0, 0.15)]
    at_s = 900.0
    for share in sorted(draw.uniform(0.2, 0.6) for _ in range(4)):
        points += [(at_s, points[-1][1]), (at_s + draw.uniform(120.0, 600.0), share)]
        at_s += draw.uniform(1200.0, 2400.0)
    return Scene(server.load(points), 9000.0)


def _ask_in_turn(server: _Server, points: Points, think_s: float, most: int) -> ServerSetup:
    running, used = server.count_running()
    clients = running / used + server.capacity * think_s
    traffic = replace(
        server.lengths,
        rate_per_s=Rate(tuple((at_s, share * clients) for at_s, share in points)),
        think_s=think_s,
    )
    return server.make_setup(traffic, most)


EARLIER: tuple[Split, ...] = ("tuning", "scored", "fresh", "broad")
LATEST: tuple[Split, ...] = ("small", "broad", "sealed", "sealed2", "sealed3", "sealed4")
FAMILIES = (
    Family("steady", _steady, 24),
    Family("waves", _waves, 24, EARLIER),
    Family("bursts", _bursts, 24),
    Family("capped", _capped, 16),
    Family("ramp", _ramp, 40),
    Family("knee", _knee, 24, (*EARLIER, "sealed4")),
    Family("plateau", _plateau, 24, ("tuning", "broad")),
    Family("steps", _steps, 32, ("scored", "fresh", "broad", "sealed4")),
    Family("surge", _surge, 32, ("scored", "fresh", "small", "broad", "sealed4")),
    Family("rush", _rush, 40, ("tuning", "broad")),
    Family("swell", _swell, 40, ("tuning", "small", "broad", "sealed4")),
    Family("smooth", _smooth, 32, ("fresh", "small", "broad", "sealed4")),
    Family("sprint", _sprint, 32, ("fresh", *LATEST)),
    Family("outgrow", _outgrow, 24, ("fresh", *LATEST)),
    Family("clients", _clients, 32, ("fresh", *LATEST)),
    Family("crowd", _crowd, 32, ("fresh", *LATEST)),
    Family("stairs", _stairs, 32, LATEST),
    Family("doubling", _doubling, 32, LATEST),
    Family("lull", _lull, 32, LATEST),
    Family("drift", _drift, 32, LATEST),
    Family("terrace", _terrace, 32, LATEST),
)


def list_serving_tasks(*splits: Split) -> list[Task]:
    return [
        (split, at, seed)
        for split in splits
        for at, family in enumerate(FAMILIES)
        for seed in range(round(_SEEDS[split] * family.seeds))
        if split in family.splits
    ]


def name_serving_family(task: Task) -> str:
    return FAMILIES[task[1]].name


def find_seed(task: Task) -> int:
    """Return the seed of a task's scene and traffic, the same in every process."""
    split, at, seed = task
    return zlib.crc32(f"serving/{split}/{FAMILIES[at].name}/{seed}".encode())


def _make_rng(task: Task) -> Rng:
    draw = Rng(find_seed(task))
    draw.turn = task[2]
    return draw


def find_blocks(task: Task) -> int:
    """Return the blocks of a task's pool, without making its scene."""
    return _Server(_make_rng(task), task[0]).blocks


def make_scene(task: Task) -> tuple[Scene, int]:
    """Return the scene of a task and the seed of its traffic."""
    split, at, _ = task
    return FAMILIES[at].make(_make_rng(task), split), find_seed(task)
