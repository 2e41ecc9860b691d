"""Leaks that are scored; most fill the card, some are watched through part of their life."""

import numpy as np

from ..growth import (
    draw_life,
    draw_onset,
    draw_watch,
    find_events,
    fit_steps,
    grow_evenly,
    hold,
    keep_portions,
    leak_from,
    mark_every,
    take,
)
from ..job import Rng, draw_job, draw_log, plan_steps
from ..run import Family, Scene
from ..shape import FAST_SHAPES, LONG_SHAPES, SHORT_SHAPES, Shape
from ..surroundings import Surroundings
from ..truth import Leak

HOURS_6 = 6 * 3600.0


def run_grad_sample_kept(rng: Rng, span_s: float) -> Scene:
    """Gradients of each sample: gathered over the steps of a batch, let go with it but for some."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1200, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s))
    gathered = (np.arange(len(plan.ends_s)) % int(rng.integers(4, 17))) / 16
    plan = hold(plan, gathered * 0.15 * job.headroom_bytes)
    return leak_from(hold(plan, grow_evenly(plan, onset_s, 0.85 * rate)), onset_s)


def run_growing_key_cache(rng: Rng, span_s: float) -> Scene:
    """Keys and values that are never dropped: as much as each sequence is long."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 900, min(10_000, span_s / 2))
    onset_s = draw_onset(rng, life_s)
    lengths = np.minimum(rng.lognormal(-1.2, 0.5, 30_011), 1.0)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s), lengths)
    return leak_from(keep_portions(plan, np.resize(lengths, len(plan.ends_s)), onset_s, rate), onset_s)


def run_retained_hooks(rng: Rng, span_s: float) -> Scene:
    """A hook that keeps the outputs of some steps, at random."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1200, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s), rng.choice([0.4, 0.6, 0.8, 1.0], 20_011))
    weights = (rng.random(len(plan.ends_s)) < rng.uniform(0.05, 0.5)).astype(np.float64)
    return leak_from(keep_portions(plan, weights, onset_s, rate), onset_s)


def run_evaluated_with_grad(rng: Rng, span_s: float) -> Scene:
    """Evaluation without no_grad: graphs pile up through it, most go with it, the outputs stay."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 3600, span_s / 2)
    period_s = life_s / rng.uniform(15, 50)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s))
    passed = ((plan.ends_s - onset_s) % period_s) / period_s
    is_evaluating = (plan.ends_s > onset_s) & (passed < 0.1)
    plan = hold(plan, is_evaluating * passed * job.headroom_bytes)
    return leak_from(hold(plan, mark_every(plan, period_s, onset_s) * rate * period_s), onset_s)


def run_late_onset(rng: Rng, span_s: float) -> Scene:
    """Well for hours, then a leak that fills the card within the hour."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 900, 4000)
    onset_s = float(rng.uniform(1800, 10_000))
    shares = np.repeat(rng.uniform(0.3, 1.0, 30), 37)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s), shares)
    return leak_from(hold(plan, grow_evenly(plan, onset_s, rate)), onset_s)


def run_days_of_lengths(rng: Rng, span_s: float) -> Scene:
    """Days of long steps of all lengths, and a little kept of each."""
    job = draw_job(rng, (10.0, 40.0))
    life_s, rate = draw_life(rng, job, 0.3 * span_s, 0.9 * span_s)
    shares = rng.uniform(0.3, 1.0, 7919)
    plan = fit_steps(rng, job, draw_watch(rng, life_s), shares)
    return leak_from(hold(plan, grow_evenly(plan, 0.0, rate)), 0.0)


def run_accelerating(rng: Rng, span_s: float) -> Scene:
    """A leak that becomes faster: what is kept grows itself."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1800, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s))
    even = grow_evenly(plan, onset_s, rate)
    return leak_from(hold(plan, even * (0.4 + 0.6 * even / job.headroom_bytes)), onset_s)


def run_partial_release(rng: Rng, span_s: float) -> Scene:
    """A list that is trimmed now and then, by less than what was added since."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1800, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s))
    period_s, share = life_s / rng.uniform(20, 60), rng.uniform(0.3, 0.6)
    since_s = np.maximum(plan.ends_s - onset_s, 0) % period_s
    even = grow_evenly(plan, onset_s, rate)
    return leak_from(hold(plan, even + share / (1 - share) * rate * since_s), onset_s)


def run_two_leaks(rng: Rng, span_s: float) -> Scene:
    """A leak that stops, a long while of peace, and another that fills the card."""
    job = draw_job(rng)
    first_s, pause_s = float(rng.uniform(1200, 4000)), float(rng.uniform(2400, 5400))
    second_s = draw_log(rng, 1200, 4000)
    onset_s = float(rng.uniform(60, 900))
    again_s = onset_s + first_s + pause_s
    plan = fit_steps(rng, job, again_s + 1.6 * second_s)
    first = np.clip((plan.ends_s - onset_s) / first_s, 0, 1) * rng.uniform(0.3, 0.45)
    second = np.maximum(plan.ends_s - again_s, 0) / second_s * 0.6
    leaks = (Leak(onset_s, onset_s + first_s), Leak(again_s, float("inf")))
    return Scene((hold(plan, (first + second) * job.headroom_bytes),), leaks, again_s)


def run_leak_after_restart(rng: Rng, span_s: float) -> Scene:
    """A healthy process, and after its end another version that leaks from its start."""
    job = draw_job(rng)
    well = plan_steps(job, rng, rng.uniform(1200, 5000), shares=rng.uniform(0.6, 1.0, 997))
    start_s = float(well.ends_s[-1]) + float(rng.uniform(5, 60))
    life_s, rate = draw_life(rng, job, 900, 6000)
    plan = plan_steps(job, rng, draw_watch(rng, life_s), shares=rng.uniform(0.6, 1.0, 997), start_s=start_s)
    plan = hold(plan, grow_evenly(plan, start_s, rate))
    return Scene((well, plan), (Leak(start_s, float("inf")),), start_s)


def run_leak_under_spikes(rng: Rng, span_s: float) -> Scene:
    """A leak under evaluations that take far more than a step, so that one of them ends the run."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1800, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s), rng.uniform(0.7, 1.0, 1009))
    spikes = find_events(mark_every(plan, draw_log(rng, 60, 300), 30.0))
    plan = take(plan, spikes * job.headroom_bytes * rng.uniform(0.1, 0.4))
    return leak_from(hold(plan, grow_evenly(plan, onset_s, rate)), onset_s)


def run_minutes(rng: Rng, span_s: float) -> Scene:
    """A leak that takes minutes, in unlike portions, seen many times a second."""
    job = draw_job(rng, (0.1, 0.4))
    life_s, rate = draw_life(rng, job, 200, 1000)
    plan = fit_steps(rng, job, draw_watch(rng, life_s), rng.uniform(0.5, 1.0, 499))
    return leak_from(keep_portions(plan, rng.exponential(1.0, len(plan.ends_s)), 0.0, rate), 0.0)


def run_host_queue(rng: Rng, span_s: float) -> Scene:
    """A queue on the host that is filled in bursts and never emptied."""
    onset_s = float(rng.uniform(0, 0.3) * span_s)
    moments = np.linspace(0, span_s, 600)
    bursts = np.cumsum(rng.exponential(1.0, 600) * (moments > onset_s))
    resident = 2**33 + bursts / bursts[-1] * rng.uniform(60, 240) * 2**30
    around = Surroundings(host_s=moments, host_bytes=resident)
    leaks = (Leak(onset_s, span_s, "host"),)
    return Scene((fit_steps(rng, draw_job(rng), span_s),), leaks, surroundings=around)


_MAKERS = (
    run_grad_sample_kept,
    run_growing_key_cache,
    run_retained_hooks,
    run_late_onset,
    run_accelerating,
    run_partial_release,
    run_two_leaks,
    run_leak_after_restart,
    run_leak_under_spikes,
)
SLOW_SHAPES = (Shape("series", 10.0), Shape("live", 10.0), Shape("series", 10.0, has_steps=False))
LEAKS = (
    *(Family(make.__name__.removeprefix("run_"), make, HOURS_6, SHORT_SHAPES, 12) for make in _MAKERS),
    Family("evaluated_with_grad", run_evaluated_with_grad, HOURS_6, LONG_SHAPES, 12),
    Family("days_of_lengths", run_days_of_lengths, 60 * 3600.0, SLOW_SHAPES, 6),
    Family("minutes", run_minutes, 1500.0, FAST_SHAPES, 9),
    Family("host_queue", run_host_queue, 3 * 3600.0, SHORT_SHAPES[6:7], 6),
)
