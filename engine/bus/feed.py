"""What a screen is fed by: a thread that hands over frozen snapshots, and the history beside them."""

from collections.abc import Callable
from typing import Protocol

from ..history import History
from .snapshot import Snapshot


class Feed(Protocol):
    """A source of snapshots for one viewer."""

    history: History
    """What was seen so far, backfill included; safe to read from any thread."""

    def start(self, on_snapshot: Callable[[Snapshot], None]) -> None:
        """Call `on_snapshot` from a thread of the feed's own whenever there is something new."""
        ...

    def stop(self) -> None:
        """End the thread and give back the connection; returns within half a second."""
        ...
