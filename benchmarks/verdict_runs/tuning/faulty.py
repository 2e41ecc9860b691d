"""Runs that go wrong, to tune on."""

import numpy as np

from ..growth import (
    draw_life,
    draw_onset,
    draw_watch,
    find_events,
    fit_steps,
    grow_evenly,
    hold,
    leak_from,
    mark_every,
    take,
)
from ..job import Rng, draw_job, draw_log
from ..run import Family, Scene
from ..shape import FAST_SHAPES, LONG_SHAPES, SHORT_SHAPES, Shape
from ..surroundings import Surroundings
from ..truth import Leak


def run_kept_losses(rng: Rng, span_s: float) -> Scene:
    """A list of losses, each with what its graph keeps: the same every step."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 900, min(9000, span_s / 2))
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s))
    return leak_from(hold(plan, grow_evenly(plan, onset_s, rate)), onset_s)


def run_kept_losses_fast(rng: Rng, span_s: float) -> Scene:
    """The same within minutes, seen many times a second."""
    job = draw_job(rng, (0.15, 0.5))
    life_s, rate = draw_life(rng, job, 240, 900)
    plan = fit_steps(rng, job, draw_watch(rng, life_s))
    return leak_from(hold(plan, grow_evenly(plan, 0.0, rate)), 0.0)


def run_uniform_lengths_leak(rng: Rng, span_s: float) -> Scene:
    """A leak under lengths that vary by a factor of four."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1800, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s), rng.uniform(0.25, 1.0, 50_000))
    return leak_from(hold(plan, grow_evenly(plan, onset_s, rate)), onset_s)


def run_eval_staircase(rng: Rng, span_s: float) -> Scene:
    """Something stays behind after every evaluation."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 3600, span_s / 2)
    period_s = life_s / rng.uniform(12, 60)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s))
    counts = mark_every(plan, period_s, onset_s)
    plan = hold(plan, counts * rate * period_s)
    return leak_from(take(plan, find_events(counts) * 0.1 * job.headroom_bytes), onset_s)


def run_burst(rng: Rng, span_s: float) -> Scene:
    """Every 25th step keeps what it logged."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1200, min(9000, span_s / 2))
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s))
    begun = np.maximum(0, np.arange(len(plan.ends_s)) - int(onset_s / job.step_s)) // 25
    return leak_from(hold(plan, begun * 25 * job.step_s * rate), onset_s)


def run_days(rng: Rng, span_s: float) -> Scene:
    """A leak that takes days, under long steps."""
    job = draw_job(rng, (12.0, 30.0))
    life_s, rate = draw_life(rng, job, 0.5 * span_s, 0.9 * span_s)
    plan = fit_steps(rng, job, draw_watch(rng, life_s))
    return leak_from(hold(plan, grow_evenly(plan, 0.0, rate)), 0.0)


def run_host_list(rng: Rng, span_s: float) -> Scene:
    """Host memory that grows evenly, to a tenth or more of the host within the run; the card is flat."""
    job = draw_job(rng)
    onset_s = float(rng.uniform(0, 0.3) * span_s)
    moments = np.array([0.0, onset_s, span_s])
    resident = np.array([6.0, 6.0, 6.0 + rng.uniform(60, 240)]) * 2**30
    around = Surroundings(host_s=moments, host_bytes=resident)
    return Scene((fit_steps(rng, job, span_s),), (Leak(onset_s, span_s, "host"),), surroundings=around)


def run_growing_sequence(rng: Rng, span_s: float) -> Scene:
    """Sequences that grow until a step no longer fits; nothing is kept."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 900, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + 1.6 * life_s)
    return Scene((take(plan, grow_evenly(plan, onset_s, rate)),), growth_s=onset_s)


def run_rare_long_batch(rng: Rng, span_s: float) -> Scene:
    """Lengths with a log-normal tail; one in some thousand does not fit."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s / 2)
    sigma = rng.uniform(0.2, 0.4)
    quantile = draw_log(rng, 3.0, 3.7)
    shares = rng.lognormal(0.0, sigma, len(plan.ends_s)) / np.exp(sigma * quantile)
    most = job.limit_bytes - job.state_bytes
    return Scene((take(plan, shares * most - plan.activation_bytes),))


HOURS_6 = 6 * 3600.0
SLOW_SHAPES = (Shape("live", 10.0), Shape("series", 10.0, has_steps=False), Shape("series", 10.0))
FAULTY = (
    Family("kept_losses", run_kept_losses, HOURS_6, SHORT_SHAPES, 16),
    Family("kept_losses_fast", run_kept_losses_fast, 1500.0, FAST_SHAPES, 6),
    Family("uniform_lengths_leak", run_uniform_lengths_leak, HOURS_6, SHORT_SHAPES, 16),
    Family("eval_staircase", run_eval_staircase, HOURS_6, LONG_SHAPES, 8),
    Family("burst", run_burst, HOURS_6, SHORT_SHAPES, 8),
    Family("days", run_days, 48 * 3600.0, SLOW_SHAPES, 3),
    Family("host_list", run_host_list, 3 * 3600.0, SHORT_SHAPES[::3], 4),
    Family("growing_sequence", run_growing_sequence, HOURS_6, SHORT_SHAPES, 8),
    Family("rare_long_batch", run_rare_long_batch, HOURS_6, SHORT_SHAPES, 8),
)
