"""Memory over the whole of a recording at a glance, out of the minutes that it keeps; no sample is read."""

import math
from collections.abc import Mapping, Sequence

from ..recording import OverviewMinute
from ..viewer.replay_state import ReplayOverview

MINUTE_S = 60.0
MOST_SPANS = 2000


def fold_minutes(
    minutes: Sequence[OverviewMinute], totals: Mapping[str, int | None]
) -> ReplayOverview | None:
    """Return an overview of one node; None where no memory was measured.

    Args:
        minutes: Least and most of each device in each minute.
        totals: Capacity of each device in bytes, by its UUID.
    """
    used = [(minute, _most_of(minute)) for minute in minutes]
    peak_bytes = max((most for _, most in used if most is not None), default=0)
    if not peak_bytes:
        return None
    is_of_capacity = all(totals.get(minute.device_uuid) for minute, most in used if most is not None)
    start_s = min(it.start_s for it in minutes)
    end_s = max(it.start_s for it in minutes)
    step_s = MINUTE_S * max(1, math.ceil((end_s - start_s + MINUTE_S) / MINUTE_S / MOST_SPANS))
    shares: list[float | None] = [None] * (math.floor((end_s - start_s) / step_s) + 1)
    for minute, most in used:
        if most is not None:
            whole = totals.get(minute.device_uuid) if is_of_capacity else peak_bytes
            at = math.floor((minute.start_s - start_s) / step_s)
            shares[at] = max(shares[at] or 0.0, most / (whole or peak_bytes))
    return ReplayOverview(start_s, step_s, tuple(shares), is_of_capacity)


def _most_of(minute: OverviewMinute) -> int | None:
    return minute.allocated_max_bytes if minute.used_max_bytes is None else minute.used_max_bytes
