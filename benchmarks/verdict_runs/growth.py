"""What is kept, over time: the pieces that families are made of."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .job import Floats, Ints, Job, Plan, Rng, draw_log, plan_steps
from .run import Scene
from .truth import Leak

AnyFloats = NDArray[np.floating[Any]]


def hold(plan: Plan, kept_bytes: AnyFloats | Ints) -> Plan:
    """Return the plan with so much more held once each step has ended."""
    return replace(plan, kept_bytes=plan.kept_bytes + np.maximum(kept_bytes, 0).astype(np.int64))


def take(plan: Plan, more_bytes: AnyFloats | Ints) -> Plan:
    """Return the plan with so much more taken within each step."""
    return replace(plan, activation_bytes=plan.activation_bytes + np.asarray(more_bytes).astype(np.int64))


def keep_portions(plan: Plan, portions: Floats, onset_s: float, bytes_per_s: float) -> Plan:
    """Return the plan with so many portions of each step kept from an onset on, at a mean rate."""
    begun = portions * (plan.ends_s > onset_s)
    mean = float(np.mean(portions)) or 1.0
    return hold(plan, np.cumsum(begun * plan.durations_s) * bytes_per_s / mean)


def mark_every(plan: Plan, period_s: float, first_s: float = 0.0) -> Ints:
    """Return at each step how often an event of some period has happened by its end."""
    counts = np.floor((plan.ends_s - first_s) / period_s) + 1
    return np.asarray(np.maximum(0, counts), dtype=np.int64)


def find_events(counts: Ints) -> Floats:
    """Return 1 at each step within which a count rose, else 0."""
    return (np.diff(counts, prepend=0) > 0).astype(np.float64)


def grow_evenly(plan: Plan, onset_s: float, bytes_per_s: float) -> Floats:
    """Return what has grown by the end of each step at a constant rate."""
    return np.asarray(np.maximum(plan.ends_s - onset_s, 0.0) * bytes_per_s, dtype=np.float64)


def draw_life(rng: Rng, job: Job, low_s: float, high_s: float) -> tuple[float, float]:
    """Return the seconds in which a leak shall fill the headroom, log-uniform, and its bytes a second."""
    life_s = draw_log(rng, low_s, high_s)
    return life_s, job.headroom_bytes / life_s


def draw_onset(rng: Rng, life_s: float) -> float:
    """Return when a leak begins: from the start, or up to half a life into a run that was well."""
    return 0.0 if rng.random() < 0.4 else float(rng.uniform(0.05, 0.5) * life_s)


def draw_watch(rng: Rng, life_s: float) -> float:
    """Return how long a leak is watched: to its end, and in one run of four only through part of its life."""
    return life_s * (float(rng.uniform(0.5, 0.85)) if rng.random() < 0.25 else 1.6)


def leak_from(plan: Plan, onset_s: float) -> Scene:
    """Return the scene of one leak that lasts to the end of the run."""
    return Scene((plan,), (Leak(onset_s, float("inf")),), onset_s)


def fit_steps(rng: Rng, job: Job, span_s: float, shares: Floats | None = None) -> Plan:
    """Return steps that keep nothing, as `plan_steps`; the spread of their times is drawn."""
    return plan_steps(job, rng, span_s, shares=shares, jitter=float(rng.uniform(0.005, 0.05)))


def find_new_heights(plan: Plan, kept_bytes: AnyFloats, least_bytes: float) -> tuple[Leak, ...]:
    """Return the rises beyond all that was kept before: nobody can distinguish those from a leak at first."""
    found: list[Leak] = []
    record = trough = float(kept_bytes[0])
    start = crest = 0
    for at, level in enumerate(kept_bytes.tolist()):
        if level > record + (0.0 if crest else least_bytes):
            record, crest = level, at
        elif level < trough or (crest and level < record - least_bytes):
            if crest:
                found.append(Leak(float(plan.ends_s[start]), float(plan.ends_s[crest])))
            trough, start, crest = level, at, 0
    if crest:
        found.append(Leak(float(plan.ends_s[start]), float(plan.ends_s[crest])))
    return tuple(found)
