"""Driver-only families that thresholds may be chosen on."""

import numpy as np

from ..job import GIB, Floats, Rng, draw_log
from .run import Card, Course, DriverFamily
from .shapes import disturb, draw_piece, hold, load, ripple, round_up, spike

HOURS_2 = 7200.0
HOURS_8 = 8 * 3600.0


def _begin(rng: Rng, card: Card, low: float = 0.1, high: float = 0.6) -> tuple[Floats, float, float]:
    """Return a job that loads and stays, when that is done, and what it holds."""
    size = card.capacity_bytes * rng.uniform(low, high)
    length_s = draw_log(rng, 1, 90)
    start_s = float(rng.uniform(0, 60)) if rng.random() < 0.7 else -length_s
    return load(card, start_s, length_s, size), start_s + length_s, size


def fill_evenly(rng: Rng, card: Card) -> Course:
    """A leak at an even pace, in the pieces of an allocator, from the start or later."""
    base, ready_s, size = _begin(rng, card)
    onset_s = max(0.0, ready_s) + rng.uniform(0, 0.5) * card.span_s * (rng.random() < 0.6)
    life_s = 0.9 * (card.span_s - onset_s)
    grown = np.maximum(card.times_s - onset_s, 0) / life_s * (card.capacity_bytes - size)
    return Course(
        base + round_up(grown, min(draw_piece(rng), (card.capacity_bytes - size) / 25)) + disturb(rng, card),
        onset_s,
    )


def fill_in_jumps(rng: Rng, card: Card) -> Course:
    """A leak in jumps of all sizes at random moments."""
    base, ready_s, size = _begin(rng, card)
    onset_s = max(0.0, ready_s)
    room = card.capacity_bytes - size
    count = int(rng.integers(25, 400))
    moments = onset_s + np.sort(rng.uniform(0, 0.92 * (card.span_s - onset_s), count))
    sizes = rng.exponential(1.0, count)
    return Course(base + hold(card, moments, sizes / sizes.sum() * room * 1.05) + disturb(rng, card), onset_s)


def fill_faster(rng: Rng, card: Card) -> Course:
    """A leak that becomes faster."""
    base, ready_s, size = _begin(rng, card)
    onset_s = max(0.0, ready_s)
    passed = np.maximum(card.times_s - onset_s, 0) / (0.9 * (card.span_s - onset_s))
    grown = (0.4 * passed + 0.6 * passed**2) * (card.capacity_bytes - size)
    return Course(
        base + round_up(grown, min(draw_piece(rng), (card.capacity_bytes - size) / 25)) + disturb(rng, card),
        onset_s,
    )


def fill_under_saw(rng: Rng, card: Card) -> Course:
    """A leak below a sawtooth: what steps or epochs take is given back each time."""
    base, ready_s, size = _begin(rng, card, 0.1, 0.4)
    onset_s = max(0.0, ready_s)
    period_s = draw_log(rng, 2, max(4.0, (card.span_s - onset_s) / 25))
    height = card.capacity_bytes * rng.uniform(0.02, 0.2)
    grown = np.maximum(card.times_s - onset_s, 0) / (0.9 * (card.span_s - onset_s))
    saw = (card.times_s % period_s) / period_s * height
    return Course(base + grown * (card.capacity_bytes - size - height) + saw, onset_s)


def flat(rng: Rng, card: Card) -> Course:
    """A job that loads and stays."""
    base, _, _ = _begin(rng, card, 0.05, 0.93)
    return Course(base + disturb(rng, card))


def warm_up(rng: Rng, card: Card) -> Course:
    """Weights that take up to four minutes to read, optimizer state, first steps; again after an end."""
    total = np.zeros(len(card.times_s))
    start_s = float(rng.uniform(0, 200))
    while start_s < card.span_s:
        size = card.capacity_bytes * rng.uniform(0.2, 0.95)
        parts = rng.dirichlet((4, 2, 2)) * size
        length_s = draw_log(rng, 3, 240)
        end_s = start_s + length_s + draw_log(rng, 1200, 9000)
        up = load(card, start_s, length_s, parts[0])
        moments = start_s + length_s + np.array([rng.uniform(1, 20), rng.uniform(20, 60)])
        up = up + hold(card, moments, parts[1:])
        total += np.where(card.times_s < end_s, up, 0)
        start_s = end_s + draw_log(rng, 5, 600)
    return Course(total + disturb(rng, card))


def level_off(rng: Rng, card: Card) -> Course:
    """An allocator whose cache grows at a rate that falls exponentially, or as a logarithm."""
    base, ready_s, size = _begin(rng, card, 0.1, 0.5)
    passed_s = np.maximum(card.times_s - ready_s, 0)
    room = (0.97 * card.capacity_bytes - size) * rng.uniform(0.1, 0.95)
    tau_s = draw_log(rng, 20, 5400)
    if rng.random() < 0.5:
        grown = 1 - np.exp(-passed_s / tau_s)
    else:
        grown = np.log1p(passed_s / (tau_s / 10)) / np.log1p(card.span_s / (tau_s / 10))
    return Course(base + round_up(grown * room, draw_piece(rng)) + ripple(rng, card, 0.001))


def sawtooth(rng: Rng, card: Card) -> Course:
    """Memory that rises and is given back, in periods of seconds to many minutes."""
    base, _, size = _begin(rng, card, 0.1, 0.5)
    height = (0.96 * card.capacity_bytes - size) * rng.uniform(0.1, 1.0)
    period_s = draw_log(rng, 2, 150)
    rise = rng.uniform(0.5, 1.0)
    place = ((card.times_s / period_s + rng.uniform()) % 1.0) / rise
    return Course(base + np.where(place < 1, place, 0) * height + disturb(rng, card) * 0.3)


def slow_tides(rng: Rng, card: Card) -> Course:
    """Buffers that fill and empty over minutes to hours."""
    base, _, size = _begin(rng, card, 0.2, 0.5)
    room = 0.95 * card.capacity_bytes - size
    total = np.zeros(len(card.times_s))
    for _ in range(int(rng.integers(1, 3))):
        place = (card.times_s / draw_log(rng, 300, 7200) + rng.uniform()) % 1.0
        total += (0.5 - 0.5 * np.cos(2 * np.pi * place)) * room * rng.uniform(0.03, 0.25)
    return Course(base + total)


def plateaus(rng: Rng, card: Card) -> Course:
    """A curriculum: a few stages, each with more memory than the last, up to a height that fits."""
    base, _, size = _begin(rng, card, 0.2, 0.5)
    count = int(rng.integers(2, 6))
    moments = np.sort(rng.uniform(0, card.span_s, count))
    room = (0.96 * card.capacity_bytes - size) * rng.uniform(0.3, 1.0)
    return Course(base + hold(card, moments, rng.dirichlet(np.ones(count)) * room) + disturb(rng, card) * 0.3)


def bumps(rng: Rng, card: Card) -> Course:
    """Evaluations and checkpoints: memory that comes for seconds to minutes, every so often."""
    base, _, size = _begin(rng, card, 0.2, 0.6)
    every_s = draw_log(rng, 120, 2400)
    length_s = every_s * rng.uniform(0.02, 0.3)
    place_s = card.times_s % every_s
    height = (0.97 * card.capacity_bytes - size) * rng.uniform(0.2, 1.0)
    shape = np.clip(place_s / (length_s * rng.uniform(0.01, 0.5)), 0, 1)
    return Course(base + np.where(place_s < length_s, shape, 0) * height + ripple(rng, card, 0.001))


def other_jobs(rng: Rng, card: Card) -> Course:
    """Jobs of other users that come and go, each with a load of its own."""
    base, _, size = _begin(rng, card, 0.1, 0.4)
    total = np.zeros(len(card.times_s))
    room = 0.95 * card.capacity_bytes - size
    for _ in range(rng.poisson(card.span_s / 1200)):
        start_s = rng.uniform(0, card.span_s)
        job = load(card, start_s, draw_log(rng, 1, 60), room * rng.uniform(0.05, 0.35))
        total += np.where(card.times_s < start_s + rng.exponential(900), job, 0)
    return Course(base + np.minimum(total, room))


def server(rng: Rng, card: Card) -> Course:
    """A server that fills the card by design: it loads, then takes nine tenths at once and stays."""
    start_s = float(rng.uniform(0, 300))
    length_s = draw_log(rng, 2, 120)
    target = card.capacity_bytes * rng.uniform(0.7, 0.975)
    weights = target * rng.uniform(0.1, 0.6)
    jump_s = start_s + length_s + rng.uniform(1, 30)
    held = load(card, start_s, length_s, weights) + hold(
        card, np.array([jump_s]), np.array([target - weights])
    )
    return Course(held + spike(rng, card, 900, 0.01))


def bounded_fill(rng: Rng, card: Card) -> Course:
    """A buffer of up to a third of what is free, filled at an even pace, then turned over."""
    base, ready_s, size = _begin(rng, card, 0.1, 0.5)
    room = (card.capacity_bytes - size) * rng.uniform(0.05, 0.35)
    return Course(base + round_up(load(card, ready_s, draw_log(rng, 60, 5400), room), 0.02 * GIB))


def tinkering(rng: Rng, card: Card) -> Course:
    """Somebody tries this and that: sizes of all kinds come and go, and now and then all of it goes."""
    times: list[float] = []
    changes: list[float] = []
    held: list[float] = []
    time_s, pause_s, most = 0.0, draw_log(rng, 15, 240), rng.uniform(0.3, 0.93)
    while time_s < card.span_s:
        time_s += rng.gamma(1.5, pause_s / 1.5)
        change = min(float(rng.lognormal(-4, 1)), max(0.0, most - sum(held)))
        kind = rng.random()
        if kind < 0.03 or change <= 0:
            change, held = -sum(held), []
        elif kind < 0.3 and held:
            change = -held.pop(int(rng.integers(len(held))))
        else:
            held.append(change)
        times.append(time_s)
        changes.append(change * card.capacity_bytes)
    return Course(0.03 * card.capacity_bytes + hold(card, np.array(times), np.array(changes)))


def equal_stairs(rng: Rng, card: Card) -> Course:
    """A few equal stairs at nearly even times, up to a height that fits."""
    base, ready_s, size = _begin(rng, card, 0.02, 0.4)
    count = int(rng.integers(3, 13))
    gaps_s = rng.gamma(8, 1 / 8, count) * draw_log(rng, 3, 1200)
    room = (0.95 * card.capacity_bytes - size) * rng.uniform(0.3, 1.0)
    held = hold(card, max(0.0, ready_s) + np.cumsum(gaps_s), np.full(count, room / count))
    return Course(base + held + disturb(rng, card) * 0.2)


FILLING = (fill_evenly, fill_in_jumps, fill_faster, fill_under_saw)
HEALTHY = (
    flat,
    warm_up,
    level_off,
    sawtooth,
    slow_tides,
    plateaus,
    bumps,
    other_jobs,
    server,
    bounded_fill,
    tinkering,
    equal_stairs,
)
DRIVER_TUNING = (
    *(DriverFamily(make.__name__, make, 330.0, HOURS_8, fills=True, seeds=44) for make in FILLING),
    *(DriverFamily(make.__name__, make, HOURS_2, HOURS_8, fills=False, seeds=44) for make in HEALTHY),
)
