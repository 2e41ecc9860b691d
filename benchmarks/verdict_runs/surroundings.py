"""What is around a job: other processes on its card, and the memory of its host."""

from dataclasses import dataclass, field

import numpy as np

from .job import GIB, Floats, Ints


def _nothing_f() -> Floats:
    return np.empty(0)


def _nothing_i() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Surroundings:
    """What is around the job: other processes on the card, and its host memory."""

    others_s: Floats = field(default_factory=_nothing_f)
    """Moments at which other processes come or go."""
    others_bytes: Ints = field(default_factory=_nothing_i)
    """What they hold from then on."""
    host_s: Floats = field(default_factory=_nothing_f)
    """Moments between which resident host memory goes in straight lines."""
    host_bytes: Floats = field(default_factory=_nothing_f)

    def find_others(self, times_s: Floats) -> Ints:
        """Return what other processes hold at some moments."""
        if not len(self.others_s):
            return np.zeros(len(times_s), dtype=np.int64)
        at = np.searchsorted(self.others_s, times_s, side="right") - 1
        return np.where(at >= 0, self.others_bytes[np.maximum(at, 0)], 0).astype(np.int64)

    def find_resident(self, times_s: Floats) -> Ints:
        """Return the resident host memory of the job at some moments; 6 GiB where nothing is said."""
        if not len(self.host_s):
            return np.full(len(times_s), 6 * GIB, dtype=np.int64)
        return np.asarray(np.interp(times_s, self.host_s, self.host_bytes), dtype=np.int64)


ALONE = Surroundings()
"""A job that has the card for itself."""
