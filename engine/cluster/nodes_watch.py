"""Several nodes followed by one loop, over tcp and through ssh, each on its own: none disturbs another."""

import os
import threading
from collections import ChainMap, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import zmq

from ..clock import Clock, SystemClock, ceil_ms
from ..history import History
from ..viewer.feed import AskingFeed
from ..viewer.picture import NodePicture
from ..viewer.snapshot import Snapshot
from ..wire.messages import Detail
from .addresses import NameLookup, NodeAddress, SshHost
from .connections import NodeConnection, RelayedConnection, RemoteConnection, Sockets
from .links import LinkTimes
from .remote_node import ALL, Choice, RelayLink, RemoteNode, explain_no_node
from .ssh import SshConnection
from .trust import Trust

JUDGE_S = 0.25
"""How often connections are looked at."""
JUDGED_AT_ONCE = 64
JUDGED_IN_TURNS = 4
"""Above this number of nodes each is checked in only some of the turns, once a second."""
AGE_INTERVAL_S = 1.0
"""How often the age of a lost node is refreshed."""
IO_THREADS = 1
NO_NODE = "no node"
"""Shown in place of nodes, with the reason, when no known node is followed."""


class NodesWatch:
    """Follows nodes; use from one thread, but for `wake`.

    Args:
        addresses: Of the nodes, as they were typed, each once.
        most_in_full: How many nodes are followed in full, with their history: those looked at last, and of no
            more nodes than that all. Of others comes what a cell of the fleet shows. None for all in full.
        relay_id: Of the relay that follows them, which must not follow itself; None in a viewer.
        choice: Which nodes are followed, and which devices of each. A node that has an address of its own is
            left once it has answered, and so is no relay.
        times: How long is waited for agents over tcp; those of `LinkTimes` by default.
    """

    def __init__(
        self,
        addresses: Sequence[NodeAddress],
        trust: Trust,
        *,
        most_in_full: int | None = None,
        relay_id: str | None = None,
        choice: Choice = ALL,
        times: LinkTimes | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._times = times or LinkTimes()
        self._relay_id = relay_id
        self._reported_mismatch = ""
        self.choice = choice
        """Which nodes are followed, and which devices of each."""
        self.on_added: Callable[[str, RemoteNode], None] = lambda _name, _node: None
        """Called when a node behind a relay appears, before its first message is processed."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(IO_THREADS)
        self._context.set(zmq.MAX_SOCKETS, 4 * len(addresses) + 64)
        self._poller = zmq.Poller()
        self._wake_lock = threading.Lock()
        self._is_closed = False
        self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poller.register(self._read_fd, zmq.POLLIN)
        self._lookup = NameLookup(self.wake)
        self._over_tcp: dict[str, RemoteConnection] = {}
        self._in_full = RecentNames(most_in_full)
        self._most_in_full = most_in_full
        self.nodes: dict[str, RemoteNode] = {}
        """By what they are called; those behind relays come and go. One agent is one, by whatever ways."""
        self._ways = NodeWays(self.nodes)
        self._direct: dict[str, RemoteNode] = {}
        self._relays = RelayLinks(ChainMap(self.nodes, self._ways.aside), self._add, self._forget)
        self._gone = list[str]()
        self._left_out = list[str]()
        self.nodes_left_out = 0
        """Known nodes that are not followed because they were not asked for; read from any thread."""
        self._judge_s = 0.0
        self._turn_number = 0
        self._reported_s: dict[str, float] = {}
        self._addresses = len(addresses)
        self._begin(addresses, trust)

    def wake(self) -> None:
        """Let a turn that waits return, from any thread."""
        with self._wake_lock, suppress(BlockingIOError):
            if not self._is_closed:
                os.write(self._write_fd, b"?")

    def turn(self, timeout_s: float) -> list[Snapshot]:
        """Wait until something arrives or the time is up; return the pictures that are new."""
        ready = dict(self._poller.poll(ceil_ms(max(0.0, min(timeout_s, self._judge_in_s)))))
        if self._read_fd in ready:
            os.read(self._read_fd, 4096)
        for found in self._lookup.take():
            if found.asked.label in self._over_tcp:
                self._over_tcp[found.asked.label].find(found)
        heard = [
            name
            for name, node in self._direct.items()
            if not ready.keys().isdisjoint(node.connection.sources)
        ]
        changed = self._receive(heard)
        changed += self._receive([*self._find_relays(heard), *self._relays.receive(ready)])
        self._leave_out(heard)
        self.nodes_left_out = len(self._left_out) + self._relays.count_left_out()
        if self._judge_in_s <= 0:
            changed += self._judge()
        if self._ways.note(changed):
            self._choose_ways()
        gone = self._gone
        self._gone = []
        news = [self.nodes[name].picture.newest for name in dict.fromkeys(changed) if name in self.nodes]
        news += self._report_mismatch()
        return [Snapshot(node=name, is_gone=True) for name in gone if name not in self.nodes] + news

    @property
    def context(self) -> "zmq.Context[zmq.Socket[bytes]]":
        """Where its sockets are, for others that the same loop serves."""
        return self._context

    @property
    def relay_ids(self) -> tuple[str, ...]:
        """Ids of all relays that are reached."""
        return self._relays.relay_ids

    @property
    def doubles(self) -> dict[str, str]:
        """Nodes that were named by two addresses, each with the name by which it is followed."""
        return self._ways.doubles

    @property
    def mismatch(self) -> str | None:
        """Why no node is followed, in one sentence; None where one is, or none is known yet."""
        if self.nodes or not self.nodes_left_out:
            return None
        return explain_no_node(self.choice, [*self._left_out, *self._relays.left_out])

    def wait_for(self, socket: "zmq.Socket[bytes]") -> None:
        """Let a turn also end when a message arrives on another socket."""
        self._poller.register(socket, zmq.POLLIN)

    def look_at(self, name: str) -> None:
        """Follow a node in full, if it is there, and the one that was looked at longest ago no longer."""
        if name not in self.nodes:
            return
        for other in self._in_full.note(name):
            self.nodes[other].follow("cells")
        self.nodes[name].follow("full")

    def close(self) -> None:
        self._lookup.stop()
        for node in self._direct.values():
            node.close()
        self._relays.close()
        self._context.destroy(linger=0)
        with self._wake_lock:
            self._is_closed = True
            os.close(self._read_fd)
            os.close(self._write_fd)

    def _begin(self, addresses: Sequence[NodeAddress], trust: Trust) -> None:
        """Follow nodes by their addresses; behind ssh there is no relay, so that names say whether."""
        for address in addresses:
            if isinstance(address, SshHost) and not self.choice.wants_node(address.label):
                self._left_out.append(address.label)
                continue
            self._add(address.label, self._connect(address, trust))
            self._direct[address.label] = self.nodes[address.label]
        self.nodes_left_out = len(self._left_out)
        for connection in self._over_tcp.values():
            self._lookup.ask(connection.address)

    def _add(self, name: str, connection: NodeConnection) -> None:
        is_wanted = self.choice.wants_node(name)
        detail: Detail = "full" if is_wanted and self._are_few and self._in_full.has_room else "cells"
        if detail == "full":
            self._in_full.note(name)
        history = History(keeps_ranks=self._relay_id is not None)  # a relay answers workers and late viewers
        node = RemoteNode(name, connection, self._clock, history, detail, self.choice.devices)
        self.nodes[name] = node
        self.on_added(name, node)

    @property
    def _are_few(self) -> bool:
        """Whether nodes are followed in full before anybody looks at them."""
        known = self._addresses - len(self._left_out) + self._relays.count_nodes()
        return self._most_in_full is None or known <= self._most_in_full

    def _forget(self, name: str) -> None:
        set_aside = self._ways.forget(name)
        if set_aside is not None:
            set_aside.close()
        else:
            self._hide(name).close()

    def _hide(self, name: str) -> RemoteNode:
        """Report nothing more about a node; return it."""
        self._in_full.forget(name)
        self._reported_s.pop(name, None)
        self._gone.append(name)
        return self.nodes.pop(name)

    def _choose_ways(self) -> None:
        """Follow each node by the best of the ways to it, and by no other."""
        change = self._ways.choose()
        for name in change.set_aside:
            self._ways.aside[name] = node = self._hide(name)
            node.on_heard = None
            if is_relayed(node.connection):
                node.close()
            else:
                node.follow("cells")
        for name in change.resumed:
            self._follow_again(name, self._ways.aside.pop(name))

    def _find_relays(self, heard: Sequence[str]) -> list[str]:
        """Follow, where a relay has answered, the nodes behind it in its place; return their names."""
        found: list[str] = []
        for name in heard:
            if name in self._over_tcp and self._direct[name].known_nodes is not None:
                node = self._direct.pop(name)
                link = RelayLink(node, self._over_tcp[name], self._relay_id, self.choice)
                if self._ways.forget(name) is None:
                    self._hide(name)
                found += self._relays.adopt(link)
        return found

    def _leave_out(self, heard: Sequence[str]) -> None:
        """Leave nodes that have answered and are not among those that are followed."""
        for name in heard:
            node = self.nodes.get(name)
            if node is not None and node.has_answered and not self.choice.wants_node(name):
                del self._direct[name], self._over_tcp[name]
                self._forget(name)
                self._left_out.append(name)

    def _report_mismatch(self) -> list[Snapshot]:
        """Return the picture that says why no node is followed, and the one that withdraws it."""
        mismatch = self.mismatch or ""
        if mismatch == self._reported_mismatch:
            return []
        self._reported_mismatch = mismatch
        return [
            Snapshot("lost", mismatch, node=NO_NODE) if mismatch else Snapshot(node=NO_NODE, is_gone=True)
        ]

    def _receive(self, names: Sequence[str]) -> list[str]:
        """Let nodes read their messages; return those that changed."""
        for name in names:
            if name in self._ways.aside and name in self._direct:
                self._ways.aside[name].receive()
        return [name for name in names if name in self.nodes and self.nodes[name].receive()]

    def _connect(self, address: NodeAddress, trust: Trust) -> NodeConnection:
        if isinstance(address, SshHost):
            return SshConnection(address, self._poller)
        connection = RemoteConnection(address, trust, Sockets(self._context, self._poller, self._times))
        self._over_tcp[address.label] = connection
        return connection

    @property
    def _judge_in_s(self) -> float:
        return self._judge_s - self._clock.monotonic_s()

    def _take_turns(self) -> list[tuple[str, RemoteNode]]:
        """Return the nodes that are to be looked at now."""
        nodes = list(self.nodes.items())
        if len(nodes) <= JUDGED_AT_ONCE:
            return nodes
        self._turn_number = (self._turn_number + 1) % JUDGED_IN_TURNS
        return nodes[self._turn_number :: JUDGED_IN_TURNS]

    def _judge(self) -> list[str]:
        """Check every connection; return the nodes that changed."""
        now_s = self._clock.monotonic_s()
        self._judge_s = now_s + JUDGE_S
        changed = self._receive(self._relays.judge())
        for name, node in self._take_turns():
            is_news = node.judge()
            is_lost = node.picture.newest.connection == "lost"
            if is_news or (is_lost and now_s - self._reported_s.get(name, 0.0) >= AGE_INTERVAL_S):
                changed.append(name)
                self._reported_s[name] = now_s
        for name, connection in self._over_tcp.items():
            link = self._relays.links.get(name)
            node = self._direct[name] if link is None else link.node
            if node.needs_lookup(now_s):
                self._lookup.ask(connection.address)
        if self._ways.aside:
            self._judge_aside()
        return changed

    def _follow_again(self, name: str, before: RemoteNode) -> None:
        """Follow a node that was set aside: over its connection, with another picture."""
        self._add(name, before.connection)
        node = self.nodes[name]
        node.conversation.count_on(before.conversation)
        if name in self._direct:
            self._direct[name] = node
        if node.connection.is_connected:
            node.ask()

    def _judge_aside(self) -> None:
        """Mend the connections of nodes that are followed by another way, and see which way is best."""
        for node in self._ways.aside.values():
            if not is_relayed(node.connection):
                node.judge()
        self._choose_ways()


class RecentNames:
    """Names, the newest last.

    Args:
        most: How many there is room for; None for all.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._names: dict[str, None] = {}

    @property
    def has_room(self) -> bool:
        """Whether one more name drives none out."""
        return self._most is None or len(self._names) < self._most

    def forget(self, name: str) -> None:
        """Let a name make room."""
        self._names.pop(name, None)

    def note(self, name: str) -> tuple[str, ...]:
        """Take a name as the newest; return those that it drives out."""
        self._names.pop(name, None)
        self._names[name] = None
        gone = tuple(self._names)[: 0 if self._most is None else -self._most]
        for it in gone:
            del self._names[it]
        return gone


TAKES_OVER_S = 5.0
"""A way that has been lost for so long is left for another."""


class Change(NamedTuple):
    """Conclusions from what is known about the ways."""

    set_aside: list[str]
    """Names of nodes that are followed by a better way."""
    resumed: list[str]
    """Names of nodes that were set aside, and are the best way now."""


class NodeWays:
    """Chooses among nodes that are one hub: one that is not lost, a direct one, the one that was known first.

    Args:
        nodes: Those that are followed, by their names.
    """

    def __init__(self, nodes: Mapping[str, RemoteNode]) -> None:
        self._nodes = nodes
        self.aside: dict[str, RemoteNode] = {}
        """Nodes that are followed by a better way; of a direct one the connection is kept."""
        self._hub_ids: dict[str, str] = {}
        self._names: dict[str, list[str]] = {}
        """Names of the nodes of each hub, in the order in which they were known."""

    def note(self, names: Iterable[str]) -> bool:
        """Take note of the hubs of nodes that have changed; return whether there is something to choose."""
        found = [
            self._take(name, hub.hub_id)
            for name in names
            if name in self._nodes and (hub := self._nodes[name].picture.newest.hub) is not None
        ]
        return any(found)

    def forget(self, name: str) -> RemoteNode | None:
        """Forget a node; return it where it was set aside."""
        self._leave(name)
        return self.aside.pop(name, None)

    @property
    def doubles(self) -> dict[str, str]:
        direct = [name for name, node in self.aside.items() if not is_relayed(node.connection)]
        return {
            name: followed
            for name in direct
            for followed in self._names[self._hub_ids[name]]
            if followed in self._nodes
        }

    def choose(self) -> Change:
        """Return which nodes are to be followed otherwise than now."""
        for name, node in list(self.aside.items()):
            hub = node.picture.newest.hub
            if hub is not None and not is_relayed(node.connection):
                self._take(name, hub.hub_id)
        set_aside = list[str]()
        resumed = list[str]()
        for names in self._names.values():
            if len(names) > 1 or names[0] in self.aside:
                chosen = min(names, key=self._rank)
                set_aside += [name for name in names if name != chosen and name in self._nodes]
                resumed += [chosen] if chosen in self.aside else []
        return Change(set_aside, resumed)

    def _leave(self, name: str) -> None:
        hub_id = self._hub_ids.pop(name, None)
        if hub_id is not None:
            self._names[hub_id].remove(name)
            if not self._names[hub_id]:
                del self._names[hub_id]

    def _take(self, name: str, hub_id: str) -> bool:
        """Note the hub of a node; return whether it changed, and other nodes share it or did."""
        before = self._hub_ids.get(name)
        if before == hub_id:
            return False
        self._leave(name)
        self._hub_ids[name] = hub_id
        names = self._names.setdefault(hub_id, [])
        names.append(name)
        return before in self._names or len(names) > 1

    def _rank(self, name: str) -> tuple[bool, bool]:
        node = self.aside.get(name) or self._nodes[name]
        newest = node.picture.newest
        connection = node.connection
        if name in self.aside and is_relayed(connection):  # nothing comes of it, but its relay knows
            return not connection.is_connected, True
        is_long = newest.silent_s is None or newest.silent_s >= TAKES_OVER_S
        return newest.connection == "lost" and is_long, is_relayed(connection)


def is_relayed(connection: NodeConnection) -> bool:
    """Return whether a node is reached through a relay."""
    return isinstance(connection, RelayedConnection)


class RelayLinks:
    """Processes what relays report, and follows the nodes behind them."""

    def __init__(
        self,
        names: Container[str],
        follow: Callable[[str, NodeConnection], None],
        forget: Callable[[str], None],
    ) -> None:
        self._taken = names
        self._follow = follow
        self._forget = forget
        self._links: dict[str, RelayLink] = {}
        self._names: dict[tuple[str, str], str] = {}
        """What a node is called here, by the label of its relay and its name there."""
        self._was_connected: dict[str, bool] = {}

    @property
    def links(self) -> Mapping[str, RelayLink]:
        """The relays, by the labels of their addresses."""
        return self._links

    @property
    def relay_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each for link in self._links.values() for each in link.relay_ids))

    @property
    def left_out(self) -> list[str]:
        """Names of the nodes behind relays that are not followed."""
        return [name for link in self._links.values() for name in link.left_out]

    def count_nodes(self) -> int:
        """Return how many nodes behind relays are followed, beyond one for each relay itself."""
        return sum(max(0, link.followed_count - 1) for link in self._links.values())

    def count_left_out(self) -> int:
        """Return how many nodes behind relays are not followed."""
        return sum(len(link.left_out) for link in self._links.values())

    def adopt(self, link: RelayLink) -> list[str]:
        """Follow the nodes behind a relay that was found; return their names."""
        self._links[link.label] = link
        return self._tend(link)

    def receive(self, ready: Mapping[object, int]) -> list[str]:
        """Process what has arrived; return the names of the nodes that should check it."""
        heard: list[str] = []
        for link in self._links.values():
            if not ready.keys().isdisjoint(link.connection.sources):
                link.node.receive()
                heard += self._tend(link)
        return heard

    def judge(self) -> list[str]:
        """Check every relay; return the names of the nodes that should check theirs."""
        for link in self._links.values():
            link.node.judge()
        return [name for link in self._links.values() for name in self._tend(link)]

    def close(self) -> None:
        for link in self._links.values():
            link.node.close()

    def _tend(self, link: RelayLink) -> list[str]:
        """Process a relay's report and pass its events on; return the names of the nodes with news."""
        has_news = link.take_news()
        if has_news:
            self._renew(link)
        heard = dict.fromkeys(link.deal())
        was_connected = self._was_connected.get(link.label)
        self._was_connected[link.label] = link.is_connected
        has_news = has_news or was_connected != link.is_connected
        return [self._names[link.label, name] for name in (link.connections if has_news else heard)]

    def _renew(self, link: RelayLink) -> None:
        """Follow exactly the nodes that the relay has listed."""
        listed = {known.name: known for known in link.list_nodes()}
        for name in [name for name in link.connections if name not in listed]:
            self._forget(self._names.pop((link.label, name)))
            del link.connections[name]
        for name, known in listed.items():
            if name in link.connections:
                link.connections[name].known = known
            else:
                connection = link.connections[name] = RelayedConnection(link, known)
                chosen = self._names[link.label, name] = self._choose_name(link.label, name)
                self._follow(chosen, connection)

    def _choose_name(self, label: str, name: str) -> str:
        """Return a name that no other node has: its own, or with that of the relay before it."""
        while name in self._taken:
            name = f"{label}/{name}"
        return name


TURN_S = 1.0
GATHER_S = 0.04
"""Messages that come within this time are taken together: to wait for hundreds of sockets costs more than to
read one."""
MOST_QUESTIONS = 64
MOST_IN_FULL = 8
"""Nodes that are followed in full, with their history of 0.5 MiB a device: those looked at last."""

Question = Callable[[NodePicture], object]


class NodesFeed(AskingFeed):
    """Follows agents on its own thread.

    Args:
        addresses: Of the nodes, as they were typed, each once; the first is asked until another is looked at.
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
        """Known nodes that are not followed because they were not asked for; from any thread."""
        return self._watch.nodes_left_out

    def history_of(self, node: str) -> History:
        """Return the history of a node, empty if it is gone; safe to read from any thread."""
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
