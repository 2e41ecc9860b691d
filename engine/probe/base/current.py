"""The one session of this process, what a fork left behind, and failures, which stay out of the training."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..session import Session
    from .foreign import Module

_MOST_FAILURES = 8

# None without a session: then every call of a user's program returns at once.
session: Session | None = None

# In a forked child: starts a session of its own, should the child turn out to train.
dormant: Callable[[], None] | None = None

# What an ended session left for the thread that trains to do; called with the module torch.
leftover: Callable[[Module], None] | None = None

# Called with size, message, free bytes, ordinal and total bytes in the thread that meets an out-of-memory
# error, before it is raised: for watchers within this process.
oom_takers: list[Callable[[int | None, str, int | None, int | None, int | None], object]] = []

# The program's callback for advice: called with action and reason, in the thread that trains.
on_advice: Callable[[str, str], object] | None = None


def call_takers(
    size_bytes: int | None,
    message: str,
    free_bytes: int | None,
    device: int | None,
    total_bytes: int | None,
) -> None:
    """Pass an error to the watchers within this process; what they raise goes no further."""
    for take in tuple(oom_takers):
        try:
            take(size_bytes, message, free_bytes, device, total_bytes)
        except Exception as error:  # noqa: BLE001 - the error of the program is what counts
            note_failure("a watch of out-of-memory errors", error)


def leave(action: Callable[[Module], None]) -> None:
    """Add something for the thread that trains to do."""
    global leftover  # noqa: PLW0603 - one for the process
    before = leftover

    def do_both(torch: Module) -> None:
        if before is not None:
            before(torch)
        action(torch)

    leftover = do_both


# Sentences about what failed at the entries of the probe, newest last; sent as notes.
failures: list[str] = []


def note_failure(what: str, error: BaseException, tail: str = "") -> None:
    """Keep a failure as a sentence; the oldest one is dropped if there are many."""
    failures.append(f"{what} failed: {type(error).__name__}: {error}"[:300] + tail)
    del failures[:-_MOST_FAILURES]


_FAILURES_ALLOWED = 3


class Guard:
    """Counts the failures of one entry from the training, and shuts that entry after a few."""

    def __init__(self, what: str) -> None:
        self.is_shut = False
        self._what = what
        self._failures = 0

    def count(self, error: Exception) -> None:
        """Keep a failure as a note for the hub; the third shuts the entry."""
        self._failures += 1
        self.is_shut = self._failures >= _FAILURES_ALLOWED
        tail = "; it was switched off" if self.is_shut else ""
        note_failure(self._what, error, tail)
