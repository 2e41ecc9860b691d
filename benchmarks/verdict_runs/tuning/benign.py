"""Healthy runs to tune on."""

import numpy as np

from ..growth import find_events, fit_steps, hold, mark_every, take
from ..job import Rng, draw_job, draw_log, plan_steps
from ..run import Family, Scene
from ..shape import LONG_SHAPES, SHORT_SHAPES
from ..surroundings import Surroundings


def run_flat(rng: Rng, span_s: float) -> Scene:
    """Every step as the one before."""
    return Scene((fit_steps(rng, draw_job(rng), span_s),))


def run_uniform_lengths(rng: Rng, span_s: float) -> Scene:
    """Lengths between a quarter and all of the longest, each as likely."""
    return Scene((fit_steps(rng, draw_job(rng), span_s, rng.uniform(0.25, 1.0, 50_000)),))


def run_eval_spikes(rng: Rng, span_s: float) -> Scene:
    """Every few minutes some steps of evaluation, which take more than training."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    evals = find_events(mark_every(plan, draw_log(rng, 120, 1200), 60.0))
    lasting = np.convolve(evals, np.ones(int(rng.integers(3, 20))))[: len(evals)] > 0
    return Scene((take(plan, lasting * job.headroom_bytes * rng.uniform(0.2, 0.8)),))


def run_exponential_cache(rng: Rng, span_s: float) -> Scene:
    """A cache that fills at a rate which falls with what is missing."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    tau_s = float(rng.choice([30, 150, 400, 1500]))
    size = job.headroom_bytes * rng.uniform(0.005, 0.1)
    return Scene((hold(plan, size * (1 - np.exp(-plan.ends_s / tau_s))),))


def run_fading_cache(rng: Rng, span_s: float) -> Scene:
    """A cache of what is seen for the first time, which becomes rarer and never quite ends."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.5, 1.0, 3_001) if rng.random() < 0.5 else None)
    fill = np.log1p(plan.ends_s / draw_log(rng, 20, 1200))
    pieces = np.floor(fill / fill[-1] * rng.uniform(40, 400))
    return Scene((hold(plan, pieces / pieces[-1] * job.headroom_bytes * rng.uniform(0.005, 0.1)),))


def run_slow_tides(rng: Rng, span_s: float) -> Scene:
    """Buffers that fill and empty over minutes to hours, each at its own pace."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    held = np.zeros(len(plan.ends_s))
    for _ in range(int(rng.integers(1, 4))):
        phase = plan.ends_s / draw_log(rng, 120, 7200) + rng.uniform()
        rising = float(rng.uniform(0.3, 0.95))
        place = phase % 1.0
        held += np.where(place < rising, place / rising, (1 - place) / (1 - rising)) * rng.uniform(0.01, 0.09)
    return Scene((hold(plan, held / max(1.0, held.max() / 0.09) * job.headroom_bytes),))


def run_curriculum(rng: Rng, span_s: float) -> Scene:
    """Three to five stages, each with longer sequences than the last."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    edges = np.sort(rng.uniform(0.05, 0.9, int(rng.integers(2, 5)))) * span_s
    stage = np.searchsorted(edges, plan.ends_s) / len(edges)
    return Scene((take(plan, stage * job.headroom_bytes * rng.uniform(0.1, 0.35)),))


def run_checkpoint_spikes(rng: Rng, span_s: float) -> Scene:
    """Every so often one step during which the state is copied before it is written."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.9, 1.0, 999))
    saves = find_events(mark_every(plan, draw_log(rng, 300, 3600), 200.0))
    return Scene((take(plan, saves * min(job.state_bytes / 3, job.headroom_bytes * 0.9)),))


def run_sequence_ramp(rng: Rng, span_s: float) -> Scene:
    """Sequences that grow step by step for a while, up to a length that fits."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s)
    length_s = draw_log(rng, 300, 5400)
    ramp = np.clip((plan.ends_s - rng.uniform(0, 600)) / length_s, 0, 1)
    return Scene((take(plan, ramp * job.headroom_bytes * rng.uniform(0.05, 0.3)),))


def run_bounded_fill(rng: Rng, span_s: float) -> Scene:
    """A deque with a bound, filled at a constant rate and then turned over."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.6, 1.0, 7_001) if rng.random() < 0.5 else None)
    fill = np.clip((plan.ends_s - rng.uniform(0, 900)) / draw_log(rng, 60, 3600), 0, 1)
    return Scene((hold(plan, fill * job.headroom_bytes * rng.uniform(0.002, 0.06)),))


def run_restart(rng: Rng, span_s: float) -> Scene:
    """Two to four processes one after another, each a little larger than the one before."""
    job = draw_job(rng)
    plans, start_s = [], 0.0
    for number in range(int(rng.integers(2, 5))):
        length_s = span_s * float(rng.uniform(0.15, 0.3))
        plan = plan_steps(job, rng, length_s, start_s=start_s)
        plans.append(hold(plan, np.full(len(plan.ends_s), number * 0.02 * job.headroom_bytes)))
        start_s = float(plan.ends_s[-1]) + float(rng.uniform(5, 120))
    return Scene(tuple(plans))


def run_beside_others(rng: Rng, span_s: float) -> Scene:
    """Another process comes to the card and goes, and leaves enough."""
    job = draw_job(rng)
    moments = np.sort(rng.uniform(0, span_s, 8))
    sizes = np.where(np.arange(8) % 2 == 0, job.headroom_bytes * rng.uniform(0.1, 0.5, 8), 0)
    return Scene(
        (fit_steps(rng, job, span_s),),
        surroundings=Surroundings(others_s=moments, others_bytes=sizes.astype(np.int64)),
    )


def run_host_warm_up(rng: Rng, span_s: float) -> Scene:
    """Host memory that rises to its level while loaders start and their buffers fill."""
    job = draw_job(rng)
    moments = np.linspace(0, span_s, 400)
    resident = (4 + rng.uniform(2, 40) * (1 - np.exp(-moments / draw_log(rng, 60, 900)))) * 2**30
    around = Surroundings(host_s=moments, host_bytes=resident + rng.normal(0, 2e7, 400))
    return Scene((fit_steps(rng, job, span_s),), surroundings=around)


HOURS_4 = 4 * 3600.0
_MAKERS = (
    run_flat,
    run_uniform_lengths,
    run_eval_spikes,
    run_exponential_cache,
    run_fading_cache,
    run_slow_tides,
    run_curriculum,
    run_checkpoint_spikes,
    run_sequence_ramp,
    run_bounded_fill,
    run_restart,
    run_beside_others,
)
BENIGN = (
    *(Family(make.__name__.removeprefix("run_"), make, HOURS_4, LONG_SHAPES, 8) for make in _MAKERS),
    Family("host_warm_up", run_host_warm_up, HOURS_4, SHORT_SHAPES[::3], 4),
)
