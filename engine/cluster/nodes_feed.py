"""What feeds the screens from several agents: a thread that follows all of them."""

import threading
from collections import deque
from collections.abc import Callable, Sequence

from ..alerts.state import FindingDecision
from ..history import History
from ..model import AdviceAction
from ..viewer.picture import NodePicture
from ..viewer.snapshot import Snapshot
from .addresses import NodeAddress
from .links import Trust
from .nodes_watch import NodesWatch
from .remote_node import ALL, Choice

TURN_S = 1.0
GATHER_S = 0.04
"""Messages that come within this time are taken together: to wait for hundreds of sockets costs more than to
read one."""
MAX_WISHES = 64
MOST_IN_FULL = 8
"""Nodes that are followed in full, with their history of 0.5 MiB a device: those looked at last."""

Wish = Callable[[NodePicture], object]
"""What the thread is asked to do with a node that is looked at."""


class NodesFeed:
    """Follows agents on a thread of its own.

    Args:
        addresses: Of the nodes, as they were typed, each once; the first is asked until another is looked at.
        trust: Keys of this user.
        choice: Which nodes and devices are followed.
    """

    def __init__(self, addresses: Sequence[NodeAddress], trust: Trust, choice: Choice = ALL) -> None:
        self._watch = NodesWatch(addresses, trust, most_in_full=MOST_IN_FULL, choice=choice)
        self._looked_at = addresses[0].label
        self._wishes: deque[tuple[str, Wish]] = deque(maxlen=MAX_WISHES)
        self._on_snapshot: Callable[[Snapshot], None] = lambda _: None
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="nodes-feed", daemon=True)
        self.history = self.history_of(self._looked_at)
        """What was seen of the first node; safe to read from any thread."""

    @property
    def nodes_left_out(self) -> int:
        """Nodes that are known and not followed, because nobody asked for them; from any thread."""
        return self._watch.nodes_left_out

    def start(self, on_snapshot: Callable[[Snapshot], None]) -> None:
        """Call `on_snapshot` from this feed's own thread whenever there is something new."""
        self._on_snapshot = on_snapshot
        self._thread.start()

    def stop(self) -> None:
        """End the thread and leave the agents; returns within half a second."""
        self._is_stopped.set()
        self._watch.wake()
        if self._thread.is_alive():
            self._thread.join(timeout=0.5)

    def history_of(self, node: str) -> History:
        """Return what was seen so far of a node, none of one that is gone; safe to read from any thread."""
        found = self._watch.nodes.get(node)
        return History() if found is None else found.picture.history

    def look_at(self, node: str) -> None:
        """Say which node is looked at: it is followed in full, and asked what is asked from now on."""
        self._looked_at = node
        self._wish(lambda _: None)

    def ask_segments(self, pid: int) -> None:
        """Ask for the segment map of a process of the node that is looked at; returns at once.

        It comes with a later snapshot, in `segment_maps`, or the reason why not, in `segments_refused`.
        """
        self._wish(lambda picture: picture.ask_segments(pid))

    def ask_modules(self, pid: int) -> None:
        """Ask for the memory by module of a process of the node that is looked at; returns at once.

        It comes with a later snapshot, in `modules`, or the reason why not.
        """
        self._wish(lambda picture: picture.ask_modules(pid))

    def advise(self, pid: int, action: AdviceAction, reason: str) -> None:
        """Ask a process of the node that is looked at to do something about its memory; returns at once.

        What it made of that comes with a later snapshot, in `advice`.
        """
        self._wish(lambda picture: picture.advise(pid, action, reason=reason))

    def decide(self, decision: FindingDecision) -> None:
        """Acknowledge a finding of the node that is looked at, mute its kind, or take that back.

        It returns at once; a later snapshot says so in `alerts`, or why not in `decision_refused`.
        """
        self._wish(lambda picture: picture.decide(decision))

    def _wish(self, wish: Wish) -> None:
        self._wishes.append((self._looked_at, wish))
        self._watch.wake()

    def _follow(self) -> None:
        for node in self._watch.nodes.values():
            self._on_snapshot(node.picture.newest)
        while not self._is_stopped.is_set():
            while self._wishes:
                name, wish = self._wishes.popleft()
                self._watch.look_at(name)
                if name in self._watch.nodes:
                    wish(self._watch.nodes[name].picture)
            for snapshot in self._watch.turn(TURN_S):
                self._on_snapshot(snapshot)
            self._is_stopped.wait(GATHER_S)
        self._watch.close()
