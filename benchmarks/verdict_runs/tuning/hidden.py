"""Growth of minutes that samples hide under the scatter of the steps; to tune on."""

import numpy as np

from ..growth import draw_life, draw_onset, draw_watch, fit_steps, grow_evenly, hold, keep_portions, leak_from
from ..job import Rng, draw_job
from ..run import Family, Scene
from ..shape import Shape
from ..truth import Leak

HOURS_3 = 3 * 3600.0
SEEDS = 15


def run_pieces_of_batches(rng: Rng, span_s: float) -> Scene:
    """A little of each batch is kept, unlike portions, for minutes, under lengths of a wide range."""
    job = draw_job(rng, (0.3, 2.0))
    life_s, rate = draw_life(rng, job, 280, 1500)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s), rng.uniform(0.4, 1.0, 1723))
    return leak_from(keep_portions(plan, rng.gamma(1.5, 1.0, len(plan.ends_s)), onset_s, rate), onset_s)


def run_kept_keys(rng: Rng, span_s: float) -> Scene:
    """Keys that are kept as long as their batch, for minutes to half an hour."""
    job = draw_job(rng, (0.3, 2.0))
    life_s, rate = draw_life(rng, job, 400, 1800)
    onset_s = draw_onset(rng, life_s)
    lengths = rng.beta(2.0, 2.0, 2129) * 0.8 + 0.2
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s), lengths)
    return leak_from(keep_portions(plan, np.resize(lengths, len(plan.ends_s)), onset_s, rate), onset_s)


def run_leak_after_leak(rng: Rng, span_s: float) -> Scene:
    """A leak that ends after a part of the room, a rest, and another one at a pace of its own."""
    job = draw_job(rng)
    first_s, second_s, rest_s = rng.uniform(400, 2000, 3)
    share = rng.uniform(0.1, 0.35)
    begin_s = float(rng.uniform(0, 900))
    onset_s = float(begin_s + first_s + rest_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, float(second_s)), rng.uniform(0.5, 1.0, 1511))
    first = np.clip((plan.ends_s - begin_s) / first_s, 0, 1) * share * job.headroom_bytes
    second = grow_evenly(plan, onset_s, (1 - share) * job.headroom_bytes / second_s)
    leaks = (Leak(begin_s, float(begin_s + first_s)), Leak(onset_s, float("inf")))
    return Scene((hold(plan, first + second),), leaks, onset_s)


def run_leak_after_long_peace(rng: Rng, span_s: float) -> Scene:
    """A leak that begins late, under lengths that vary by a factor of four."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 900, 3600)
    onset_s = float(rng.uniform(1200, 5000))
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s), rng.uniform(0.25, 1.0, 50_000))
    return leak_from(hold(plan, grow_evenly(plan, onset_s, rate)), onset_s)


SHAPES = (
    Shape("series", 1.0, has_steps=False, jitter=0.2),
    Shape("series", 15.0, jitter=0.1),
    Shape("series", 2.0, gaps=0.1),
    Shape("series", 5.0, has_steps=False),
    Shape("series", 0.5, has_steps=False),
)
_MAKERS = (run_pieces_of_batches, run_kept_keys, run_leak_after_leak, run_leak_after_long_peace)
HIDDEN = tuple(Family(make.__name__.removeprefix("run_"), make, HOURS_3, SHAPES, SEEDS) for make in _MAKERS)
