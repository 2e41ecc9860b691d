"""The one session of this process, what failed before there was one, and what a fork left behind."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..session import Session
    from .foreign import Module

_MOST_FAILURES = 8

session: Session | None = None
"""None where nothing runs: then every call of a user's program returns at once."""

dormant: Callable[[], None] | None = None
"""In a forked child: starts a session of its own, should the child turn out to train."""

leftover: Callable[[Module], None] | None = None
"""What an ended session left to be done by the thread that trains; takes the module torch."""

oom_takers: list[Callable[[int | None, str, int | None, int | None, int | None], object]] = []
"""Called with size, message, free bytes, ordinal and total bytes in the thread that meets an out-of-memory
error, before it is raised: who watches from within this process."""

on_advice: Callable[[str, str], object] | None = None
"""The program's callback for advice: gets action and reason, in the thread that trains."""


def tell_takers(
    size_bytes: int | None,
    message: str,
    free_bytes: int | None,
    device: int | None,
    total_bytes: int | None,
) -> None:
    """Hand an error to whoever watches from within this process; what they raise goes no further."""
    for take in tuple(oom_takers):
        try:
            take(size_bytes, message, free_bytes, device, total_bytes)
        except Exception as error:  # noqa: BLE001 - the error of the program is what counts
            note_failure("a watch of out-of-memory errors", error)


def leave(action: Callable[[Module], None]) -> None:
    """Leave one thing more to the thread that trains."""
    global leftover  # noqa: PLW0603 - one for the process
    before = leftover

    def do_both(torch: Module) -> None:
        if before is not None:
            before(torch)
        action(torch)

    leftover = do_both


failures: list[str] = []
"""Sentences about what failed at the entries of the probe, newest last; they go out as notes."""


def note_failure(what: str, error: BaseException, tail: str = "") -> None:
    """Keep what failed as a sentence; the oldest goes where there are many."""
    failures.append(f"{what} failed: {type(error).__name__}: {error}"[:300] + tail)
    del failures[:-_MOST_FAILURES]
