"""Runs as they are met in practice, seen at intervals of 0.1 to 15 s with jitter and gaps; scored."""

from collections.abc import Callable

import numpy as np

from ..growth import (
    draw_life,
    draw_onset,
    draw_watch,
    find_events,
    find_new_heights,
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
from ..shape import VARIED_FAST_SHAPES, VARIED_SHAPES, Shape
from ..surroundings import Surroundings
from ..truth import Leak

HOURS_4 = 4 * 3600.0
SEEDS = 18


def run_lora_cache(rng: Rng, span_s: float) -> Scene:
    """Adapters that stay on the card once they were asked for, as often as words in a text, up to a bound."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.5, 1.0, 2039))
    asked = np.minimum(rng.zipf(rng.uniform(1.3, 1.8), len(plan.ends_s)), 4096)
    is_new = np.zeros(len(asked))
    is_new[np.unique(asked, return_index=True)[1]] = 1.0
    size = job.headroom_bytes * rng.uniform(0.0005, 0.004)
    return Scene((hold(plan, np.minimum(np.cumsum(is_new) * size, 0.25 * job.headroom_bytes)),))


def run_staged_curriculum(rng: Rng, span_s: float) -> Scene:
    """Stages of longer sequences, each with a ramp of minutes and a long plateau, up to what fits."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    count = int(rng.integers(2, 6))
    starts = np.sort(rng.uniform(0.02, 0.8, count)) * span_s
    level = np.zeros(len(plan.ends_s))
    for start_s in starts:
        level += np.clip((plan.ends_s - start_s) / draw_log(rng, 60, 900), 0, 1) / count
    return Scene((take(plan, level * job.headroom_bytes * rng.uniform(0.15, 0.6)),))


def run_filled_and_done(rng: Rng, span_s: float) -> Scene:
    """A dataset that is moved to the card piece by piece, up to two thirds of what is free, and then used."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.7, 1.0, 1511) if rng.random() < 0.5 else None)
    start_s, length_s = float(rng.uniform(0, 600)), draw_log(rng, 120, 0.3 * span_s)
    fill = np.clip((plan.ends_s - start_s) / length_s, 0, 1)
    filled = hold(plan, fill * job.headroom_bytes * rng.uniform(0.2, 0.65))
    return Scene((filled,), fills=(Leak(start_s, start_s + length_s),))


def run_recompiles(rng: Rng, span_s: float) -> Scene:
    """Graphs compiled for shapes as they are first met: a peak while it compiles, a little kept of each."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.choice([0.6, 0.8, 1.0], 3011))
    chance = 1 / (1 + plan.ends_s / draw_log(rng, 20, 300))
    compiles = (rng.random(len(plan.ends_s)) < 0.3 * chance).astype(np.float64)
    kept = np.minimum(np.cumsum(compiles) * rng.uniform(0.0005, 0.002), 0.12) * job.headroom_bytes
    return Scene((hold(take(plan, compiles * job.headroom_bytes * rng.uniform(0.05, 0.3)), kept),))


def run_accumulated_gradients(rng: Rng, span_s: float) -> Scene:
    """Micro-steps that add up something until the optimizer's step lets go of it."""
    job = draw_job(rng, (0.2, 2.0))
    plan = fit_steps(rng, job, span_s, rng.uniform(0.6, 1.0, 2011))
    place = np.arange(len(plan.ends_s)) % int(2 ** rng.integers(2, 8))
    return Scene((hold(plan, place / max(1, place.max()) * job.headroom_bytes * rng.uniform(0.05, 0.5)),))


def run_evaluation_rounds(rng: Rng, span_s: float) -> Scene:
    """Evaluations of minutes: shorter steps, logits that are gathered until the round ends."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    every_s = draw_log(rng, 400, 3600)
    length_s = min(draw_log(rng, 15, 300), 0.3 * every_s)
    place_s = (plan.ends_s - 200) % every_s
    gathered = np.where((plan.ends_s > 200) & (place_s < length_s), place_s / length_s, 0.0)
    return Scene((hold(plan, gathered * job.headroom_bytes * rng.uniform(0.05, 0.6)),))


def run_checkpoints_in_pieces(rng: Rng, span_s: float) -> Scene:
    """A state that is gathered shard by shard before it is written, and let go at once."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    every_s, length_s = draw_log(rng, 600, 3600), draw_log(rng, 20, 240)
    place = np.clip(((plan.ends_s - 300) % every_s) / length_s, 0, None)
    stairs = np.where((plan.ends_s > 300) & (place < 1.2), np.minimum(np.ceil(place * 8) / 8, 1.0), 0.0)
    return Scene((hold(plan, stairs * min(job.state_bytes / 2, 0.7 * job.headroom_bytes)),))


def run_other_users(rng: Rng, span_s: float) -> Scene:
    """Jobs of others that load over minutes, stay and go; they leave the job what it needs."""
    job = draw_job(rng)
    moments = np.arange(0.0, span_s, 10.0)
    held = np.zeros(len(moments))
    for _ in range(int(rng.integers(3, 9))):
        at_s, stays_s = rng.uniform(0, span_s), rng.exponential(2400)
        ramp = np.clip((moments - at_s) / draw_log(rng, 10, 900), 0, 1)
        held += np.where(moments < at_s + stays_s, ramp, 0) * rng.uniform(0.05, 0.3)
    around = Surroundings(
        others_s=moments, others_bytes=(np.minimum(held, 0.8) * job.headroom_bytes).astype(np.int64)
    )
    return Scene((fit_steps(rng, job, span_s),), surroundings=around)


def run_copied_on_write(rng: Rng, span_s: float) -> Scene:
    """Workers whose pages are copied as their objects are touched: each epoch fewer that were not yet."""
    job = draw_job(rng)
    moments = np.arange(0.0, span_s, 5.0)
    epoch_s = draw_log(rng, 120, 1800)
    size = rng.uniform(2, 40) * 2**30
    resident = 6 * 2**30 + size * (1 - np.exp(-moments / epoch_s)) + rng.normal(0, 1e7, len(moments))
    return Scene(
        (fit_steps(rng, job, span_s),), surroundings=Surroundings(host_s=moments, host_bytes=resident)
    )


def run_mapped_files(rng: Rng, span_s: float) -> Scene:
    """Files that are mapped and read through once an epoch: resident pages come, and go under pressure."""
    job = draw_job(rng)
    moments = np.arange(0.0, span_s, 5.0)
    epoch_s = draw_log(rng, 300, 5400)
    resident = 8 * 2**30 + (moments % epoch_s) / epoch_s * rng.uniform(1, 30) * 2**30
    around = Surroundings(host_s=moments, host_bytes=resident)
    # The first epoch is as even as a leak.
    return Scene((fit_steps(rng, job, span_s),), surroundings=around, fills=(Leak(0.0, epoch_s, "host"),))


def run_requests(rng: Rng, span_s: float) -> Scene:
    """Key caches of a server under a load that goes up and down over the hours, at most nine tenths."""
    job = draw_job(rng, (0.2, 1.0))
    plan = fit_steps(rng, job, span_s)
    count = len(plan.ends_s)
    noise = np.convolve(rng.normal(0, 1, count), np.ones(200) / 200, mode="same")
    load = 0.5 + 0.3 * np.sin(2 * np.pi * (plan.ends_s / draw_log(rng, 1800, 20_000) + rng.random())) + noise
    kept = np.clip(load, 0.02, 0.9) * job.headroom_bytes
    return Scene((hold(plan, kept),), fills=find_new_heights(plan, kept, 0.05 * job.headroom_bytes))


def run_prefix_cache(rng: Rng, span_s: float) -> Scene:
    """A cache of prefixes that fills with what is asked for and is then kept at its bound."""
    job = draw_job(rng, (0.2, 1.0))
    plan = fit_steps(rng, job, span_s)
    pieces = np.cumsum(
        rng.exponential(1.0, len(plan.ends_s)) * np.exp(-plan.ends_s / draw_log(rng, 100, 1500))
    )
    return Scene((hold(plan, pieces / pieces[-1] * job.headroom_bytes * rng.uniform(0.1, 0.8)),))


def _make_aliased(interval_s: float) -> Callable[[Rng, float], Scene]:
    def run_aliased_steps(rng: Rng, span_s: float) -> Scene:
        part = int(rng.integers(1, 8)) / int(rng.integers(1, 8))
        off = 1 + float(rng.choice([-1, 1])) * draw_log(rng, 0.00005, 0.01)
        job = draw_job(rng, (interval_s * part * off,) * 2)
        return Scene((plan_steps(job, rng, span_s, jitter=float(rng.choice([0.0, 0.0003, 0.003]))),))

    return run_aliased_steps


def run_lora_leak(rng: Rng, span_s: float) -> Scene:
    """Adapters that are loaded for each request of a new user, and never dropped."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 900, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s), rng.uniform(0.5, 1.0, 1409))
    portions = rng.poisson(0.3, len(plan.ends_s)) * rng.choice([1.0, 2.0, 4.0], len(plan.ends_s))
    return leak_from(keep_portions(plan, portions, onset_s, rate), onset_s)


def run_accumulation_leak(rng: Rng, span_s: float) -> Scene:
    """A leak under accumulated gradients."""
    job = draw_job(rng, (0.2, 2.0))
    life_s, rate = draw_life(rng, job, 900, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s))
    place = (np.arange(len(plan.ends_s)) % int(2 ** rng.integers(2, 7))) / 64
    plan = hold(plan, place * job.headroom_bytes * 0.3)
    return leak_from(hold(plan, 0.85 * grow_evenly(plan, onset_s, rate)), onset_s)


def run_compile_leak(rng: Rng, span_s: float) -> Scene:
    """A graph compiled again every so often, and each time some of it is kept; no end to it."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1800, span_s / 2)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s))
    compiles = (rng.random(len(plan.ends_s)) < job.step_s / (life_s / rng.uniform(60, 400))).astype(
        np.float64
    )
    plan = take(plan, compiles * 0.1 * job.headroom_bytes)
    return leak_from(keep_portions(plan, compiles, onset_s, rate), onset_s)


def run_ended_leak(rng: Rng, span_s: float) -> Scene:
    """A leak that somebody ends: a quarter to two thirds of what was free is kept, and no more."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.6, 1.0, 1201))
    start_s, length_s = float(rng.uniform(60, 1200)), draw_log(rng, 600, 0.4 * span_s)
    fill = np.clip((plan.ends_s - start_s) / length_s, 0, 1) * rng.uniform(0.25, 0.65)
    return Scene((hold(plan, fill * job.headroom_bytes),), (Leak(start_s, start_s + length_s),))


def run_checkpoint_leak(rng: Rng, span_s: float) -> Scene:
    """A copy of some of the state that stays behind after each checkpoint."""
    job = draw_job(rng)
    life_s, _ = draw_life(rng, job, 3600, span_s / 1.7)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s))
    counts = mark_every(plan, life_s / rng.uniform(20, 50), onset_s)
    plan = take(plan, find_events(counts) * 0.15 * job.headroom_bytes)
    return leak_from(hold(plan, counts * job.headroom_bytes / max(1, int(counts[-1]))), onset_s)


def run_curriculum_overrun(rng: Rng, span_s: float) -> Scene:
    """Sequences that grow a little each step, to a length that does not fit."""
    job = draw_job(rng)
    life_s, rate = draw_life(rng, job, 1200, span_s / 2)
    onset_s = float(rng.uniform(60, 1500))
    plan = fit_steps(rng, job, onset_s + 1.6 * life_s, rng.uniform(0.9, 1.0, 907))
    return Scene((take(plan, grow_evenly(plan, onset_s, rate)),), growth_s=onset_s)


def run_leak_ten_times_a_second(rng: Rng, span_s: float) -> Scene:
    """A leak within minutes, in unlike portions, seen ten times a second."""
    job = draw_job(rng, (0.1, 0.7))
    life_s, rate = draw_life(rng, job, 240, 1100)
    plan = fit_steps(rng, job, draw_watch(rng, life_s), rng.uniform(0.4, 1.0, 499))
    return leak_from(keep_portions(plan, rng.gamma(1.5, 1.0, len(plan.ends_s)), 0.0, rate), 0.0)


_HEALTHY = (
    run_lora_cache,
    run_staged_curriculum,
    run_filled_and_done,
    run_recompiles,
    run_accumulated_gradients,
    run_evaluation_rounds,
    run_checkpoints_in_pieces,
    run_other_users,
    run_copied_on_write,
    run_mapped_files,
    run_requests,
    run_prefix_cache,
)
_FAULTY = (
    run_lora_leak,
    run_accumulation_leak,
    run_compile_leak,
    run_ended_leak,
    run_checkpoint_leak,
    run_curriculum_overrun,
)
_ALIASED = tuple(
    Family(
        f"aliased_steps_{interval_s:g}s",
        _make_aliased(interval_s),
        HOURS_4,
        (Shape("series", interval_s, has_steps=False, jitter=0.0), Shape("series", interval_s, jitter=0.0)),
        12,
    )
    for interval_s in (0.1, 1.0, 2.0, 15.0)
)
PRACTICE = (
    *(Family(make.__name__.removeprefix("run_"), make, HOURS_4, VARIED_SHAPES, SEEDS) for make in _HEALTHY),
    *(Family(make.__name__.removeprefix("run_"), make, HOURS_4, VARIED_SHAPES, SEEDS) for make in _FAULTY),
    Family("leak_ten_times_a_second", run_leak_ten_times_a_second, 1500.0, VARIED_FAST_SHAPES, 9),
    *_ALIASED,
)
