"""A run: what it is called, what is true of it, and its samples."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vramscope.engine.model import Sample

from .counted import count_life
from .job import Ints, Plan, Rng
from .life import Life
from .modelled import model_life
from .observation import observe_lives
from .shape import Shape
from .surroundings import ALONE, Surroundings
from .truth import Leak, Truth

LONGEST_AT_ONE_SECOND_S = 7200.0
FAST_S, LONGEST_FAST_S = 0.5, 1500.0
MODELLED_STEPS = 12_000
"""Runs with more steps than this go by counters: the model would take minutes."""


@dataclass(frozen=True)
class Scene:
    """What a family makes: the processes of a run, one after another, and where they go wrong."""

    plans: tuple[Plan, ...]
    leaks: tuple[Leak, ...] = ()
    growth_s: float | None = None
    """When the growth begins that may end in an error."""
    surroundings: Surroundings = ALONE
    fills: tuple[Leak, ...] = ()
    """Healthy growth that nobody can distinguish from a leak until it ends."""


@dataclass(frozen=True)
class Family:
    """A generator of runs of one kind."""

    name: str
    make: Callable[[Rng, float], Scene]
    """Given numbers and the seconds that a run may last, the scene."""
    span_s: float
    shapes: tuple[Shape, ...]
    seeds: int = 8


@dataclass(frozen=True)
class Run:
    """One run of a family: labels, and samples that are made as they are asked for."""

    family: str
    name: str
    shape: Shape
    truth: Truth
    duration_s: float
    lives: tuple[Life, ...]
    surroundings: Surroundings
    seed: int
    is_modelled: bool
    """Whether the allocator model made it; else counters did."""

    def samples(self) -> Iterator[Sample]:
        """Yield what a hub, or a reader of a series, would have made of it."""
        return observe_lives(self.lives, self.shape, self.surroundings, self.duration_s, self.seed)

    @property
    def epoch_s(self) -> float:
        """What the samples' clock says at the start of the run."""
        return self.shape.epoch_s


def make_run(family: Family, seed: int) -> Run:
    """Return one run; the same family and seed give the same run in every process."""
    number = zlib.crc32(f"{family.name}/{seed}".encode())
    shape = family.shapes[seed % len(family.shapes)]
    span_s = limit_span(family.span_s, shape)
    scene = family.make(np.random.default_rng(number), span_s)
    is_modelled = sum(len(plan.durations_s) for plan in scene.plans) <= MODELLED_STEPS
    lives = tuple(_live(plan, scene.surroundings, is_modelled=is_modelled) for plan in scene.plans)
    end_s, oom_s = lives[-1].end_s, lives[-1].oom_s
    if any(life.oom_s is not None for life in lives[:-1]):
        raise ValueError(f"{family.name}/{seed}: a process before the last ran out of memory")
    truth = Truth(
        _clip(scene.leaks, end_s),
        oom_s,
        scene.growth_s if oom_s is not None else None,
        _clip(scene.fills, end_s),
        _measure_step(lives),
        None if oom_s is None else float(lives[-1].peak_bytes[-1] / lives[-1].job.limit_bytes),
    )
    return Run(
        family.name,
        f"{family.name}/{seed}",
        shape,
        truth,
        end_s,
        lives,
        scene.surroundings,
        number,
        is_modelled,
    )


def make_runs(families: Sequence[Family], every: int = 1) -> Iterator[Run]:
    """Yield the runs of some families, or each `every`-th of them."""
    numbered = [(family, seed) for family in families for seed in range(family.seeds)]
    for family, seed in numbered[::every]:
        yield make_run(family, seed)


def limit_span(span_s: float, shape: Shape) -> float:
    """Return how long a run may be: what is seen often is seen for less long, so that samples stay few."""
    if shape.interval_s < FAST_S:
        return min(span_s, LONGEST_FAST_S)
    return min(span_s, LONGEST_AT_ONE_SECOND_S) if shape.interval_s <= 1.0 else span_s


def _live(plan: Plan, surroundings: Surroundings, *, is_modelled: bool) -> Life:
    room = _find_room(plan, surroundings)
    return model_life(plan, room) if is_modelled else count_life(plan, room)


def _find_room(plan: Plan, surroundings: Surroundings) -> Ints | None:
    """Return what other processes leave of the card at each step, or None where there are none."""
    if not len(surroundings.others_s):
        return None
    return np.asarray(plan.job.limit_bytes - surroundings.find_others(plan.ends_s), dtype=np.int64)


def _measure_step(lives: Sequence[Life]) -> float:
    """Return the mean length of a step, in seconds."""
    return max(float(life.ends_s[-1] - life.start_s) / len(life.ends_s) for life in lives)


def _clip(leaks: Sequence[Leak], end_s: float) -> tuple[Leak, ...]:
    return tuple(replace(leak, end_s=min(leak.end_s, end_s)) for leak in leaks if leak.onset_s < end_s)
