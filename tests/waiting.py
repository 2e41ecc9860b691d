"""Waiting for a condition with a deadline, for what other processes do."""

import time
from collections.abc import Callable

POLL_S = 0.01


def wait_until(predicate: Callable[[], object], timeout_s: float = 30.0, what: str = "the condition") -> None:
    """Return as soon as the predicate is true; fail when it is still false at the deadline.

    Args:
        predicate: Asked every ten milliseconds.
        timeout_s: Seconds after which to give up.
        what: What is waited for, as it shall stand in the failure.
    """
    deadline = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:g} s for {what}, in vain")
        time.sleep(POLL_S)
