"""Healthy runs whose floors rise for a while, or rise and fall: caches, buffers, epochs, collected cycles."""

import numpy as np

from ..growth import fit_steps, hold
from ..job import MIB, Rng, draw_job, draw_log
from ..run import Family, Scene
from ..shape import LONG_SHAPES, SHORT_SHAPES
from ..surroundings import Surroundings

HOURS_8 = 8 * 3600.0
SEEDS = 30


def run_hyperbolic_cache(rng: Rng, span_s: float) -> Scene:
    """A cache that is half full after some time, and two thirds after twice that time."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.8, 1.0, 3001))
    tau_s = draw_log(rng, 30, 2400)
    size = job.headroom_bytes * rng.uniform(0.005, 0.1)
    return Scene((hold(plan, size * plan.ends_s / (plan.ends_s + tau_s)),))


def run_cache_of_shapes(rng: Rng, span_s: float) -> Scene:
    """A workspace for each shape that was met; shapes are as frequent as words in a text."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    shapes = int(rng.integers(50, 1000))
    met = np.minimum(rng.zipf(1.5, len(plan.ends_s)), shapes)
    is_new = np.zeros(len(met))
    is_new[np.unique(met, return_index=True)[1]] = 1.0
    size = job.headroom_bytes * rng.uniform(0.01, 0.08) / shapes
    return Scene((hold(plan, np.cumsum(is_new) * size),))


def run_two_stage_warm_up(rng: Rng, span_s: float) -> Scene:
    """What fills at once, and later what another part of the program fills more slowly."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    first = 1 - np.exp(-plan.ends_s / draw_log(rng, 20, 200))
    later_s = np.maximum(plan.ends_s - rng.uniform(600, 7200), 0)
    second = 1 - np.exp(-((later_s / draw_log(rng, 200, 2000)) ** 0.7))
    size = job.headroom_bytes * rng.uniform(0.01, 0.06)
    return Scene((hold(plan, size * (first + second * rng.uniform(0.3, 1.0))),))


def run_averaged_copy(rng: Rng, span_s: float) -> Scene:
    """A copy of the parameters for averaging, made at one moment and kept."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.5, 1.0, 901))
    copy = min(job.state_bytes / 3, 0.5 * job.headroom_bytes)
    return Scene((hold(plan, (plan.ends_s > rng.uniform(0.05, 0.8) * span_s) * copy),))


def run_epochs(rng: Rng, span_s: float) -> Scene:
    """Metrics that are gathered through an epoch and let go at its end."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    passed = (plan.ends_s % (span_s / rng.uniform(4, 40))) * rng.uniform(4, 40) / span_s
    return Scene((hold(plan, np.minimum(passed, 1.0) * job.headroom_bytes * rng.uniform(0.002, 0.05)),))


def run_collected_cycles(rng: Rng, span_s: float) -> Scene:
    """Reference cycles that live until Python collects them, every so many steps, not always all."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    period = int(rng.integers(10, 400))
    index = np.arange(len(plan.ends_s))
    rest = rng.uniform(0.0, 0.3, len(index) // period + 1)[index // period]
    size = job.headroom_bytes * rng.uniform(0.005, 0.08)
    return Scene((hold(plan, size * (rest + (index % period) / period)),))


def run_ring_buffer(rng: Rng, span_s: float) -> Scene:
    """A ring of batches of random size, filled once and then turned over for good."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    slots = int(rng.integers(16, 512))
    every = int(rng.integers(1, 8))
    sizes = rng.lognormal(0, 0.5, len(plan.ends_s) // every + 1)
    held = np.convolve(sizes, np.ones(slots))[: len(sizes)]
    kept = held[np.arange(len(plan.ends_s)) // every] / held.max()
    return Scene((hold(plan, kept * job.headroom_bytes * rng.uniform(0.003, 0.06)),))


def run_wandering_floor(rng: Rng, span_s: float) -> Scene:
    """A floor that wanders by some MiB between bounds, as workspaces are changed for others."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.6, 1.0, 2003))
    steps = rng.choice([-1, 0, 0, 0, 0, 0, 0, 1], len(plan.ends_s)).cumsum()
    bound = int(rng.integers(4, 60))
    reflected = np.abs((steps + bound) % (4 * bound) - 2 * bound)
    return Scene((hold(plan, reflected * MIB * rng.uniform(0.5, 4.0)),))


def run_page_cache(rng: Rng, span_s: float) -> Scene:
    """Host memory that fills with mapped data up to what there is of it."""
    moments = np.linspace(0, span_s, 900)
    size = rng.uniform(5, 60) * 2**30
    resident = 2**33 + size * moments / (moments + draw_log(rng, 60, 1200)) + rng.normal(0, 3e7, 900)
    around = Surroundings(host_s=moments, host_bytes=resident)
    return Scene((fit_steps(rng, draw_job(rng), span_s),), surroundings=around)


_MAKERS = (
    run_hyperbolic_cache,
    run_cache_of_shapes,
    run_two_stage_warm_up,
    run_averaged_copy,
    run_epochs,
    run_collected_cycles,
    run_ring_buffer,
    run_wandering_floor,
)
HEALTHY_FLOORS = (
    *(Family(make.__name__.removeprefix("run_"), make, HOURS_8, LONG_SHAPES, SEEDS) for make in _MAKERS),
    Family("page_cache", run_page_cache, HOURS_8, SHORT_SHAPES[6:7], 6),
)
