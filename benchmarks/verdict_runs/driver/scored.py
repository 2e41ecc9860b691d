"""Driver-only families that are scored; nothing is chosen on any of them."""

import numpy as np

from ..job import MIB, Floats, Rng, draw_log
from .run import Card, Course, DriverFamily
from .shapes import disturb, hold, load, ripple, round_up, spike

HOURS_2 = 7200.0
HOURS_10 = 36_000.0


def _start_job(rng: Rng, card: Card, low: float, high: float) -> tuple[Floats, float, float]:
    """Return a job that starts in stages, when its steps begin, and what it holds then."""
    size = card.capacity_bytes * rng.uniform(low, high)
    begin_s = float(rng.uniform(2, 120)) if rng.random() < 0.6 else -300.0
    stages = rng.dirichlet((1, 4, 3, 2)) * size
    gaps_s = np.cumsum(rng.exponential(8.0, 4))
    return hold(card, begin_s + gaps_s, stages), max(0.0, begin_s + float(gaps_s[-1])), size


def conversations_kept(rng: Rng, card: Card) -> Course:
    """Key caches of conversations that nobody ends: they come at random, in pieces of 2 or 20 MiB."""
    base, onset_s, size = _start_job(rng, card, 0.2, 0.7)
    room = card.capacity_bytes - size
    mean = room * draw_log(rng, 0.002, 0.02)
    count = int(1.3 * room / mean)
    gaps_s = rng.exponential(0.85 * (card.span_s - onset_s) / (room / mean), count)
    sizes = np.ceil(rng.lognormal(0, 0.7, count) * mean / 1.28 / (2 * MIB)) * 2 * MIB
    return Course(base + hold(card, onset_s + np.cumsum(gaps_s), sizes) + disturb(rng, card), onset_s)


def segments_of_a_leak(rng: Rng, card: Card) -> Course:
    """A slow leak that takes whole segments, each time the last one is used up."""
    base, onset_s, size = _start_job(rng, card, 0.2, 0.6)
    room = card.capacity_bytes - size
    piece = min(float(rng.choice([20, 128, 512, 1024])) * MIB, room / 24)
    count = int(1.2 * room / piece)
    gaps_s = rng.gamma(rng.uniform(2, 20), 1.0, count)
    gaps_s *= 0.85 * (card.span_s - onset_s) / (room / piece) / gaps_s.mean()
    moments = onset_s + np.cumsum(gaps_s)
    return Course(base + hold(card, moments, np.full(count, piece)) + disturb(rng, card), onset_s)


def two_that_grow(rng: Rng, card: Card) -> Course:
    """Two processes on one card, each with a leak of its own, the second from some time on."""
    first, onset_s, size = _start_job(rng, card, 0.1, 0.35)
    later_s = onset_s + rng.uniform(0.05, 0.3) * (card.span_s - onset_s)
    second = load(card, later_s, draw_log(rng, 1, 20), 0.15 * card.capacity_bytes)
    room = 0.85 * card.capacity_bytes - size
    left_s = card.span_s - later_s
    pace = room / left_s * 1.15
    grown = np.maximum(card.times_s - onset_s, 0) * pace * 0.4
    more = np.maximum(card.times_s - later_s - 30, 0) * pace * 0.7
    return Course(first + second + round_up(grown, 20 * MIB) + round_up(more, 64 * MIB), later_s + 30)


def interrupted_leak(rng: Rng, card: Card) -> Course:
    """A leak in training steps, which evaluations and checkpoints interrupt."""
    base, onset_s, size = _start_job(rng, card, 0.2, 0.6)
    period_s = draw_log(rng, 40, max(60.0, (card.span_s - onset_s) / 12))
    share = rng.uniform(0.7, 0.92)
    passed_s = np.maximum(card.times_s - onset_s, 0)
    whole, part = np.divmod(passed_s, period_s)
    trained_s = whole * period_s * share + np.minimum(part, period_s * share)
    pace = (card.capacity_bytes - size) / (0.85 * share * (card.span_s - onset_s))
    return Course(base + round_up(trained_s * pace, 20 * MIB) + disturb(rng, card), onset_s)


def leak_between_flushes(rng: Rng, card: Card) -> Course:
    """A program that empties its cache every so often, and keeps a little more each time."""
    base, onset_s, size = _start_job(rng, card, 0.15, 0.4)
    room = card.capacity_bytes - size
    period_s = draw_log(rng, 5, max(8.0, (card.span_s - onset_s) / 30))
    passed_s = np.maximum(card.times_s - onset_s, 0)
    place = (passed_s % period_s) / period_s
    height = room * rng.uniform(0.03, 0.15)
    cache = height * np.minimum(1.0, place * rng.uniform(1.2, 4))
    pace = (room - height) / (0.85 * (card.span_s - onset_s))
    return Course(base + round_up(pace * passed_s, 2 * MIB) + cache, onset_s)


def doubling_cache(rng: Rng, card: Card) -> Course:
    """What grows with what is there already: a tree of hypotheses, a graph that is kept."""
    base, onset_s, size = _start_job(rng, card, 0.2, 0.6)
    passed = np.maximum(card.times_s - onset_s, 0) / (0.9 * (card.span_s - onset_s))
    steep = rng.uniform(0.5, 2.0)
    grown = np.expm1(steep * passed) / np.expm1(steep) * (card.capacity_bytes - size)
    return Course(base + round_up(grown, 20 * MIB) + disturb(rng, card), onset_s)


def dataset_moved_over(rng: Rng, card: Card) -> Course:
    """Samples that are cached on the card as they are read, in bursts of the loader, until it is full."""
    base, onset_s, size = _start_job(rng, card, 0.1, 0.5)
    count = int(rng.integers(60, 900))
    weights = rng.gamma(0.8, 1.0, count)
    moments = onset_s + np.linspace(0, 0.9 * (card.span_s - onset_s), count)
    return Course(base + hold(card, moments, weights / weights.sum() * (card.capacity_bytes - size)), onset_s)


def partly_released(rng: Rng, card: Card) -> Course:
    """A list that grows and is trimmed now and then, by less than what was added."""
    base, onset_s, size = _start_job(rng, card, 0.2, 0.5)
    period_s = (card.span_s - onset_s) / rng.uniform(15, 60)
    share = rng.uniform(0.15, 0.5)
    passed_s = np.maximum(card.times_s - onset_s, 0)
    pace = (card.capacity_bytes - size) / (0.88 * (card.span_s - onset_s))
    tooth = share / (1 - share) * pace * (passed_s % period_s)
    return Course(base + round_up(pace * passed_s + tooth, 20 * MIB) + disturb(rng, card) * 0.5, onset_s)


def steady_steps(rng: Rng, card: Card) -> Course:
    """Steps that take and give back a part of the card, faster than it is read."""
    base, _, size = _start_job(rng, card, 0.2, 0.6)
    height = (0.96 * card.capacity_bytes - size) * rng.uniform(0.05, 0.9)
    return Course(base + rng.random(len(card.times_s)) ** rng.uniform(0.3, 3) * height)


def shards_read(rng: Rng, card: Card) -> Course:
    """A model of many shards, read one by one in seconds to minutes; then it serves and stays."""
    start_s = float(rng.uniform(5, 400))
    count = int(rng.integers(4, 61))
    gaps_s = rng.exponential(1.0, count)
    gaps_s *= draw_log(rng, 5, 210) / gaps_s.sum()
    size = card.capacity_bytes * rng.uniform(0.2, 0.92)
    held = hold(card, start_s + np.cumsum(gaps_s), np.full(count, size / count))
    after_s = start_s + float(gaps_s.sum())
    cache = (
        0.06
        * card.capacity_bytes
        * (1 - np.exp(-np.maximum(card.times_s - after_s, 0) / draw_log(rng, 20, 900)))
    )
    return Course(held + round_up(cache, 20 * MIB) + ripple(rng, card, 0.0005))


def hyperbolic_cache(rng: Rng, card: Card) -> Course:
    """A cache that is half full after some time, and two thirds after twice that time."""
    base, onset_s, size = _start_job(rng, card, 0.1, 0.5)
    passed_s = np.maximum(card.times_s - onset_s, 0)
    room = (0.97 * card.capacity_bytes - size) * rng.uniform(0.1, 0.9)
    return Course(base + round_up(room * passed_s / (passed_s + draw_log(rng, 15, 3600)), 20 * MIB))


def records_of_lengths(rng: Rng, card: Card) -> Course:
    """An allocator that keeps what the longest batch so far needed; longer ones become rarer and rarer."""
    base, onset_s, size = _start_job(rng, card, 0.2, 0.5)
    step_s = draw_log(rng, 0.3, 10)
    count = max(2, int((card.span_s - onset_s) / step_s))
    lengths = np.minimum(rng.lognormal(-1.5, 0.5, count), 1.0)
    highest: Floats = np.maximum.accumulate(lengths) * 0.9 * (0.96 * card.capacity_bytes - size)
    fragments: Floats = 0.05 * card.capacity_bytes * np.log1p(np.arange(count)) / np.log1p(count)
    level = round_up(np.add(highest, fragments, dtype=np.float64), 2 * MIB)
    moments: Floats = np.asarray(onset_s + step_s * np.arange(count), dtype=np.float64)
    return Course(base + hold(card, moments, np.asarray(np.diff(level, prepend=0.0), dtype=np.float64)))


def preallocated(rng: Rng, card: Card) -> Course:
    """JAX and TensorFlow: three quarters or nearly all of the card at the first use, to the end."""
    share = float(rng.choice([0.75, 0.75, 0.9, 0.97]))
    at_s = rng.uniform(1, 600)
    ends_s = at_s + draw_log(rng, 1800, 36_000)
    held = hold(card, np.array([at_s - 3.0, at_s, ends_s]), np.array([0.02, share - 0.02, -share]))
    return Course(held * card.capacity_bytes)


def token_server(rng: Rng, card: Card) -> Course:
    """vLLM: weights in tens of seconds, a trial run, the key cache at once up to nine tenths, then graphs."""
    start_s = float(rng.uniform(5, 300))
    length_s = draw_log(rng, 5, 150)
    target = card.capacity_bytes * rng.uniform(0.85, 0.95)
    weights = target * rng.uniform(0.15, 0.75)
    trial_s = start_s + length_s + rng.uniform(2, 20)
    moments = trial_s + np.array([0.0, 4.0, 8.0])
    peak = (target - weights) * 0.4
    held = load(card, start_s, length_s, weights) + hold(
        card, moments, np.array([peak, -peak, target - weights])
    )
    graphs = load(card, trial_s + 10, rng.uniform(10, 60), 0.02 * card.capacity_bytes)
    return Course(held + round_up(graphs, 20 * MIB))


def models_on_demand(rng: Rng, card: Card) -> Course:
    """A server that loads the model that is asked for, and unloads what was idle for five minutes."""
    total = np.zeros(len(card.times_s))
    for _ in range(rng.poisson(card.span_s / 500) + 1):
        at_s = rng.uniform(0, card.span_s)
        size = card.capacity_bytes * rng.uniform(0.05, 0.45)
        model = load(card, at_s, draw_log(rng, 1, 40), size)
        total += np.where(card.times_s < at_s + 300 + rng.exponential(400), model, 0)
    return Course(np.minimum(total, 0.96 * card.capacity_bytes))


def notebook(rng: Rng, card: Card) -> Course:
    """A person who tries things: cells at random moments, most keep something, at times all is cleared."""
    moments = np.cumsum(rng.exponential(draw_log(rng, 30, 300), 4000))
    moments = moments[moments < card.span_s]
    level, changes = 0.0, []
    for _ in moments:
        clears = rng.random() < 0.04 or level > 0.9
        change = -level if clears else min(float(rng.exponential(0.03)), 0.95 - level)
        if not clears and rng.random() < 0.3:
            change = -min(level, float(rng.exponential(0.04)))
        level += change
        changes.append(change * card.capacity_bytes)
    return Course(hold(card, moments, np.array(changes)) if changes else np.zeros(len(card.times_s)))


def ladder_of_lengths(rng: Rng, card: Card) -> Course:
    """Sequences that become longer every few minutes, each rung smaller than the last, up to what fits."""
    base, onset_s, size = _start_job(rng, card, 0.2, 0.5)
    rungs = int(rng.integers(4, 14))
    moments = onset_s + 60 + np.cumsum(rng.uniform(0.7, 1.3, rungs)) * draw_log(rng, 120, 1800)
    heights = np.diff(np.sqrt(np.arange(rungs + 1) / rungs))
    room = (0.95 * card.capacity_bytes - size) * rng.uniform(0.2, 0.95)
    return Course(base + hold(card, moments, heights * room) + disturb(rng, card) * 0.3)


def evaluations_with_graphs(rng: Rng, card: Card) -> Course:
    """Evaluations whose outputs pile up for a minute or two, and go at their end."""
    base, onset_s, size = _start_job(rng, card, 0.3, 0.6)
    every_s = draw_log(rng, 300, 3600)
    length_s = min(draw_log(rng, 10, 150), 0.4 * every_s)
    place_s = (card.times_s - onset_s - 120) % every_s
    height = (0.96 * card.capacity_bytes - size) * rng.uniform(0.2, 0.9)
    return Course(base + np.where(place_s < length_s, place_s / length_s, 0) * height)


def saves_of_state(rng: Rng, card: Card) -> Course:
    """Checkpoints that gather the state on the card, bucket by bucket, and drop it when it is written."""
    base, onset_s, size = _start_job(rng, card, 0.3, 0.6)
    every_s = draw_log(rng, 600, 3600)
    length_s = draw_log(rng, 10, 90)
    place_s = (card.times_s - onset_s - 300) % every_s
    height = (0.97 * card.capacity_bytes - size) * rng.uniform(0.3, 1.0)
    stairs = np.ceil(np.clip(place_s / length_s, 0, 1) * 8) / 8
    return Course(base + np.where(place_s < length_s + rng.uniform(5, 120), stairs, 0) * height)


def shared_card(rng: Rng, card: Card) -> Course:
    """A card of a queue of small jobs: they come, load for seconds, stay for minutes to hours, and go."""
    total = np.zeros(len(card.times_s))
    for _ in range(rng.poisson(card.span_s / draw_log(rng, 200, 1500))):
        at_s = rng.uniform(-1800, card.span_s)
        stays_s = rng.exponential(1500)
        job = load(card, at_s, draw_log(rng, 0.5, 45), card.capacity_bytes * rng.uniform(0.03, 0.25))
        total += np.where((card.times_s < at_s + stays_s) & (card.times_s >= at_s), job, 0)
    return Course(np.minimum(total, 0.94 * card.capacity_bytes))


def resumed_often(rng: Rng, card: Card) -> Course:
    """A job that is stopped and resumed, each time a little larger than before."""
    total = np.zeros(len(card.times_s))
    at_s, number = float(rng.uniform(0, 60)), 0
    length_s = draw_log(rng, 900, 6000)
    while at_s < card.span_s:
        size = card.capacity_bytes * min(0.94, 0.5 + 0.03 * number)
        moments = at_s + np.cumsum(rng.exponential(12, 5))
        job = hold(card, moments, rng.dirichlet(np.ones(5)) * size)
        ends_s = at_s + length_s * rng.uniform(0.6, 1.4)
        total += np.where(card.times_s < ends_s, job, 0)
        at_s, number = ends_s + float(rng.uniform(3, 200)), number + 1
    return Course(total)


def workers_joining(rng: Rng, card: Card) -> Course:
    """Workers of one program that start one after another, each with the same share of the card."""
    count = int(rng.integers(3, 11))
    start_s = float(rng.uniform(10, 300))
    moments = start_s + np.cumsum(rng.uniform(0.5, 1.5, count)) * draw_log(rng, 2, 60)
    size = card.capacity_bytes * rng.uniform(0.3, 0.94)
    return Course(hold(card, moments, np.full(count, size / count)) + spike(rng, card, 600, 0.03))


def replay_memory(rng: Rng, card: Card) -> Course:
    """Experience of an agent, kept on the card up to a bound below half of what was free."""
    base, onset_s, size = _start_job(rng, card, 0.05, 0.4)
    room = (card.capacity_bytes - size) * rng.uniform(0.05, 0.45)
    filled = load(card, onset_s, draw_log(rng, 120, 0.8 * card.span_s), room)
    return Course(base + round_up(filled, 20 * MIB) + ripple(rng, card, 0.0005))


FILLING = (
    conversations_kept,
    segments_of_a_leak,
    two_that_grow,
    interrupted_leak,
    leak_between_flushes,
    doubling_cache,
    dataset_moved_over,
    partly_released,
)
NOT_FILLING = (
    steady_steps,
    shards_read,
    hyperbolic_cache,
    records_of_lengths,
    preallocated,
    token_server,
    models_on_demand,
    notebook,
    ladder_of_lengths,
    evaluations_with_graphs,
    saves_of_state,
    shared_card,
    resumed_often,
    workers_joining,
    replay_memory,
)
DRIVER_SCORED = (
    *(DriverFamily(make.__name__, make, 330.0, HOURS_10, fills=True, seeds=44) for make in FILLING),
    *(DriverFamily(make.__name__, make, HOURS_2, HOURS_10, fills=False, seeds=22) for make in NOT_FILLING),
)
