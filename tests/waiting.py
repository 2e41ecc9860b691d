"""Waiting for a condition with a deadline, for what other processes do."""

import resource
import time
from collections.abc import Callable

POLL_S = 0.01
MAX_POLL_S = 0.25
PAUSE_FACTOR = 10
"""Asking takes at most a tenth of a core: some predicates start a program."""


def wait_until(predicate: Callable[[], object], timeout_s: float = 30.0, what: str = "the condition") -> None:
    """Return soon after the predicate is true; fail when it is still false at the deadline.

    Args:
        predicate: Asked every ten milliseconds, and less often the more CPU its answer takes.
        timeout_s: Seconds after which to give up.
        what: What is waited for, as it shall stand in the failure.
    """
    deadline = time.monotonic() + timeout_s
    before_s = _used_s()
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:g} s for {what}, in vain")
        after_s = _used_s()
        time.sleep(min(max(POLL_S, PAUSE_FACTOR * (after_s - before_s)), MAX_POLL_S))
        before_s = after_s


def _used_s() -> float:
    """Return the CPU seconds of this thread and of the programs that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_THREAD, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
