"""The pieces that families of used memory are made of."""

import numpy as np

from ..job import MIB, Floats, Rng, draw_log
from .run import Card


def hold(card: Card, moments_s: Floats, changes: Floats) -> Floats:
    """Return what is held at each moment of a card where it changes by so many bytes at some moments."""
    order = np.argsort(moments_s, kind="stable")
    sums = np.concatenate(([0.0], np.cumsum(changes[order])))
    return np.asarray(sums[np.searchsorted(moments_s[order], card.times_s, side="right")], dtype=np.float64)


def load(card: Card, start_s: float, length_s: float, size: float) -> Floats:
    """Return what is held where something is read in at an even pace, and stays."""
    return np.asarray(np.clip((card.times_s - start_s) / max(length_s, 1e-3), 0, 1) * size, dtype=np.float64)


def round_up(level: Floats, piece: float) -> Floats:
    """Return levels in whole pieces, as an allocator takes them from the driver."""
    return np.asarray(np.ceil(np.maximum(level, 0) / piece) * piece, dtype=np.float64)


def draw_piece(rng: Rng) -> float:
    """Return the size of the segments of an allocator: 2 or 20 MiB, or large ones up to 1 GiB."""
    return float(rng.choice([2, 20, 20, 64, 256, 512, 1024])) * MIB


def ripple(rng: Rng, card: Card, share: float) -> Floats:
    """Return small comings and goings of up to a share of the card: workspaces, handles, communicators."""
    noise = rng.normal(0, share / 2, len(card.times_s)) * card.capacity_bytes
    return np.asarray(np.abs(noise), dtype=np.float64)


def spike(rng: Rng, card: Card, every_s: float, share: float) -> Floats:
    """Return peaks of up to a share of the card that last some seconds, at random moments."""
    count = rng.poisson(card.span_s / every_s)
    starts = rng.uniform(0, card.span_s, count)
    sizes = rng.uniform(0.2, 1.0, count) * share * card.capacity_bytes
    ends = starts + rng.uniform(0.5, 8, count)
    return hold(card, np.concatenate((starts, ends)), np.concatenate((sizes, -sizes)))


def disturb(rng: Rng, card: Card) -> Floats:
    """Return what disturbs a run: nothing, ripples, or spikes."""
    kind = rng.integers(4)
    if kind == 0:
        return np.zeros(len(card.times_s))
    if kind == 1:
        return ripple(rng, card, draw_log(rng, 0.0003, 0.004))
    if kind == 2:
        return spike(rng, card, draw_log(rng, 20, 600), rng.uniform(0.02, 0.12))
    return ripple(rng, card, 0.001) + spike(rng, card, draw_log(rng, 60, 600), rng.uniform(0.02, 0.1))
