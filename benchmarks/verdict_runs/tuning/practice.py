"""Runs as they are met in practice, seen at intervals of 0.1 to 15 s with jitter and gaps; to tune on."""

from collections.abc import Callable

import numpy as np

from ..growth import (
    draw_life,
    draw_onset,
    draw_watch,
    find_new_heights,
    fit_steps,
    grow_evenly,
    hold,
    keep_portions,
    leak_from,
    take,
)
from ..job import Rng, draw_job, draw_log, plan_steps
from ..run import Family, Scene
from ..shape import VARIED_FAST_SHAPES, VARIED_SHAPES, Shape
from ..surroundings import Surroundings
from ..truth import Leak

HOURS_4 = 4 * 3600.0
SEEDS = 9


def run_ramp_and_plateau(rng: Rng, span_s: float) -> Scene:
    """Sequences that grow for minutes to half an hour, to as much as half of what was free, and stay."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.9, 1.0, 701) if rng.random() < 0.5 else None)
    ramp = np.clip((plan.ends_s - rng.uniform(0, 900)) / draw_log(rng, 90, 2400), 0, 1)
    return Scene((take(plan, ramp * job.headroom_bytes * rng.uniform(0.2, 0.55)),))


def run_loaded_then_still(rng: Rng, span_s: float) -> Scene:
    """Embeddings that are cached on the card for some minutes, in portions, and kept."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.6, 1.0, 997) if rng.random() < 0.5 else None)
    start_s, length_s = float(rng.uniform(0, 500)), draw_log(rng, 150, 0.35 * span_s)
    portions = rng.gamma(2.0, 1.0, len(plan.ends_s)) * (plan.ends_s > start_s)
    portions *= plan.ends_s < start_s + length_s
    kept = np.cumsum(portions)
    share = job.headroom_bytes * rng.uniform(0.2, 0.6)
    return Scene(
        (hold(plan, kept / max(kept[-1], 1e-9) * share),), fills=(Leak(start_s, start_s + length_s),)
    )


def run_micro_batches(rng: Rng, span_s: float) -> Scene:
    """Floors that rise through the micro-batches of a step and fall at its end, by shares that vary."""
    job = draw_job(rng, (0.2, 2.0))
    plan = fit_steps(rng, job, span_s)
    count = int(rng.integers(3, 100))
    index = np.arange(len(plan.ends_s))
    height = rng.uniform(0.7, 1.0, len(index) // count + 1)[index // count]
    return Scene(
        (hold(plan, (index % count) / count * height * job.headroom_bytes * rng.uniform(0.05, 0.4)),)
    )


def run_gathered_outputs(rng: Rng, span_s: float) -> Scene:
    """Outputs that pile up for a while, at unlike distances, and are let go."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.8, 1.0, 613))
    starts = np.cumsum(rng.exponential(draw_log(rng, 500, 3000), 200)) + 100
    length_s = draw_log(rng, 20, 240)
    at = np.searchsorted(starts, plan.ends_s) - 1
    place = np.where(at >= 0, (plan.ends_s - starts[np.maximum(at, 0)]) / length_s, 2.0)
    return Scene((hold(plan, np.where(place < 1, place, 0) * job.headroom_bytes * rng.uniform(0.05, 0.5)),))


def run_rounds_of_results(rng: Rng, span_s: float) -> Scene:
    """Rounds at even distances: results pile up, are sorted for a while, and are let go."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.9, 1.0, 769) if rng.random() < 0.5 else None)
    every_s = draw_log(rng, 300, 2400)
    rises_s = min(draw_log(rng, 20, 400), 0.4 * every_s)
    stays_s = rises_s * float(rng.choice([0.0, 0.0, 0.2, 1.0]))
    round_, passed_s = np.divmod(plan.ends_s - rng.uniform(0, every_s), every_s)
    held = np.where(passed_s < rises_s + stays_s, np.minimum(passed_s / rises_s, 1.0), 0.0)
    heights = rng.uniform(rng.choice([0.85, 1.0]), 1.0, int(round_.max()) + 2)[round_.astype(int)]
    return Scene((hold(plan, held * heights * (round_ >= 0) * job.headroom_bytes * rng.uniform(0.1, 0.65)),))


def run_waves(rng: Rng, span_s: float) -> Scene:
    """What users ask for, in waves of tens of minutes."""
    job = draw_job(rng, (0.2, 1.0))
    plan = fit_steps(rng, job, span_s)
    waves = sum(np.sin(2 * np.pi * (plan.ends_s / draw_log(rng, 900, 9000) + rng.random())) for _ in range(3))
    kept = (0.5 + np.asarray(waves) / 7) * job.headroom_bytes * rng.uniform(0.3, 0.9)
    return Scene((hold(plan, kept),), fills=find_new_heights(plan, kept, 0.05 * job.headroom_bytes))


def run_guests(rng: Rng, span_s: float) -> Scene:
    """Another program takes more and more of the card for a while, and goes."""
    job = draw_job(rng)
    moments = np.arange(0.0, span_s, 7.0)
    period_s = draw_log(rng, 600, 5000)
    held = np.clip((moments % period_s) / period_s * rng.uniform(1.0, 3.0), 0, 1) * rng.uniform(0.1, 0.7)
    around = Surroundings(others_s=moments, others_bytes=(held * job.headroom_bytes).astype(np.int64))
    return Scene((fit_steps(rng, job, span_s),), surroundings=around)


def run_touched_pages(rng: Rng, span_s: float) -> Scene:
    """Host memory that rises in epochs, each time by half as much as before."""
    job = draw_job(rng)
    moments = np.arange(0.0, span_s, 5.0)
    epoch_s = draw_log(rng, 200, 2400)
    whole, part = np.divmod(moments / epoch_s, 1.0)
    resident = 6 * 2**30 + rng.uniform(2, 30) * 2**30 * (1 - 0.5**whole * (1 - part / 2))
    around = Surroundings(host_s=moments, host_bytes=resident)
    # The first epoch is as even as a leak.
    return Scene((fit_steps(rng, job, span_s),), surroundings=around, fills=(Leak(0.0, epoch_s, "host"),))


def _make_locked(interval_s: float) -> Callable[[Rng, float], Scene]:
    def run_locked_steps(rng: Rng, span_s: float) -> Scene:
        part = float(rng.choice([1 / 3, 1 / 2, 2 / 3, 1, 4 / 3, 3 / 2, 2, 5 / 2, 3]))
        off = 1 + draw_log(rng, 0.0001, 0.004) * float(rng.choice([-1, 1]))
        job = draw_job(rng, (interval_s * part * off,) * 2)
        shares = None if rng.random() < 0.5 else rng.uniform(0.97, 1.0, 641)
        return Scene(
            (plan_steps(job, rng, span_s, shares=shares, jitter=float(rng.choice([0.0, 0.001, 0.003]))),)
        )

    return run_locked_steps


def run_leak_that_ends(rng: Rng, span_s: float) -> Scene:
    """A leak that ends by itself after it took a third to two thirds of what was free, and long peace."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.choice([0.5, 0.75, 1.0], 1013))
    start_s, length_s = float(rng.uniform(0, 900)), draw_log(rng, 500, 0.4 * span_s)
    portions = rng.exponential(1.0, len(plan.ends_s)) * (plan.ends_s > start_s)
    portions *= plan.ends_s < start_s + length_s
    kept = np.cumsum(portions)
    share = job.headroom_bytes * rng.uniform(0.3, 0.65)
    return Scene((hold(plan, kept / max(kept[-1], 1e-9) * share),), (Leak(start_s, start_s + length_s),))


def run_leak_under_micro_batches(rng: Rng, span_s: float) -> Scene:
    """A leak whose floors also rise and fall with the micro-batches."""
    job = draw_job(rng, (0.2, 2.0))
    life_s, rate = draw_life(rng, job, 900, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s))
    index = np.arange(len(plan.ends_s))
    count = int(rng.integers(3, 60))
    plan = hold(plan, (index % count) / count * 0.12 * job.headroom_bytes)
    return leak_from(hold(plan, 0.88 * grow_evenly(plan, onset_s, rate)), onset_s)


def run_seldom_kept(rng: Rng, span_s: float) -> Scene:
    """Something is kept at random moments, a hundred times until the card is full."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1500, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s), rng.uniform(0.7, 1.0, 887))
    kept = (rng.random(len(plan.ends_s)) < job.step_s * rng.uniform(60, 300) / life_s).astype(np.float64)
    return leak_from(keep_portions(plan, kept, onset_s, rate), onset_s)


def run_lengths_without_end(rng: Rng, span_s: float) -> Scene:
    """Lengths that grow with the steps until one does not fit."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1200, span_s / 2)
    onset_s = float(rng.uniform(30, 1200))
    plan = fit_steps(rng, job, onset_s + 1.6 * life_s, rng.uniform(0.85, 1.0, 811))
    return Scene((take(plan, grow_evenly(plan, onset_s, rate)),), growth_s=onset_s)


def run_minutes_left(rng: Rng, span_s: float) -> Scene:
    """A leak that fills the card within minutes, seen ten times a second."""
    job = draw_job(rng, (0.1, 0.7))
    life_s, rate = draw_life(rng, job, 240, 1100)
    plan = fit_steps(rng, job, draw_watch(rng, life_s), rng.uniform(0.5, 1.0, 401))
    return leak_from(hold(plan, grow_evenly(plan, 0.0, rate)), 0.0)


_MAKERS = (
    run_ramp_and_plateau,
    run_loaded_then_still,
    run_micro_batches,
    run_gathered_outputs,
    run_rounds_of_results,
    run_waves,
    run_guests,
    run_touched_pages,
    run_leak_that_ends,
    run_leak_under_micro_batches,
    run_seldom_kept,
    run_lengths_without_end,
)
PRACTICE = (
    *(Family(make.__name__.removeprefix("run_"), make, HOURS_4, VARIED_SHAPES, SEEDS) for make in _MAKERS),
    Family("minutes_left", run_minutes_left, 1500.0, VARIED_FAST_SHAPES, 6),
    *(
        Family(
            f"locked_steps_{interval_s:g}s",
            _make_locked(interval_s),
            HOURS_4,
            (
                Shape("series", interval_s, jitter=0.0),
                Shape("series", interval_s, has_steps=False, jitter=0.0),
            ),
            8,
        )
        for interval_s in (0.1, 1.0, 2.0, 15.0)
    ),
)
