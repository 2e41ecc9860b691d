"""Whether samples follow a sawtooth at slowly drifting moments (aliasing)."""

from collections.abc import Sequence

RECENT = 64
"""Samples that are looked at."""
MOST_LAG = 6
LOCKED_SHARE = 0.12
"""Share of their range by which samples of one lag differ at most, on average, where they are locked."""


def is_locked(samples: Sequence[int]) -> bool:
    """Return whether each sample is near the one that came a fixed, small number of samples before.

    Of independent samples of a sawtooth two differ by a third of its height on average.
    """
    height = max(samples) - min(samples)
    return any(
        sum([abs(after - before) for before, after in zip(samples, samples[lag:], strict=False)])
        <= LOCKED_SHARE * height * (len(samples) - lag)
        for lag in range(1, MOST_LAG + 1)
    )
