"""Caches that fill ever more slowly, and growth that rests or is hidden for a while; to tune on."""

import numpy as np

from ..growth import draw_life, draw_onset, draw_watch, fit_steps, grow_evenly, hold, leak_from, take
from ..job import Rng, draw_job, draw_log
from ..run import Family, Scene
from ..shape import SHORT_SHAPES, VARIED_SHAPES


def run_first_uses(rng: Rng, span_s: float) -> Scene:
    """Items that are kept from their first use on, of a pool of equals or with some asked for more."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.6, 1.0, 1447) if rng.random() < 0.5 else None)
    count = int(draw_log(rng, 64, 4096))
    weights = 1.0 / np.arange(1, count + 1) ** (0.0 if rng.random() < 0.5 else rng.uniform(0.3, 1.2))
    each = int(rng.integers(1, 4))
    asked = rng.choice(count, size=(len(plan.ends_s), each), p=weights / weights.sum()).ravel()
    is_new = np.zeros(len(asked))
    is_new[np.unique(asked, return_index=True)[1]] = 1.0
    filled = np.cumsum(is_new.reshape(-1, each).sum(axis=1)) / count
    return Scene((hold(plan, filled * job.headroom_bytes * rng.uniform(0.08, 0.5)),))


def run_memo_of_results(rng: Rng, span_s: float) -> Scene:
    """A table whose misses become rarer by a power of time, in pieces."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.6, 1.0, 1447) if rng.random() < 0.5 else None)
    fill = (plan.ends_s / plan.ends_s[-1]) ** rng.uniform(0.3, 0.75)
    pieces = rng.uniform(60, 1000)
    held = np.floor(fill * pieces) / pieces * rng.uniform(0.08, 0.5)
    return Scene((hold(plan, held * job.headroom_bytes),))


def run_leak_with_rests(rng: Rng, span_s: float) -> Scene:
    """A leak of the training loop, which rests while something else is done for a while."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1200, span_s / 3)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, 1.5 * life_s), rng.uniform(0.8, 1.0, 919))
    spans = rng.gamma(3.0, life_s / rng.uniform(20, 60), (400, 2)) * (1.0, rng.uniform(0.2, 0.8))
    edges = np.concatenate(([0.0], np.cumsum(spans.ravel())))
    worked_s = np.concatenate(([0.0], np.cumsum((spans * (1.0, 0.0)).ravel())))
    return leak_from(hold(plan, np.interp(plan.ends_s - onset_s, edges, worked_s) * rate), onset_s)


def run_leak_under_stretches(rng: Rng, span_s: float) -> Scene:
    """A leak under lengths that stay as they are for some dozens to hundreds of steps."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1000, min(8000, span_s / 2))
    onset_s = draw_onset(rng, life_s) + float(rng.uniform(0, 3000))
    stretches = rng.integers(10, 400, 500)
    lengths = np.repeat(rng.uniform(0.35, 1.0, 500), stretches)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s), lengths)
    return leak_from(hold(plan, grow_evenly(plan, onset_s, rate)), onset_s)


def run_scattered_lengths_grow(rng: Rng, span_s: float) -> Scene:
    """Lengths of a wide distribution whose scale grows until a step does not fit."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1500, span_s / 2)
    onset_s = float(rng.uniform(0, 0.3) * life_s)
    plan = fit_steps(rng, job, onset_s + 1.6 * life_s)
    shares = rng.beta(3.0, rng.uniform(1.0, 3.0), len(plan.ends_s))
    more = shares * (job.activation_bytes + grow_evenly(plan, onset_s, rate)) - plan.activation_bytes
    return Scene((take(plan, more),), growth_s=onset_s)


HOURS_4, HOURS_6 = 4 * 3600.0, 6 * 3600.0
UNEVEN = (
    *(
        Family(make.__name__.removeprefix("run_"), make, HOURS_4, VARIED_SHAPES, 18)
        for make in (run_first_uses, run_memo_of_results)
    ),
    *(
        Family(make.__name__.removeprefix("run_"), make, HOURS_6, SHORT_SHAPES, 16)
        for make in (run_leak_with_rests, run_leak_under_stretches, run_scattered_lengths_grow)
    ),
)
