"""Runs that end by fragmentation, with much of the card free; scored by themselves."""

import numpy as np

from ..growth import find_new_heights, fit_steps, hold
from ..job import CONTEXT_BYTES, GIB, Job, Rng, draw_log, round_block
from ..run import Family, Scene
from ..shape import Shape
from ..truth import Leak


def run_cache_among_lengths(rng: Rng, span_s: float) -> Scene:
    """A cache that fits is filled and then turned over piece by piece, among steps of all lengths."""
    job, cache_bytes = _draw_crowded(rng, (0.15, 0.3))
    plan = fit_steps(rng, job, span_s, rng.uniform(0.3, 1.0, 1501))
    count = len(plan.ends_s)
    turned = rng.uniform(0.005, 0.03, count) * (np.arange(count) % 2)
    fill_s = draw_log(rng, 300, 4000)
    filled = np.minimum(1, plan.ends_s / fill_s)
    return Scene((hold(plan, cache_bytes * filled * (1 - turned)),), fills=(Leak(0.0, fill_s),))


def run_outputs_in_stretches(rng: Rng, span_s: float) -> Scene:
    """Outputs that come and go in a random walk, under lengths that stay for a while and then change."""
    job, most_bytes = _draw_crowded(rng, (0.1, 0.25))
    stay = int(rng.integers(5, 60))
    lengths = np.repeat(rng.choice([0.25, 0.5, 0.75, 1.0], 400, p=[0.3, 0.3, 0.3, 0.1]), stay)
    plan = fit_steps(rng, job, span_s, lengths)
    count = len(plan.ends_s)
    pieces = int(rng.integers(20, 120))
    each = int(rng.integers(2, 12))
    walk = np.abs(np.cumsum(rng.integers(-1, 2, count // each + 1)))
    held = np.minimum(walk, pieces)[np.arange(count) // each] * most_bytes / pieces
    return Scene((hold(plan, held),), fills=find_new_heights(plan, held, 0.05 * job.headroom_bytes))


def _draw_crowded(rng: Rng, held: tuple[float, float]) -> tuple[Job, float]:
    """Return a job on a card that it nearly needs, and the bytes that it holds between steps in addition."""
    capacity = int(rng.choice([24, 40, 80])) * GIB
    state = round_block(capacity * rng.uniform(0.15, 0.35))
    held_bytes = capacity * rng.uniform(*held)
    most = (capacity - CONTEXT_BYTES - state - held_bytes) * rng.uniform(0.75, 0.97)
    return Job(capacity, state, round_block(most), draw_log(rng, 0.5, 2.0)), held_bytes


FRAGMENTED = tuple(
    Family(make.__name__.removeprefix("run_"), make, 5400.0, (Shape("live", 1.0), Shape("live", 2.0)), 14)
    for make in (run_cache_among_lengths, run_outputs_in_stretches)
)
