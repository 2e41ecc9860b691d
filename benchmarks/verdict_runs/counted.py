"""Very long runs by counters: floors and peaks with the allocator's rounding, without its blocks.

2 % of what lives between steps are stranded as well: free, in segments that cannot be given back. Out of
memory is where the peak and these exceed what the card has. What is reserved is the highest peak so far and
2 % on top, in whole segments of 2 MiB, at most what the card has.
"""

import numpy as np

from .job import LEAST_BLOCK_BYTES, MIB, Floats, Ints, Plan
from .life import Life

SEGMENT_BYTES = 2 * MIB
OVERHEAD = 1.02
RETRY_SHARE = 0.01
"""Of the card: how much further the wish has to pass it for the cache to be given back once more."""
HEIGHT = 0.45
"""Share of a step at which it holds most."""


def count_life(plan: Plan, room_bytes: Ints | None = None) -> Life:
    """Return what a plan does to memory.

    Args:
        plan: The steps of a process.
        room_bytes: What the card has for its allocator at each step; its own limit without.
    """
    job = plan.job
    after = job.state_bytes + _round(plan.kept_bytes)
    before = np.concatenate(([job.state_bytes // 3], after[:-1]))
    peak = np.maximum(before, after) + _round(plan.activation_bytes)
    room = np.full(len(peak), job.limit_bytes, dtype=np.int64) if room_bytes is None else room_bytes
    stranded = ((OVERHEAD - 1) * after).astype(np.int64) // LEAST_BLOCK_BYTES * LEAST_BLOCK_BYTES
    failed = np.flatnonzero(peak + stranded > room)
    count = len(peak) if not len(failed) else int(failed[0]) + 1
    wished = np.maximum.accumulate(peak[:count] * OVERHEAD)
    reserved = -(-wished.astype(np.int64) // SEGMENT_BYTES) * SEGMENT_BYTES
    retries = np.ceil(np.maximum(wished / room[:count] - 1, 0) / RETRY_SHARE)
    ends = plan.ends_s[:count]
    return Life(
        job,
        plan.start_s,
        ends,
        before[:count],
        after[:count],
        peak[:count],
        np.minimum(reserved, room[:count]),
        stranded[:count],
        retries.astype(np.int64),
        float(ends[-1] - (1 - HEIGHT) * plan.durations_s[count - 1]) if len(failed) else None,
    )


def _round(sizes: Ints | Floats) -> Ints:
    return np.asarray(-(-sizes.astype(np.int64) // LEAST_BLOCK_BYTES) * LEAST_BLOCK_BYTES, dtype=np.int64)
