"""How well preemptions can be forecast at all, on the simulated servers of `serving_verdicts`.

A forecaster that knows the complete state of the simulator, the laws of its traffic and the arrival rate asks
many futures of each moment how often a preemption comes within some minutes. No forecaster that reads metrics
knows more of the present; what it misses is chance. Its words open, stand and close as those of the product,
and are scored by the same code.

    python -m benchmarks.serving_bound --tokens 24000

needs a C compiler: the futures are computed by `serving_rollouts.c`, an exact copy of the simulator.
"""

import argparse
import ctypes
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramscope.analyzers.serving import arrivals
from vramscope.analyzers.serving.analyzer import HOLD_S, STANDS_SHARE
from vramscope.engine.errors import UsageError
from vramscope.engine.workloads.serving.pool import Engine, Rate, Request, Traffic
from vramscope.engine.workloads.serving.server import SimulatedServer

from .compiled import load_compiled
from .measure.tables import format_number, format_table
from .serving_scenes import (
    SPLITS,
    Scene,
    Task,
    find_blocks,
    list_serving_tasks,
    make_scene,
    name_serving_family,
)
from .serving_verdicts import READ_EVERY_S, Watched, score_serving

LOOK_EVERY_S = 20
HORIZONS_S = (180, 240, 300)
FUTURES = 100
SCREEN = 25
"""Where so many futures have no preemption, the others count as having none."""
SLOPE_S = 60.0
LEVEL_S = 60.0
THRESHOLDS = (0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5)
LOOKS = (2, 3)
"""Looks in a row that must agree."""
BLOCK_TOKENS = 16


class Knowledge(NamedTuple):
    """What a forecaster knows of the requests."""

    lengths: str
    """`law`: how outputs of present requests are distributed, given their length so far; `drawn`: how long
    each will be."""
    rate: str
    """`now`: the true rate, which is taken to stay; `trend`: it and its slope over a minute; `coming`: the
    true rate of the next minutes; `counted`: an estimate from the requests that came."""


KNOWLEDGES = (
    Knowledge("law", "now"),
    Knowledge("drawn", "now"),
    Knowledge("law", "trend"),
    Knowledge("law", "coming"),
    Knowledge("law", "counted"),
)

_MOST_PREFIXES = 64
_SEQUENCE = np.dtype(
    {
        "names": [
            "prompt",
            "output",
            "prefix",
            "prefix_tokens",
            "own",
            "shared",
            "computed",
            "generated",
            "output_median",
        ],
        "formats": ["i8", "i8", "i4", "i4", "i4", "i4", "f8", "f8", "f8"],
    }
)
_NO_REQUEST = (0,) * 9
Sequences = npt.NDArray[np.void]
Numbers = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int32]


def _list_fields(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class State(ctypes.Structure):
    """`State` of `serving_rollouts.c`."""

    _fields_ = [
        *_list_fields(ctypes.c_int32, "blocks block_tokens most_sequences running waiting used left idle"),
        *_list_fields(ctypes.c_int32 * _MOST_PREFIXES, "idle_key idle_blocks busy_blocks busy_count"),
        *_list_fields(ctypes.c_double, "prefill_per_s step_s sequence_s token_s"),
        *_list_fields(ctypes.c_double, "prompt_median prompt_spread output_median output_spread"),
        *_list_fields(ctypes.c_int32, "prefixes prefix_tokens"),
        ("prefix_share", ctypes.c_double),
        ("longest", ctypes.c_int64),
        ("think_s", ctypes.c_double),
        *_list_fields(ctypes.c_int32, "redraws seconds"),
    ]


@cache
def load_library() -> ctypes.CDLL:
    """Compile and load `serving_rollouts.c`; raises as `load_compiled` does."""
    return load_compiled("serving_rollouts.c")


def describe_state(engine: Engine, traffic: Traffic, seconds: int) -> tuple[State, Sequences]:
    """Return an engine for the C simulator, and its requests: those that run, then those that wait."""
    setup, state = engine.setup, State()
    state.blocks, state.block_tokens = setup.blocks, setup.block_tokens
    state.most_sequences = setup.most_sequences
    state.running, state.waiting = len(engine.running), len(engine.waiting)
    state.used, state.left = engine.used_blocks, sum(engine._left)
    state.idle = len(engine._idle)
    for at, (key, blocks) in enumerate(engine._idle.items()):
        state.idle_key[at], state.idle_blocks[at] = key, blocks
    for key, (blocks, sharing) in engine._busy.items():
        state.busy_blocks[key], state.busy_count[key] = blocks, sharing
    speed = setup.speed
    state.prefill_per_s, state.step_s = speed.prefill_tokens_per_s, speed.step_base_s
    state.sequence_s, state.token_s = speed.step_sequence_s, speed.step_token_s
    state.prompt_median, state.prompt_spread = traffic.prompt_tokens, traffic.prompt_spread
    state.output_median, state.output_spread = traffic.output_tokens, traffic.output_spread
    state.prefixes, state.prefix_tokens = traffic.prefixes, traffic.prefix_tokens
    state.prefix_share, state.longest = traffic.prefix_share, traffic.longest
    state.think_s, state.seconds = traffic.think_s or 0.0, seconds
    rows = [
        (
            *_describe_request(it.request),
            it.own_blocks,
            it.shared_blocks,
            it.computed,
            it.generated,
            traffic.output_tokens * (traffic.length.at(it.request.arrived_s) if traffic.length else 1.0),
        )
        for it in (*engine.running, *engine.waiting)
    ]
    return state, np.array(rows, dtype=_SEQUENCE)


def _describe_request(request: Request) -> tuple[int, int, int, int]:
    prefix = -1 if request.prefix is None else request.prefix
    return request.prompt_tokens, request.output_tokens, prefix, request.prefix_tokens


def _point_to(values: npt.NDArray[np.generic]) -> ctypes.c_void_p:
    return values.ctypes.data_as(ctypes.c_void_p)


def replay_requests(state: State, present: Sequences, coming: Sequence[Sequence[Request]]) -> int:
    """Return the second of the first preemption if these requests come; one more than all where none is."""
    counts = np.array([*map(len, coming), 0], np.int32)
    rows = [(*_describe_request(request), 0, 0, 0.0, 0.0, 1.0) for of in coming for request in of]
    given = np.array([*rows, _NO_REQUEST], dtype=_SEQUENCE)
    found = np.zeros(1, np.int32)
    load_library().roll_ahead(
        ctypes.byref(state),
        _point_to(present),
        None,
        None,
        _point_to(counts),
        _point_to(given),
        1,
        1,
        ctypes.c_uint64(0),
        _point_to(found),
    )
    return int(found[0])


def roll_ahead(
    state: State, present: Sequences, rates: Numbers, factors: Numbers, *, futures: int, seed: int
) -> Counts:
    """Return the second of the first preemption in each future; one more than there are where none comes.

    Args:
        rates: Requests of each second to come, or clients if they think between requests.
        factors: Factor on lengths in each second to come.
    """
    found = np.zeros(futures, np.int32)
    load_library().roll_ahead(
        ctypes.byref(state),
        _point_to(present),
        _point_to(rates),
        _point_to(factors),
        None,
        None,
        futures,
        SCREEN,
        ctypes.c_uint64(seed),
        _point_to(found),
    )
    return found


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
    server = SimulatedServer(scene.setup, number)
    engine = server.engines[0]
    counted: arrivals._Rate | None = None
    asked, levels, times = 0, [], []
    used: list[float] = []
    chances: list[list[list[float]]] = []
    while server.now_s < scene.duration_s:
        server.advance(server.now_s + READ_EVERY_S)
        used.append(engine.used_share)
        if engine.counters.first_preemption_s is not None:
            break
        if int(server.now_s) % int(5 * READ_EVERY_S) == 0:
            arrived = engine.counters.finished + len(engine.running) + len(engine.waiting)
            per_s = (arrived - asked) / (5 * READ_EVERY_S)
            asked = arrived
            if counted is None:
                counted = arrivals._Rate(per_s, 5 * READ_EVERY_S)
            else:
                counted.add(per_s, 5 * READ_EVERY_S)
        if int(server.now_s) % LOOK_EVERY_S or server.now_s < LEVEL_S or counted is None:
            continue
        newest = used[-round(LEVEL_S / READ_EVERY_S) :]
        times.append(server.now_s)
        levels.append(sum(newest) / len(newest))
        chances.append(_find_chances(scene, server, counted, futures))
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
    scene: Scene, server: SimulatedServer, counted: arrivals._Rate, futures: int
) -> list[list[float]]:
    """Return the chances of a preemption within each horizon, by knowledge."""
    traffic, now_s = scene.setup.traffic, server.now_s
    seconds = max(HORIZONS_S)
    state, present = describe_state(server.engines[0], traffic, seconds)
    found = []
    for at, knowledge in enumerate(KNOWLEDGES):
        state.redraws = knowledge.lengths == "law"
        rates = _foresee(traffic.rate_per_s, knowledge.rate, now_s, seconds)
        if knowledge.rate == "counted" and traffic.think_s is None:
            rates = np.array([counted.ahead(second) for second in range(seconds)])
        factors = _foresee(traffic.length or Rate(((0.0, 1.0),)), knowledge.rate, now_s, seconds)
        seed = hash((len(present), int(now_s), at)) & 0xFFFFFFFF
        first = roll_ahead(state, present, rates, factors, futures=futures, seed=seed)
        found.append([float(np.mean(first <= horizon)) for horizon in HORIZONS_S])
    return found


def _foresee(rate: Rate, known: str, now_s: float, seconds: int) -> Numbers:
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_bound", description=__doc__)
    parser.add_argument("--split", choices=SPLITS, default="sealed")
    parser.add_argument("--tokens", nargs="+", type=int, default=[24_000], help="sizes of pools")
    parser.add_argument("--every", type=int, default=1, help="only each N-th seed")
    parser.add_argument("--futures", type=int, default=FUTURES)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    load_library()
    tasks = [
        task
        for task in list_serving_tasks(options.split)
        if task[2] % options.every == 0 and find_blocks(task) * BLOCK_TOKENS in options.tokens
    ]
    if not tasks:
        raise UsageError(f"{options.split} has no run with a pool of {options.tokens} tokens and such a seed")
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        looked = list(pool.map(partial(look_at_run, futures=options.futures), tasks))
    title = f"The best of any threshold, {len(looked)} runs of {options.split} (simulated servers)"
    head = ["knows", "≤ 1 false in 100 h", "≥ 95 % forecast", "quiet hours"]
    print(format_table(title, head, list(list_rows(looked))), end="\n\n")
    for at, knowledge in enumerate(KNOWLEDGES):
        if knowledge.rate in ("now", "counted") and knowledge.lengths == "law":
            print(format_curve(looked, at), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
