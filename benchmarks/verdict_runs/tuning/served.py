"""What is loaded on demand, sessions that come and go, saves in shards, short lives of growth; to tune on."""

import numpy as np

from ..growth import draw_life, draw_onset, draw_watch, find_new_heights, fit_steps, hold, leak_from, take
from ..job import Rng, draw_job, draw_log
from ..run import Family, Scene
from ..shape import VARIED_SHAPES
from ..truth import Leak

HOURS_3 = 3 * 3600.0
SEEDS = 18


def run_paged_experts(rng: Rng, span_s: float) -> Scene:
    """Weights of experts that are copied to the card at their first use, up to a number of slots.

    Which experts are asked for drifts, so that slots are emptied and filled again.
    """
    job = draw_job(rng)
    lengths = rng.beta(2.0, 2.0, 1811) * 0.6 + 0.4
    plan = fit_steps(rng, job, span_s, lengths if rng.random() < 0.7 else None)
    count = len(plan.ends_s)
    experts, slots = int(draw_log(rng, 60, 600)), int(draw_log(rng, 16, 128))
    calls = rng.random(count) < min(1.0, job.step_s / draw_log(rng, 1.0, 20.0))
    centre = np.cumsum(rng.normal(0, 0.002 * experts, count))
    asked = np.round(centre + rng.exponential(0.08 * experts, count)).astype(int) % experts
    used: dict[int, None] = {}
    held = np.zeros(count)
    full_at = count
    for at in range(count):
        if calls[at]:
            used.pop(int(asked[at]), None)
            used[int(asked[at])] = None
            if len(used) > slots:
                full_at = min(full_at, at)
                # An emptied slot is filled by the next use: for a moment a few are free.
                for _ in range(int(rng.integers(1, 4))):
                    used.pop(next(iter(used)))
        held[at] = len(used) / slots
    end_s = float(plan.ends_s[min(full_at, count - 1)])
    share = rng.uniform(0.1, 0.5)
    return Scene((hold(plan, held * share * job.headroom_bytes),), fills=(Leak(0.0, end_s),))


def run_sessions(rng: Rng, span_s: float) -> Scene:
    """States of sessions that begin at random, last for times of a heavy tail, and grow while they last."""
    job = draw_job(rng, (0.2, 1.5))
    plan = fit_steps(rng, job, span_s, rng.uniform(0.45, 1.0, 2203))
    mean_s = draw_log(rng, 30, 900)
    wanted = draw_log(rng, 4, 80)
    begins = np.cumsum(rng.exponential(mean_s / wanted, int(2 * span_s * wanted / mean_s) + 16))
    begins = begins[begins < span_s][:4000]
    lasts = np.minimum(rng.pareto(1.8, len(begins)) * 0.8 * mean_s, 12 * mean_s)
    sizes = rng.lognormal(0, 0.6, len(begins))
    kept = np.zeros(len(plan.ends_s))
    for begin, last, size in zip(begins, lasts, sizes, strict=True):
        first, after = np.searchsorted(plan.ends_s, (begin, begin + last))
        kept[first:after] += size * (0.4 + 0.6 * (plan.ends_s[first:after] - begin) / max(last, 1e-9))
    kept *= rng.uniform(0.35, 0.95) * job.headroom_bytes / max(float(kept.max()), 1e-9)
    return Scene((hold(plan, kept),), fills=find_new_heights(plan, kept, 0.05 * job.headroom_bytes))


def run_sharded_saves(rng: Rng, span_s: float) -> Scene:
    """Saves that gather shard after shard on the card, and free all at once."""
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.8, 1.0, 1201) if rng.random() < 0.5 else None)
    kept = np.zeros(len(plan.ends_s))
    begin_s = draw_log(rng, 60, 900)
    every_s = draw_log(rng, 400, 3000)
    shards = int(rng.integers(30, 240))
    share = rng.uniform(0.1, 0.6) * job.headroom_bytes
    write_s = draw_log(rng, 20, 400) / shards
    fills = []
    while begin_s < span_s:
        ends = begin_s + np.cumsum(rng.gamma(4.0, write_s / 4, shards))
        done = np.searchsorted(ends, plan.ends_s) / shards
        kept += np.where(plan.ends_s < ends[-1], done, 0.0) * share
        fills.append(Leak(begin_s, float(ends[-1])))
        begin_s = max(float(ends[-1]) + 60, begin_s + every_s * rng.uniform(0.8, 1.2))
    # Only the first cannot be known from a leak: those after it rise to where it has been.
    return Scene((hold(plan, kept),), fills=tuple(fills[:1]))


def run_captured_shapes(rng: Rng, span_s: float) -> Scene:
    """Graphs that are captured for each new shape of a batch and kept: new shapes become rarer."""
    job = draw_job(rng)
    shapes = int(draw_log(rng, 150, 3000))
    weights = rng.dirichlet(np.full(shapes, rng.uniform(0.3, 3.0)))
    lengths = np.sort(rng.uniform(0.4, 1.0, shapes))
    drawn = rng.choice(shapes, 20_011, p=weights)
    plan = fit_steps(rng, job, span_s, lengths[drawn])
    count = len(plan.ends_s)
    asked = np.resize(drawn, count)
    is_new = np.zeros(count)
    is_new[np.unique(asked, return_index=True)[1]] = 1.0
    kept = np.cumsum(is_new * lengths[asked]) / lengths.sum()
    return Scene((hold(plan, kept * job.headroom_bytes * rng.uniform(0.05, 0.4)),))


def run_known_readers(rng: Rng, span_s: float) -> Scene:
    """States of readers, kept once they were met: new ones become rarer, and never rare.

    Whether the next is new follows Pitman and Yor (1997), with as many readers as some power of the calls.
    """
    job = draw_job(rng)
    plan = fit_steps(rng, job, span_s, rng.uniform(0.4, 1.0, 1777) if rng.random() < 0.6 else None)
    power, spread = rng.uniform(0.45, 0.8), draw_log(rng, 1, 100)
    chances = rng.random(len(plan.ends_s))
    kept = np.zeros(len(chances))
    known = 0
    for at, chance in enumerate(chances.tolist()):
        known += chance * (spread + at) < spread + power * known
        kept[at] = known
    most = rng.uniform(0.08, 0.35)
    scale = most / min(float(known), draw_log(rng, 100, 3000))
    return Scene((hold(plan, np.minimum(kept * scale, most) * job.headroom_bytes),))


def run_stages_by_turns(rng: Rng, span_s: float) -> Scene:
    """Stages of lengths that mostly rise, under lengths that scatter; the longest stage fits well."""
    job = draw_job(rng)
    count = int(rng.integers(3, 9))
    heights = np.sort(rng.uniform(0.0, 1.0, count)) + rng.normal(0, 0.08, count)
    plan = fit_steps(rng, job, span_s, rng.beta(4.0, rng.uniform(1.0, 3.0), 3001))
    edges = np.sort(rng.uniform(0.03, 0.8, count - 1)) * span_s
    stage = np.clip(heights, 0, 1)[np.searchsorted(edges, plan.ends_s)]
    more = stage * job.headroom_bytes * rng.uniform(0.2, 0.5)
    return Scene((take(plan, more * plan.activation_bytes / job.activation_bytes),))


def run_kept_states(rng: Rng, span_s: float) -> Scene:
    """A leak of minutes to an hour in pieces of each task that is done, seen seldom."""
    job = draw_job(rng)
    life_s, _ = draw_life(rng, job, 600, 5400)
    onset_s = draw_onset(rng, life_s)
    plan = fit_steps(rng, job, onset_s + draw_watch(rng, life_s), rng.uniform(0.75, 1.0, 1319))
    tasks = int(rng.integers(24, 150))
    ends = onset_s + np.cumsum(rng.gamma(5.0, life_s / tasks / 5, 2 * tasks))
    begins = np.concatenate(([onset_s], ends[:-1]))
    # Each task keeps what it made within its first third.
    knots_s = np.stack((begins, begins + (ends - begins) / 3), axis=1).ravel()
    done = np.interp(plan.ends_s, knots_s, np.repeat(np.arange(len(ends) + 1), 2)[1:-1]) / tasks
    return leak_from(hold(plan, done * job.headroom_bytes), float(onset_s))


def run_epochs_of_length(rng: Rng, span_s: float) -> Scene:
    """Lengths that grow a little with every epoch, under lengths that scatter, until one does not fit."""
    job = draw_job(rng)
    life_s, _ = draw_life(rng, job, 1200, span_s / 2)
    onset_s = float(rng.uniform(0.05, 0.4) * life_s)
    plan = fit_steps(rng, job, onset_s + 1.5 * life_s, rng.beta(5.0, rng.uniform(1.0, 3.0), 2411))
    epochs = int(rng.integers(10, 40))
    grown = np.floor(np.clip((plan.ends_s - onset_s) / life_s, 0, None) * epochs) / epochs
    scale = plan.activation_bytes / job.activation_bytes
    return Scene((take(plan, grown * scale * job.headroom_bytes),), growth_s=onset_s)


_MAKERS = (
    run_paged_experts,
    run_sessions,
    run_sharded_saves,
    run_captured_shapes,
    run_known_readers,
    run_stages_by_turns,
    run_kept_states,
    run_epochs_of_length,
)
SERVED = tuple(
    Family(make.__name__.removeprefix("run_"), make, HOURS_3, VARIED_SHAPES, SEEDS) for make in _MAKERS
)
