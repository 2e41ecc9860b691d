"""Keeps our failures away from the training."""

from __future__ import annotations

from . import current

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
        current.note_failure(self._what, error, tail)
