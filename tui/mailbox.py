"""Between the feed's thread and the screen: room for one snapshot, the newest wins, the rest are counted."""

import threading

import msgspec

from ..engine.bus.snapshot import Snapshot


class SnapshotMailbox:
    """Holds the newest snapshot until it is taken; memory stays bounded however slow the screen is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: Snapshot | None = None
        self._replaced = 0

    @property
    def replaced(self) -> int:
        """Snapshots that a newer one replaced before they were taken."""
        with self._lock:
            return self._replaced

    def amend(self, snapshot: Snapshot) -> None:
        """Leave a snapshot that says nothing new: it replaces one that waits, and is not counted."""
        with self._lock:
            if self._newest is not None:
                self._newest = snapshot

    def put(self, snapshot: Snapshot) -> bool:
        """Leave a snapshot; return whether the box was empty, so that its owner must be told."""
        with self._lock:
            was_empty = self._newest is None
            self._newest = snapshot
            self._replaced += not was_empty
            return was_empty

    def take(self) -> Snapshot | None:
        """Return the newest snapshot and empty the box; None where it is empty."""
        with self._lock:
            newest, self._newest = self._newest, None
            return newest


def is_same_picture(before: Snapshot, after: Snapshot) -> bool:
    """Return whether nothing changed but what the hub tells of itself, which can wait for the next sample."""
    if before.sample is None or before.hub is None or after.hub is None:
        return False
    if before.hub.workers != after.hub.workers:
        return False
    return msgspec.structs.replace(before, hub=after.hub) == after
