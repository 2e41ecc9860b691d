"""What feeds the screens from several agents: a thread that follows all of them."""

from collections import deque
from collections.abc import Callable, Sequence

from ..history import History
from ..viewer.feed import AskingFeed
from ..viewer.picture import NodePicture
from .addresses import NodeAddress
from .links import Trust
from .nodes_watch import NodesWatch
from .remote_node import ALL, Choice

TURN_S = 1.0
GATHER_S = 0.04
"""Messages that come within this time are taken together: to wait for hundreds of sockets costs more than to
read one."""
MOST_QUESTIONS = 64
MOST_IN_FULL = 8
"""Nodes that are followed in full, with their history of 0.5 MiB a device: those looked at last."""

Question = Callable[[NodePicture], object]


class NodesFeed(AskingFeed):
    """Follows agents on a thread of its own.

    Args:
        addresses: Of the nodes, as they were typed, each once; the first is asked until another is looked at.
        trust: Keys of this user.
        choice: Which nodes and devices are followed.
    """

    def __init__(self, addresses: Sequence[NodeAddress], trust: Trust, choice: Choice = ALL) -> None:
        super().__init__("nodes-feed")
        self._watch = NodesWatch(addresses, trust, most_in_full=MOST_IN_FULL, choice=choice)
        self._looked_at = addresses[0].label
        self._questions: deque[tuple[str, Question]] = deque(maxlen=MOST_QUESTIONS)
        self.history = self.history_of(self._looked_at)

    @property
    def nodes_left_out(self) -> int:
        """Nodes that are known and not followed, because nobody asked for them; from any thread."""
        return self._watch.nodes_left_out

    def history_of(self, node: str) -> History:
        """Return what was seen so far of a node, none of one that is gone; safe to read from any thread."""
        found = self._watch.nodes.get(node)
        return History() if found is None else found.picture.history

    def look_at(self, node: str) -> None:
        """Say which node is looked at: it is followed in full, and asked what is asked from now on."""
        self._looked_at = node
        self._ask(lambda _: None)

    def _ask(self, question: Question) -> None:
        self._questions.append((self._looked_at, question))
        self._watch.wake()

    def _wake(self) -> None:
        self._watch.wake()

    def _run(self) -> None:
        for node in self._watch.nodes.values():
            self._on_snapshot(node.picture.newest)
        while not self._stopped.is_set():
            while self._questions:
                name, question = self._questions.popleft()
                self._watch.look_at(name)
                if name in self._watch.nodes:
                    question(self._watch.nodes[name].picture)
            for snapshot in self._watch.turn(TURN_S):
                self._on_snapshot(snapshot)
            self._stopped.wait(GATHER_S)
        self._watch.close()
