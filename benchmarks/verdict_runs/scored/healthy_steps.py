"""Healthy runs whose steps differ: lengths, spikes, ramps that end, other processes."""

import numpy as np

from ..growth import find_events, fit_steps, hold, mark_every, take
from ..job import Rng, draw_job, draw_log, plan_steps
from ..run import Family, Scene
from ..shape import LONG_SHAPES
from ..surroundings import Surroundings

HOURS_8 = 8 * 3600.0
SEEDS = 30


def run_long_steps(rng: Rng, span_s: float) -> Scene:
    """Steps of half a minute, all alike, as of a large pipeline."""
    return Scene((fit_steps(rng, draw_job(rng, (15.0, 60.0)), span_s),))


def run_sorted_buckets(rng: Rng, span_s: float) -> Scene:
    """Buckets of lengths, each for a while, from short to long and again from the start."""
    buckets = np.sort(rng.uniform(0.2, 1.0, int(rng.integers(4, 12))))
    shares = np.repeat(buckets, int(rng.integers(20, 200)))
    return Scene((fit_steps(rng, draw_job(rng), span_s, shares),))


def run_heavy_tail(rng: Rng, span_s: float) -> Scene:
    """Pareto lengths, cut off at a longest one that still fits."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    lengths = np.minimum(0.08 * (1 + rng.pareto(rng.uniform(1.5, 3.0), len(plan.ends_s))), 1.0)
    most = (job.limit_bytes - job.state_bytes) * rng.uniform(0.8, 0.88)
    return Scene((take(plan, lengths * most - plan.activation_bytes),))


def run_drifting_lengths(rng: Rng, span_s: float) -> Scene:
    """Lengths whose mean wanders and is drawn back."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    count = len(plan.ends_s)
    walk, noise = np.zeros(count), rng.normal(0, 0.02, count)
    for at in range(1, count):
        walk[at] = 0.998 * walk[at - 1] + noise[at]
    lengths = np.clip(0.6 + walk * 0.3 + rng.normal(0, 0.05, count), 0.1, 1.0)
    return Scene((take(plan, (lengths - 1) * job.activation_bytes),))


def run_length_ladder(rng: Rng, span_s: float) -> Scene:
    """Longer sequences every few minutes, each rung smaller than the last, up to a length that fits."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    rungs = int(rng.integers(4, 16))
    rung = np.minimum(mark_every(plan, draw_log(rng, 120, 1500), rng.uniform(60, 900)), rungs)
    return Scene((take(plan, np.sqrt(rung / rungs) * job.headroom_bytes * rng.uniform(0.05, 0.3)),))


def run_evaluate_and_save(rng: Rng, span_s: float) -> Scene:
    """Evaluations, and copies of the state that are held for minutes while they are written."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.7, 1.0, 5003))
    evals = find_events(mark_every(plan, draw_log(rng, 200, 900), 100.0))
    period_s = draw_log(rng, 1200, 5400)
    is_saving = (plan.ends_s % period_s) > period_s - rng.uniform(60, 300)
    plan = take(plan, evals * job.headroom_bytes * rng.uniform(0.1, 0.4))
    return Scene((hold(plan, is_saving * min(job.state_bytes / 3, 0.4 * job.headroom_bytes)),))


def run_neighbours(rng: Rng, span_s: float) -> Scene:
    """Small processes that come to the card at any time and stay for a while."""
    job = draw_job(rng)
    count = int(rng.integers(4, 20))
    starts = rng.uniform(0, span_s, count)
    ends = starts + rng.exponential(1800, count)
    sizes = rng.uniform(0.02, 0.5 / count, count) * job.headroom_bytes if count < 20 else np.zeros(count)
    moments = np.concatenate((starts, ends))
    changes = np.concatenate((sizes, -sizes))[np.argsort(moments)]
    held = np.maximum(np.cumsum(changes), 0).astype(np.int64)
    around = Surroundings(others_s=np.sort(moments), others_bytes=held)
    return Scene((fit_steps(rng, job, span_s),), surroundings=around)


def run_restarts(rng: Rng, span_s: float) -> Scene:
    """A job that is stopped and resumed many times, each time as it was, with other lengths."""
    job = draw_job(rng)
    plans, start_s, count = [], 0.0, int(rng.integers(4, 10))
    for _ in range(count):
        shares = rng.uniform(0.5, 1.0, 4001)
        plans.append(plan_steps(job, rng, 0.9 * span_s / count, shares=shares, start_s=start_s))
        start_s = float(plans[-1].ends_s[-1]) + float(rng.uniform(3, 300))
    return Scene(tuple(plans))


_MAKERS = (
    run_long_steps,
    run_sorted_buckets,
    run_heavy_tail,
    run_drifting_lengths,
    run_length_ladder,
    run_evaluate_and_save,
    run_neighbours,
    run_restarts,
)
HEALTHY_STEPS = tuple(
    Family(make.__name__.removeprefix("run_"), make, HOURS_8, LONG_SHAPES, SEEDS) for make in _MAKERS
)
