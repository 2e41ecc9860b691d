"""A run that the driver alone sees: how its used memory goes, when it is full, and its samples."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vramscope.engine.model import DeviceSample, MemoryReading, Sample

from ..job import GIB, MIB, Floats, Ints, Rng

NODE = "bench"
UUID = "GPU-00000000-0000-0000-0000-000000000002"
LEAST_RESERVE_SHARE = 0.002
MOST_RESERVE_SHARE = 0.015
"""Share of the card that nobody gets: where an allocation fails, the driver still reports so much free."""


@dataclass(frozen=True)
class Sampling:
    """How often used memory is read, and whether each tick has the least and most within it."""

    interval_s: float
    has_extremes: bool = False
    """As a live agent, which reads ten times a second; a table of nvidia-smi has the moment alone."""
    jitter: float = 0.01
    gaps: float = 0.0
    """Share of samples that are missing."""


SAMPLINGS = (
    Sampling(1.0, has_extremes=True),
    Sampling(1.0),
    Sampling(5.0),
    Sampling(0.1, jitter=0.1),
    Sampling(15.0),
    Sampling(2.0, has_extremes=True),
    Sampling(10.0, gaps=0.1),
    Sampling(0.5, jitter=0.2),
    Sampling(1.0, gaps=0.2),
    Sampling(15.0, jitter=0.2, gaps=0.05),
    Sampling(5.0, jitter=0.3),
)


@dataclass(frozen=True)
class Card:
    """A card, and the moments of a run on it."""

    capacity_bytes: int
    times_s: Floats
    """Moments, evenly spaced, from 0 on."""

    @property
    def span_s(self) -> float:
        """Seconds of the run."""
        return float(self.times_s[-1])

    @property
    def step_s(self) -> float:
        """Seconds between two moments."""
        return float(self.times_s[1] - self.times_s[0])


@dataclass(frozen=True)
class Course:
    """How used memory goes: bytes at each moment of the card, and since when it grows until it is full."""

    bytes: Floats
    growth_s: float | None = None
    """None where it is not to fill."""


@dataclass(frozen=True)
class DriverFamily:
    """A generator of runs of one kind."""

    name: str
    make: Callable[[Rng, Card], Course]
    shortest_s: float
    longest_s: float
    """Of the seconds that a run may last, log-uniform; one that fills ends where it is full."""
    fills: bool
    seeds: int = 22


@dataclass(frozen=True)
class DriverRun:
    """One run: its samples, and when it is full."""

    family: str
    name: str
    sampling: Sampling
    capacity_bytes: int
    times_s: Floats
    used_bytes: Ints
    growth_s: float | None
    full_s: float | None
    seed: int

    @property
    def duration_s(self) -> float:
        """Seconds until its end."""
        return float(self.times_s[-1])

    @property
    def precursor_s(self) -> float:
        """How long it grew until it was full; 0 where it never was."""
        return 0.0 if self.full_s is None or self.growth_s is None else self.full_s - self.growth_s

    def samples(self) -> Iterator[Sample]:
        """Yield what an agent, or the reader of a table, would have made of it."""
        rng = np.random.default_rng(self.seed)
        interval_s = self.sampling.interval_s
        count = int(self.duration_s / interval_s)
        offset_s = rng.uniform(0.02, 0.98) * interval_s
        at_s = offset_s + interval_s * (np.arange(count) + rng.normal(0.0, self.sampling.jitter, count))
        at_s = np.sort(at_s[(at_s > 0) & (at_s < self.duration_s)])
        at_s = at_s[rng.random(len(at_s)) >= self.sampling.gaps]
        at = np.searchsorted(self.times_s, at_s, side="right") - 1
        before = np.concatenate(([0], at[:-1]))
        for seq, (time_s, now, last) in enumerate(
            zip(at_s.tolist(), at.tolist(), before.tolist(), strict=True), 1
        ):
            used = int(self.used_bytes[now])
            least = most = None
            if self.sampling.has_extremes:
                within = self.used_bytes[last : now + 1]
                least, most = int(within.min()), int(within.max())
            memory = MemoryReading(self.capacity_bytes, used, self.capacity_bytes - used, least, most)
            device = DeviceSample(UUID, 0, "H100 80GB", memory=memory)
            yield Sample(NODE, seq, time_s, interval_s, (device,), clock="trace")


def make_driver_run(family: DriverFamily, seed: int) -> DriverRun:
    """Return one run; the same family and seed give the same run in every process."""
    number = zlib.crc32(f"{family.name}/{seed}".encode())
    rng = np.random.default_rng(number)
    sampling = SAMPLINGS[seed % len(SAMPLINGS)]
    span_s = float(np.exp(rng.uniform(np.log(family.shortest_s), np.log(family.longest_s))))
    if sampling.interval_s < 0.5:
        span_s = min(span_s, 3600.0)
    step_s = min(2.0, max(0.1, sampling.interval_s / 4))
    times_s = np.arange(0.0, span_s, step_s)
    capacity = int(rng.choice([16, 24, 40, 80, 141])) * GIB
    course = family.make(rng, Card(capacity, times_s))
    limit = capacity * (1.0 - rng.uniform(LEAST_RESERVE_SHARE, MOST_RESERVE_SHARE))
    own = rng.uniform(0.2, 0.7) * GIB
    used = np.minimum(course.bytes + own, limit)
    full = np.flatnonzero(used >= limit)
    full_s = float(times_s[full[0]]) if len(full) else None
    if family.fills and full_s is not None:
        times_s, used = times_s[: full[0] + 1], used[: full[0] + 1]
    growth_s = course.growth_s if full_s is not None else None
    exact = (used // MIB * MIB).astype(np.int64)
    name = f"{family.name}/{seed}"
    return DriverRun(family.name, name, sampling, capacity, times_s, exact, growth_s, full_s, number)


def make_driver_runs(families: Sequence[DriverFamily]) -> Iterator[DriverRun]:
    """Yield all runs of some families."""
    for family in families:
        for seed in range(family.seeds):
            yield make_driver_run(family, seed)
