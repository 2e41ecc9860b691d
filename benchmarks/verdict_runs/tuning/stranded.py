"""Runs whose end no straight line forecasts: memory is stranded, or goes up and down; to tune on."""

import numpy as np

from ..growth import (
    draw_life,
    draw_onset,
    draw_watch,
    fit_steps,
    grow_evenly,
    hold,
    keep_portions,
    leak_from,
    take,
)
from ..job import Rng, draw_job
from ..run import Family, Scene
from ..shape import FAST_SHAPES, SHORT_SHAPES


def run_kept_outputs(rng: Rng, span_s: float) -> Scene:
    """Outputs that are gathered, as long as their batch: lengths rise and fall between two buckets."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1200, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    lengths = rng.triangular(0.1, 0.3, 1.0, 20_001)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s), lengths)
    return leak_from(keep_portions(plan, np.resize(lengths, len(plan.ends_s)), onset_s, rate), onset_s)


def run_kept_now_and_then(rng: Rng, span_s: float) -> Scene:
    """One step in some keeps a large piece; the lengths of steps are of three buckets."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1200, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s), rng.choice([0.5, 0.75, 1.0], 10_007))
    portions = (rng.random(len(plan.ends_s)) < 1 / rng.integers(3, 30)).astype(np.float64)
    return leak_from(keep_portions(plan, portions, onset_s, rate), onset_s)


def run_kept_in_minutes(rng: Rng, span_s: float) -> Scene:
    """Unlike portions of each step, within minutes."""
    job = draw_job(rng, (0.1, 0.4))
    life_s, rate = draw_life(rng, job, 240, 1000)
    plan = fit_steps(rng, job, draw_watch(rng, life_s), rng.uniform(0.6, 1.0, 701))
    return leak_from(keep_portions(plan, rng.gamma(2.0, 1.0, len(plan.ends_s)), 0.0, rate), 0.0)


def run_faster_and_faster(rng: Rng, span_s: float) -> Scene:
    """What is kept doubles in some share of the life."""
    job = draw_job(rng)
    life_s, _ = draw_life(rng, job, 1800, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s))
    pace = rng.uniform(0.7, 2.2)
    passed = np.maximum(plan.ends_s - onset_s, 0.0) / life_s
    return leak_from(hold(plan, np.expm1(pace * passed) / np.expm1(pace) * job.headroom_bytes), onset_s)


def run_leak_under_evals(rng: Rng, span_s: float) -> Scene:
    """A leak, and some steps of evaluation now and then that take more than training and end the run."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1800, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s), rng.uniform(0.85, 1.0, 503))
    passed_s = plan.ends_s % rng.uniform(90, 400)
    lasts_s = rng.uniform(2, 6) * job.step_s
    plan = take(plan, (passed_s < lasts_s) * job.headroom_bytes * rng.uniform(0.1, 0.35))
    return leak_from(hold(plan, grow_evenly(plan, onset_s, rate)), onset_s)


def run_validation_pile(rng: Rng, span_s: float) -> Scene:
    """Results that pile up through a validation and are let go after it, but for some of them."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 3600, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s))
    period_s, lasts = life_s / rng.uniform(12, 40), rng.uniform(0.05, 0.3)
    phase = np.maximum(plan.ends_s - onset_s, 0.0) / period_s
    pile = np.clip((phase % 1.0 - (1 - lasts)) / lasts, 0.0, 1.0) * rng.uniform(0.03, 0.25)
    kept = np.floor(phase) * rate * period_s
    return leak_from(hold(plan, kept + pile * (plan.ends_s > onset_s) * job.headroom_bytes), onset_s)


def run_trimmed_now_and_then(rng: Rng, span_s: float) -> Scene:
    """A buffer that is cut back at moments of chance, always by less than it has grown."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1800, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s))
    grown = grow_evenly(plan, onset_s, rate * rng.uniform(1.3, 2.5))
    cuts = np.maximum.accumulate(np.where(rng.random(len(grown)) < 60.0 / len(grown), grown, 0.0))
    target = grow_evenly(plan, onset_s, rate)
    return leak_from(hold(plan, np.interp(cuts, grown, target) + grown - cuts), onset_s)


def run_longer_and_longer(rng: Rng, span_s: float) -> Scene:
    """Two kinds of documents, short ones that stay as they are and long ones that become longer."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1500, span_s / 2)
    onset_s = float(rng.uniform(0, 0.3) * life_s)
    plan = fit_steps(rng, job, onset_s + 1.6 * life_s, rng.uniform(0.8, 1.0, 1013))
    is_long = rng.random(len(plan.ends_s)) < rng.uniform(0.2, 0.8)
    more = grow_evenly(plan, onset_s, rate) * is_long * rng.uniform(0.9, 1.0, len(plan.ends_s))
    return Scene((take(plan, more),), growth_s=onset_s)


def run_larger_batches(rng: Rng, span_s: float) -> Scene:
    """A batch that is raised by a fixed share at unlike moments, until it does not fit."""
    job = draw_job(rng)
    life_s, _ = draw_life(rng, job, 2400, span_s / 2)
    onset_s = float(rng.uniform(100, 2000))
    plan = fit_steps(rng, job, onset_s + 1.6 * life_s)
    count = int(rng.integers(12, 50))
    moments = onset_s + np.cumsum(rng.gamma(6.0, 1 / 6, 2 * count)) * life_s / count
    raised = np.searchsorted(moments, plan.ends_s) / count
    return Scene((take(plan, raised * job.headroom_bytes),), growth_s=float(moments[0]))


HOURS_6 = 6 * 3600.0
_MAKERS = (
    run_kept_outputs,
    run_kept_now_and_then,
    run_faster_and_faster,
    run_leak_under_evals,
    run_validation_pile,
    run_trimmed_now_and_then,
    run_longer_and_longer,
    run_larger_batches,
)
STRANDED = (
    *(Family(make.__name__.removeprefix("run_"), make, HOURS_6, SHORT_SHAPES, 8) for make in _MAKERS),
    Family("kept_in_minutes", run_kept_in_minutes, 1500.0, FAST_SHAPES, 6),
)
