"""Where the ticks of a hub, or the rows of a series, fall within the steps of a process."""

from dataclasses import dataclass

import numpy as np

from .counted import HEIGHT
from .job import LEAST_BLOCK_BYTES, Floats, Ints, Rng
from .life import Life
from .surroundings import Surroundings

HEIGHTS = ((0.0, 0.03, 0.45, 0.5, 0.88, 1.0), (0.0, 0.0, 1.0, 0.9, 0.0, 0.0))
"""How far between floor and peak a step is, by the share of its time that has passed."""
UPDATE = 0.4
"""Share of a step from which on what it keeps is there."""


@dataclass(frozen=True)
class Ticks:
    """Some ticks of one life, column by column."""

    times_s: list[float]
    allocated: list[int]
    allocated_max: list[int]
    reserved: list[int]
    stranded: list[int]
    retries: list[int]
    steps: list[int]
    within: list[int]
    floors: list[int]
    peaks: list[int]
    others: list[int]
    resident: list[int]


def tick_life(life: Life, surroundings: Surroundings, times: Floats, earlier: Floats, rng: Rng) -> Ticks:
    """Return what is there at some moments of a life.

    Args:
        life: The process.
        surroundings: What is around it.
        times: The moments, in seconds from the start of the run.
        earlier: The end of the tick before each.
        rng: How near the height of a step the quickest look came.
    """
    step, phase = _find_phase(life, times)
    allocated = _find_level(life, step, phase)
    previous = np.searchsorted(life.ends_s, earlier, side="right")
    ended = np.searchsorted(life.ends_s, times, side="right")
    floors, peaks = _find_bounds(life, previous, ended - previous)
    seen = allocated + ((peaks - allocated) * rng.uniform(0.9, 1.0, len(times))).astype(np.int64)
    columns = (
        times,
        allocated,
        np.maximum(allocated, np.where(ended > previous, _round(np.minimum(peaks, seen)), 0)),
        np.maximum(_find_reserved(life, step, phase), allocated),
        life.stranded_bytes[step],
        life.retries[step],
        ended,
        ended - previous,
        floors,
        peaks,
        surroundings.find_others(times),
        surroundings.find_resident(times),
    )
    return Ticks(*(column.tolist() for column in columns))


def _find_phase(life: Life, times: Floats) -> tuple[Ints, Floats]:
    """Return the step in progress at some moments, counted from 0, and how much of it has passed."""
    step = np.minimum(np.searchsorted(life.ends_s, times, side="right"), len(life.ends_s) - 1)
    begins = np.where(step > 0, life.ends_s[np.maximum(step - 1, 0)], life.start_s)
    return step, np.clip((times - begins) / np.maximum(life.ends_s[step] - begins, 1e-9), 0.0, 1.0)


def _find_reserved(life: Life, step: Ints, phase: Floats) -> Ints:
    """Return what is reserved: what a step takes for itself is there from its height on."""
    previous = life.reserved_bytes[np.maximum(step - 1, 0)]
    return np.where(phase >= HEIGHT, life.reserved_bytes[step], previous)


def _find_level(life: Life, step: Ints, phase: Floats) -> Ints:
    """Return what is allocated at some phases of some steps."""
    before, after = life.before_bytes[step], life.after_bytes[step]
    floor = np.where(phase < UPDATE, before, after)
    height = np.interp(phase, *HEIGHTS)
    return _round(floor + height * np.maximum(life.peak_bytes[step] - floor, 0))


def _round(sizes: Floats | Ints) -> Ints:
    return np.asarray(-(-sizes.astype(np.int64) // LEAST_BLOCK_BYTES) * LEAST_BLOCK_BYTES, dtype=np.int64)


def _find_bounds(life: Life, previous: Ints, within: Ints) -> tuple[Ints, Ints]:
    """Return the least floor and the highest peak of the steps that ended within each tick."""
    floor = np.minimum(life.before_bytes, life.after_bytes)
    at = np.minimum(previous, len(floor) - 1)
    floors, peaks = floor[at].copy(), life.peak_bytes[at].copy()
    for further in range(1, int(within.max(initial=0))):
        more = np.minimum(at + np.minimum(further, np.maximum(within - 1, 0)), len(floor) - 1)
        np.minimum(floors, floor[more], out=floors)
        np.maximum(peaks, life.peak_bytes[more], out=peaks)
    return floors, peaks
