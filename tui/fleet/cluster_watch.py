"""What is concluded across nodes, on a thread beside the screens: of a thousand nodes that takes a while."""

import threading
from collections import deque
from collections.abc import Sequence

from ...analyzers.cluster_state import ClusterPicture, ClusterState
from ...engine.model import Finding
from ...engine.viewer.snapshot import Snapshot

GATHER_S = 2.0
MOST_GATHERED = 128
"""What nodes tell within this time is looked at together, but no more than so many snapshots wait for that:
of a node of eight devices each holds 20 KiB."""


class ClusterWatch:
    """Takes snapshots of nodes, one after another; use from one thread.

    Args:
        state: What is known already; by default nothing.
    """

    def __init__(self, state: ClusterState | None = None) -> None:
        self._state = state or ClusterState()
        self.picture: ClusterPicture = self._state.picture
        """All nodes as of the newest conclusion."""
        self.findings: tuple[Finding, ...] = self._state.findings
        """What is open across nodes, as of the newest conclusion."""
        self._untold: deque[tuple[Snapshot, float]] = deque()
        self._begun_s: float | None = None
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def note(self, snapshot: Snapshot, received_s: float) -> None:
        """Take the newest snapshot of a node; what follows from it is known a little later.

        Args:
            snapshot: What its feed tells.
            received_s: When it came, by our own clock.
        """
        if self._failure is not None:
            raise self._failure
        self._untold.append((snapshot, received_s))
        if self._begun_s is None:
            self._begun_s = received_s
        is_busy = self._thread is not None and self._thread.is_alive()
        is_due = received_s - self._begun_s >= GATHER_S or len(self._untold) >= MOST_GATHERED
        if is_due and not is_busy:
            self._begun_s = received_s
            self._thread = threading.Thread(target=self._conclude, name="cluster-watch", daemon=True)
            self._thread.start()

    def hold_against(self, planned: Sequence[int]) -> None:
        """Hold pipeline stages against a plan, from the next conclusion on.

        Args:
            planned: What it says of a rank of each stage in bytes.
        """
        self._state.hold_against(planned)

    def _conclude(self) -> None:
        try:
            while self._untold:
                self._state.observe(*self._untold.popleft())
                if self._state.picture is not self.picture:
                    self.picture = self._state.picture
                    self.findings = self._state.findings
        except Exception as error:  # noqa: BLE001 - it is raised where a person sees it
            self._failure = error
