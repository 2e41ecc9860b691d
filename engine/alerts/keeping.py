"""Writes what a hub hands on, beside its loop: a home that does not answer must not hold samples up."""

import threading
from pathlib import Path

from .kept import KeptDecisions, save_decisions

PATIENCE_S = 1.0
"""How long a write is waited for, so that it has been done when a hub ends; then it is left alone."""


class Keeper:
    """Writes the newest that it was given, one at a time, on a thread that lives as long as there is any.

    Args:
        path: Where to.
    """

    def __init__(self, path: Path) -> None:
        self.reason: str | None = None
        """Why it could not be written, in one sentence."""
        self._path = path
        self._waiting: KeptDecisions | None = None
        self._is_late = False
        self._lock = threading.Lock()
        self._is_done = threading.Event()
        self._is_done.set()

    def keep(self, kept: KeptDecisions) -> None:
        """Write this; what was to be written before and was not is dropped. Returns within a second."""
        with self._lock:
            self._waiting = kept
            is_idle = self._is_done.is_set()
            if is_idle:
                self._is_done.clear()
        if is_idle:
            threading.Thread(target=self._write, name="vramscope-keeper", daemon=True).start()
        if not self._is_late:
            self._is_late = not self._is_done.wait(PATIENCE_S)

    def _write(self) -> None:
        while (kept := self._take()) is not None:
            try:
                save_decisions(self._path, kept)
                self.reason = None
            except OSError as error:
                self.reason = f"what is acknowledged and muted is not kept: {self._path}: {error.strerror}"
            self._is_late = False

    def _take(self) -> KeptDecisions | None:
        with self._lock:
            kept, self._waiting = self._waiting, None
            if kept is None:
                self._is_done.set()
            return kept
