"""Between the feed's thread and the screen: one snapshot a node, the newest wins, the others are counted."""

import threading

import msgspec

from ..engine.bus.snapshot import Snapshot


class SnapshotMailbox:
    """Holds the newest snapshot of each node until they are taken; bounded however slow the screen is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, Snapshot] = {}
        self._replaced = 0

    @property
    def replaced(self) -> int:
        """Snapshots that a newer one replaced before they were taken."""
        with self._lock:
            return self._replaced

    def amend(self, snapshot: Snapshot) -> None:
        """Leave a snapshot that says nothing new: it replaces one that waits, and is not counted."""
        with self._lock:
            if snapshot.node in self._newest:
                self._newest[snapshot.node] = snapshot

    def put(self, snapshot: Snapshot) -> bool:
        """Leave a snapshot; return whether the box was empty, so that its owner must be told."""
        with self._lock:
            was_empty = not self._newest
            self._replaced += snapshot.node in self._newest
            self._newest[snapshot.node] = snapshot
            return was_empty

    def take(self) -> tuple[Snapshot, ...]:
        """Return the newest snapshot of each node that has one, and empty the box."""
        with self._lock:
            newest, self._newest = self._newest, {}
            return tuple(newest.values())


def is_same_picture(before: Snapshot, after: Snapshot) -> bool:
    """Return whether nothing changed but what the hub tells of itself, which can wait for the next sample."""
    if before.sample is None or before.hub is None or after.hub is None:
        return False
    if before.hub.workers != after.hub.workers:
        return False
    return msgspec.structs.replace(before, hub=after.hub) == after
