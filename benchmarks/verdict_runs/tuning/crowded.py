"""Runs on a card that they nearly need, and some of them end by fragmentation; to tune on."""

import numpy as np

from ..growth import find_new_heights, fit_steps, hold
from ..job import CONTEXT_BYTES, GIB, Job, Rng, draw_log, round_block
from ..run import Family, Scene
from ..shape import Shape
from ..truth import Leak


def run_replay_buffer(rng: Rng, span_s: float) -> Scene:
    """A buffer of episodes of any size that is filled and then turned over, under lengths of many buckets."""
    job, held_bytes = _draw_crowded(rng, 0.65)
    buckets = np.geomspace(0.25, 1.0, int(rng.integers(4, 24)))
    plan = fit_steps(rng, job, span_s, rng.choice(buckets, 1613))
    count = len(plan.ends_s)
    sizes = rng.lognormal(0, rng.uniform(0.2, 1.0), count) * (rng.random(count) < rng.uniform(0.1, 1.0))
    fill_s = draw_log(rng, 200, 3000)
    slots = max(4, int(np.searchsorted(plan.ends_s, fill_s)))
    added = np.cumsum(sizes)
    kept = added - np.concatenate((np.zeros(min(slots, count)), added[: max(0, count - slots)]))
    fills = (Leak(0.0, float(plan.ends_s[min(slots, count) - 1])),)
    return Scene((hold(plan, kept / max(kept.max(), 1e-9) * held_bytes),), fills=fills)


def run_scored_batches(rng: Rng, span_s: float) -> Scene:
    """Results that are gathered and let go again every so many steps, under log-normal lengths."""
    job, held_bytes = _draw_crowded(rng, 0.55)
    lengths = np.minimum(rng.lognormal(-0.7, rng.uniform(0.2, 0.5), 2017), 1.0)
    plan = fit_steps(rng, job, span_s, lengths)
    index = np.arange(len(plan.ends_s))
    every = int(rng.integers(20, 400))
    share = rng.uniform(0.4, 1.0, len(index) // every + 1)[index // every]
    kept = (index % every) / every * share * held_bytes
    return Scene((hold(plan, kept),), fills=find_new_heights(plan, kept, 0.05 * job.headroom_bytes))


def run_documents_by_turns(rng: Rng, span_s: float) -> Scene:
    """Sources of unlike lengths by turns, and states of sessions that begin and end."""
    job, held_bytes = _draw_crowded(rng, 0.45)
    stay = int(rng.integers(10, 200))
    scale = np.repeat(rng.uniform(0.3, 1.0, 300), stay)
    plan = fit_steps(rng, job, span_s, scale * rng.uniform(0.7, 1.0, len(scale)))
    count = len(plan.ends_s)
    load = np.zeros(count)
    for at in range(1, count):
        load[at] = 0.98 * load[at - 1] + rng.normal(0, 0.2)
    kept = np.clip(0.5 + load / (4 * max(load.std(), 1e-9)), 0.05, 1.0) * held_bytes
    return Scene((hold(plan, kept),), fills=find_new_heights(plan, kept, 0.05 * job.headroom_bytes))


def run_tight_but_even(rng: Rng, span_s: float) -> Scene:
    """Steps of one or two lengths on a card that they nearly fill; a part of what is held comes and goes."""
    job, held_bytes = _draw_crowded(rng, 0.85)
    plan = fit_steps(rng, job, span_s, rng.choice([rng.uniform(0.5, 1.0), 1.0], 1013))
    index = np.arange(len(plan.ends_s))
    every = int(rng.integers(2, 60))
    fill_s = draw_log(rng, 30, 600)
    kept = np.minimum(1, plan.ends_s / fill_s) * (0.7 + 0.3 * (index % every) / every) * held_bytes
    return Scene((hold(plan, kept),), fills=(Leak(0.0, fill_s),))


def _draw_crowded(rng: Rng, least_share: float) -> tuple[Job, float]:
    """Return a job on a card that it nearly needs, and the bytes that it holds between steps in addition.

    Its largest step takes at least `least_share` of what is left.
    """
    capacity = int(rng.choice([24, 40, 80])) * GIB
    state = round_block(capacity * rng.uniform(0.1, 0.4))
    held_bytes = capacity * rng.uniform(0.08, 0.3)
    most = (capacity - CONTEXT_BYTES - state - held_bytes) * rng.uniform(least_share, 0.97)
    return Job(capacity, state, round_block(most), draw_log(rng, 0.5, 2.0)), held_bytes


SHAPES = (Shape("live", 1.0), Shape("live", 2.0, jitter=0.05), Shape("live", 5.0))
CROWDED = tuple(
    Family(make.__name__.removeprefix("run_"), make, 5400.0, SHAPES, 18)
    for make in (run_replay_buffer, run_scored_batches, run_documents_by_turns, run_tight_but_even)
)
