"""Runs out of memory without a leak: steps that grow, and rare steps that are too large."""

import numpy as np

from ..growth import draw_life, fit_steps, mark_every, take
from ..job import Rng, draw_job, draw_log
from ..run import Family, Scene
from ..shape import SHORT_SHAPES

HOURS_6 = 6 * 3600.0


def run_batch_ladder(rng: Rng, span_s: float) -> Scene:
    """A batch that is made larger every few minutes until it no longer fits."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 2400, span_s / 2)
    onset_s = float(rng.uniform(100, 2000))
    period_s = life_s / rng.uniform(15, 60)
    plan = fit_steps(rng, job, onset_s + 1.6 * life_s)
    return Scene((take(plan, mark_every(plan, period_s, onset_s) * period_s * rate),), growth_s=onset_s)


def run_growing_documents(rng: Rng, span_s: float) -> Scene:
    """Lengths that vary by a half, and grow on the whole."""
    job = draw_job(rng)
    life_s, _ = draw_life(rng, job, 1500, span_s / 2)
    onset_s = float(rng.uniform(0, 0.3) * life_s)
    plan = fit_steps(rng, job, onset_s + 1.6 * life_s)
    grown = 1 + np.maximum(plan.ends_s - onset_s, 0) / life_s * job.headroom_bytes / job.activation_bytes
    lengths = rng.uniform(0.5, 1.0, len(plan.ends_s))
    return Scene((take(plan, (grown * lengths - 1) * job.activation_bytes),), growth_s=onset_s)


def run_pareto_batch(rng: Rng, span_s: float) -> Scene:
    """Pareto lengths without a longest one: sooner or later a batch does not fit."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s / 2)
    most = job.limit_bytes - job.state_bytes
    alpha = rng.uniform(2.5, 4.0)
    least = rng.uniform(500, 8000) ** (-1 / alpha)
    lengths = np.minimum(least * (1 + rng.pareto(alpha, len(plan.ends_s))), 1.3)
    return Scene((take(plan, lengths * most - plan.activation_bytes),))


def run_odd_document(rng: Rng, span_s: float) -> Scene:
    """Lengths within narrow bounds, and one batch in thousands that is twice as long and does not fit."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s / 2, rng.uniform(0.8, 1.0, 7001))
    is_odd = rng.random(len(plan.ends_s)) < 1 / draw_log(rng, 800, 8000)
    return Scene((take(plan, is_odd * 1.1 * job.headroom_bytes),))


OVERRUNS = (
    Family("batch_ladder", run_batch_ladder, HOURS_6, SHORT_SHAPES, 12),
    Family("growing_documents", run_growing_documents, HOURS_6, SHORT_SHAPES, 12),
    Family("pareto_batch", run_pareto_batch, HOURS_6, SHORT_SHAPES, 10),
    Family("odd_document", run_odd_document, HOURS_6, SHORT_SHAPES, 8),
)
