"""Keeps the newest snapshot of an agent for whoever asks; a viewer that the agent does not count."""

import os
import threading
from pathlib import Path

from ...engine.clock import Clock, SystemClock
from ...engine.model import Sample
from ...engine.viewer.client import Client
from ...engine.viewer.snapshot import Snapshot
from .families import Picture


class SnapshotFollower:
    """Follows the agent of a runtime folder on a thread; comes back to it when it is started again.

    Args:
        node: Name of this node, until the agent reports one.
    """

    def __init__(self, runtime_dir: Path, *, node: str, clock: Clock | None = None) -> None:
        self._folder = runtime_dir
        self._node = node
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._snapshot = Snapshot()
        self._came_s = 0.0
        self._stop = threading.Event()
        self._closing_fd, self._open_fd = os.pipe()
        self._thread = threading.Thread(target=self._follow, name="hub-follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        os.close(self._open_fd)  # wakes the thread
        self._thread.join(timeout=1.0)

    def look(self) -> Picture:
        """Return what is known now, from any thread."""
        with self._lock:
            snapshot = self._snapshot
            came_s = self._came_s
        node = self._node if snapshot.sample is None else snapshot.sample.node
        return Picture(node, snapshot, self._clock.monotonic_s() - came_s)

    def _follow(self) -> None:
        shown: Sample | None = None
        with Client(self._folder, closing_fd=self._closing_fd, is_counted=False) as client:
            while not self._stop.is_set():
                snapshot = client.snapshot(timeout_s=5.0)
                is_new = snapshot.sample is not shown
                shown = snapshot.sample
                with self._lock:
                    self._snapshot = snapshot
                    self._came_s = self._clock.monotonic_s() if is_new else self._came_s
        os.close(self._closing_fd)
