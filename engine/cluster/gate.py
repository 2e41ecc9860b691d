"""The tcp port of a hub: one socket over which viewers ask, and are sent what they asked to follow.

One ROUTER instead of a second XPUB: every message in and out is of one known peer. So roles are looked up at
each request, and whoever is revoked is sent nothing more from that moment on, while others stay connected.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import zmq

from ..clock import Clock
from ..errors import InputFileError, UsageError
from ..sources.processes import find_user_name
from ..wire.messages import TO_WHOM_IT_CONCERNS, Refusal, Request, encode
from ..wire.selection import (
    JOIN_COSTS,
    MAX_PEERS_OF_KEY,
    Cut,
    KeyAllowances,
    PeerState,
    RemotePeer,
    explain_excess,
    select_devices,
)
from .addresses import TcpAddress, parse_listen_address, resolve
from .keys import (
    ALLOW_LIST_NAME,
    KEY_BYTES,
    AllowList,
    KeyPair,
    Role,
    keys_folder,
    read_allow_list,
    read_key_pair,
)
from .links import LinkTimes, split

VISITOR = "visitor"
"""The user of a peer without a key."""
MAX_TURNED_AWAY = 1024
_FRAMES_BEFORE_CREDENTIALS = 6
_ALLOWED = b"200"
_REFUSED = b"400"


class Doorkeeper:
    """Knows keys and roles, and reads the list again when it changes.

    Args:
        pair: Key of the user of this agent, who may do everything; None to let everybody in.
        folder: Folder of the list of keys that are allowed.
        visitor: What everybody may do where there is no pair.
    """

    def __init__(self, pair: KeyPair | None, folder: Path, visitor: Role = "viewer") -> None:
        self.note: str | None = None
        """Why the list cannot be read, in one sentence; then no key on it may connect."""
        self.turned_away: set[bytes] = set()
        """Addresses whose key was not let in when they last asked; they never get as far as a message."""
        self._pair = pair
        self._visitor = visitor
        self._path = folder / ALLOW_LIST_NAME
        self._allowed = AllowList()
        self._stamp = self._look()
        self._read()

    def has_changed(self) -> bool:
        """Read the list again if it was replaced or edited; return whether it was."""
        stamp = self._look()
        if self._pair is None or stamp == self._stamp:
            return False
        self._stamp = stamp
        self._read()
        return True

    def role_of(self, user: str) -> Role | None:
        """Return what a peer may do, None for nothing; `user` is its public key in hexadecimal digits."""
        if self._pair is None:
            return self._visitor
        try:
            public = bytes.fromhex(user)
        except ValueError:
            return None
        return "controller" if public == self._pair.public else self._allowed.role_of(public)

    def answer(self, question: list[bytes]) -> list[bytes]:
        """Answer one question of ZeroMQ: whether to accept a peer, and who it is.

        Args:
            question: The frames of ZAP: version, number, domain, address, identity, mechanism, credentials.
        """
        user = self._name_user(question)
        is_allowed = user is not None and self.role_of(user) is not None
        number = question[1] if len(question) > 1 else b""
        address = question[3] if len(question) > 3 else b""
        if user is None or not is_allowed:
            if len(self.turned_away) < MAX_TURNED_AWAY:
                self.turned_away.add(address)
            return [b"1.0", number, _REFUSED, b"this key is not allowed", b"", b""]
        self.turned_away.discard(address)
        return [b"1.0", number, _ALLOWED, b"", user.encode(), b""]

    def _name_user(self, question: list[bytes]) -> str | None:
        if len(question) < _FRAMES_BEFORE_CREDENTIALS:
            return None
        mechanism = question[5]
        credentials = question[_FRAMES_BEFORE_CREDENTIALS:]
        if self._pair is None:
            return VISITOR if mechanism == b"NULL" else None
        is_key = mechanism == b"CURVE" and len(credentials) == 1 and len(credentials[0]) == KEY_BYTES
        return credentials[0].hex() if is_key else None

    def _look(self) -> tuple[int, int, int] | None:
        """Return what identifies this version of the list; None where there is no list."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ctime_ns, found.st_ino

    def _read(self) -> None:
        if self._pair is None:
            return
        try:
            self._allowed = read_allow_list(self._path.parent)
            self.note = None
        except InputFileError as error:
            self._allowed = AllowList()
            self.note = f"only you can connect: {error}"


class Listening(NamedTuple):
    """Where an agent listens, and who may connect."""

    address: TcpAddress
    """Numeric."""
    pair: KeyPair | None
    """Key of its user; None to let everyone connect."""
    doorkeeper: Doorkeeper
    times: LinkTimes = LinkTimes()
    taken: str = "port {port} is in use by {holder}: choose another with --listen"
    """Error text for a port that is in use."""

    @property
    def words(self) -> str:
        """Where it listens and who may come, in one sentence."""
        where = f"listening on {self.address.text}"
        if self.pair is not None:
            return f"{where} for the keys in `vramscope keys list`"
        if self.address.is_loopback:
            return f"{where} without keys: everyone on this machine can read; nobody can change anything"
        return (
            f"{where}, INSECURE: anyone who can reach it, or the traffic on its way, can read this "
            "node's commands, users and memory; nobody can change anything"
        )


def prepare_listening(text: str, *, is_insecure: bool) -> Listening:
    """Return where an agent is to listen.

    Args:
        text: `[ADDRESS:]PORT` as it was typed; empty for the usual port on loopback.
        is_insecure: Listen without keys, wherever that is.

    Raises:
        UsageError: It is no address, its name is unknown, or it is beyond loopback and there is no key.
        InputFileError: The keys cannot be used.
    """
    address = resolve(parse_listen_address(text))
    folder = keys_folder()
    pair = None if is_insecure else read_key_pair(folder)
    if pair is None and not is_insecure and not address.is_loopback:
        raise UsageError(
            f"--listen {text}: an agent that other machines can reach needs a key, and you have none: "
            "create one with `vramscope keys new` (or let everyone read with --insecure)"
        )
    return make_listening(address, pair, folder)


def make_listening(
    address: TcpAddress, pair: KeyPair | None, folder: Path, visitor: Role = "viewer"
) -> Listening:
    """Return what makes an agent listen; without `pair` everybody may do what `visitor` may."""
    return Listening(address, pair, Doorkeeper(pair, folder, visitor))


ZAP_ENDPOINT = "inproc://zeromq.zap.01"
ZAP_DOMAIN = b"vramscope"


def set_listening_options(socket: "zmq.Socket[bytes]", listening: Listening, most_waiting: int) -> None:
    """Set a socket before it is bound; `most_waiting` messages of one connection wait to be sent."""
    options: dict[int, int | bytes] = {
        zmq.LINGER: 0,
        zmq.MAXMSGSIZE: MAX_INCOMING_BYTES,
        zmq.SNDHWM: most_waiting,
        zmq.RCVHWM: MAX_WAITING,
        zmq.HANDSHAKE_IVL: listening.times.handshake_within_ms,
        zmq.HEARTBEAT_IVL: listening.times.heartbeat_ms,
        zmq.HEARTBEAT_TIMEOUT: listening.times.heartbeat_within_ms,
        zmq.IPV6: int(":" in listening.address.host),
        zmq.ZAP_DOMAIN: ZAP_DOMAIN,
    }
    if listening.pair is not None:
        options |= {zmq.CURVE_SERVER: 1, zmq.CURVE_SECRETKEY: listening.pair.secret}
    for option, value in options.items():
        socket.setsockopt(option, value)


MAX_INCOMING_BYTES = 1024**2
"""Largest message that is read from the network; ZeroMQ disconnects who sends a larger one."""
MAX_PEERS = 256
MAX_TOPICS = 32
MAX_TOPIC_CHARACTERS = 64
SEND_QUEUE_MESSAGES = 64
"""Messages a stalled viewer may fall behind before new ones are dropped for it; the ring fills the gap."""
MAX_WAITING = 4
"""Messages of one connection that wait to be read: of large ones many connections would fill the memory."""
MAX_PER_TURN = 64
MAX_SHOWN = 80
"""Most characters of an unknown name that are repeated in a refusal."""
NODES_A_SHARE = 2
"""Who may follow so many nodes by one connection may ask as much again as who follows one."""
CELLS_COST = 1.0
"""A join without history costs no more than another request."""
_MAY_ASK = {
    "viewer": ("join", "leave"),
    "worker": ("join", "leave", "segments", "history", "advise"),
    "node": (),
}
"""What each role may ask; a controller may ask everything."""


Cutter = Callable[[Cut], bytes | None]
"""Reduces a message to what a peer gets; None where nothing is left."""


class Gate:
    """Listens on one port; use from the thread of its hub.

    Args:
        node: Name of this node, for sentences.
        most_waiting: Messages a stalled viewer may fall behind before new ones are dropped for it.

    Raises:
        UsageError: The port is taken, or the address is not of this machine.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        listening: Listening,
        node: str,
        hub_id: str,
        clock: Clock,
        *,
        most_waiting: int = SEND_QUEUE_MESSAGES,
    ) -> None:
        self._doorkeeper = listening.doorkeeper
        self._node = node
        self._hub_id = hub_id
        self._clock = clock
        self._peers: dict[bytes, PeerState] = {}
        self._own_user = find_user_name(os.geteuid())
        self._keys = KeyAllowances()
        self._nodes = frozenset({""})
        self.ignored = 0
        """Messages that came too fast, or could not be read."""
        self.questions = context.socket(zmq.ROUTER)
        """Where ZeroMQ asks which connections to accept; handled by `take_questions`."""
        self.questions.setsockopt(zmq.LINGER, 0)
        self.questions.bind(ZAP_ENDPOINT)
        self.router = context.socket(zmq.ROUTER)
        """Where requests come in."""
        self.router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        set_listening_options(self.router, listening, most_waiting)
        try:
            self.router.bind(listening.address.endpoint)
        except zmq.ZMQError as error:
            raise _explain(listening, error) from error

    @property
    def viewers(self) -> int:
        """Peers that follow the stream."""
        return sum(peer.is_following for peer in self._peers.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """What went wrong here, in sentences."""
        note = self._doorkeeper.note
        told = f"{self.ignored} messages over tcp were dropped: too frequent or invalid"
        return tuple(filter(None, (note, told if self.ignored else None)))

    def offer(self, nodes: Iterable[str]) -> None:
        """Let peers of a relay follow these nodes by name, and the relay itself."""
        self._nodes = frozenset({"", *nodes})
        for peer in self._peers.values():
            for node in peer.follows.keys() - self._nodes:
                peer.stop_following(node)
            peer.answering = {node: it for node, it in peer.answering.items() if node in self._nodes}

    def take_questions(self) -> bool:
        """Answer ZeroMQ which connections to accept; return whether any was waiting."""
        for asked in range(MAX_PER_TURN):
            try:
                asker, empty, *question = self.questions.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return asked > 0
            self.questions.send_multipart([asker, empty, *self._doorkeeper.answer(question)])
        return True

    def take_requests(self, cost: float = 1.0) -> Iterator[tuple[RemotePeer, bytes]]:
        """Yield messages with their peers; those of a peer that asks too fast are dropped.

        Args:
            cost: Of one message, counted against what its peer and its key may ask.
        """
        for _ in range(MAX_PER_TURN):
            try:
                frames = self.router.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            peer = RemotePeer.of(frames[0].bytes, str(frames[-1].get("User-Id") or ""))
            if len(frames) == 2 and self._spend(peer, cost):
                yield peer, frames[1].bytes
            else:
                self.ignored += 1

    def refuse(self, peer: RemotePeer, request: Request) -> str | None:
        """Return why a request is refused, in one sentence, or None; who joins follows from now on."""
        role = self._doorkeeper.role_of(peer.user)
        if role is None:
            return self._explain_unknown(peer.user)
        if role != "controller" and request.verb not in _MAY_ASK[role]:
            return self._explain_role(peer.user, "controller")
        if request.node not in self._nodes:
            return f"{self._node} has no node {request.node[:MAX_SHOWN]!r}"
        return self._admit(peer, request) if request.verb == "join" else None

    def is_on_its_way(self, peer: RemotePeer, request: Request) -> bool:
        """Return whether the same was asked before, and answered: on a slow line answers take their time."""
        state = self._peers.get(peer)
        if state is None or state.user != peer.user or request.verb != "join":
            return False
        return state.answering.get(request.node) == request.request_id

    def refuse_report(self, peer: RemotePeer) -> str | None:
        """Return why the report of a worker is refused, in one sentence, or None."""
        role = self._doorkeeper.role_of(peer.user)
        if role is None:
            return self._explain_unknown(peer.user)
        return None if role in ("worker", "controller") else self._explain_role(peer.user, "worker")

    def publish(
        self,
        topic: bytes,
        *frames: bytes,
        node: str = "",
        cut: Cutter | None = None,
        has_commands: bool = False,
    ) -> None:
        """Send a message to all who follow its topic, without waiting for slow ones.

        Args:
            frames: The message, after the name of its node where a relay sends it.
            node: Name of the node; empty for the one that listens.
            cut: Makes the message of a part, once for all who get the same; None where there is no such
                message.
            has_commands: Whether it has commands of processes, which not everybody may read.
        """
        followers = [(who, peer) for who, peer in self._peers.items() if peer.is_told(topic, node)]
        made: dict[Cut, bytes | None] = {}
        for identity, peer in followers:
            part = Cut(peer.selections.get(node), self._commands_of(peer.user) if has_commands else None)
            if part.is_whole or cut is None:
                self.answer(identity, *frames)
                continue
            if part not in made:
                made[part] = cut(part)
            message = made[part]
            if message is not None:
                self.answer(identity, *frames[:-1], message)

    def find_part(self, peer: bytes, request: Request) -> Cut:
        """Return what a peer gets of the answer to a request."""
        state = self._peers.get(peer)
        user = "" if state is None else state.user
        return Cut(select_devices(request.devices), self._commands_of(user))

    def _commands_of(self, user: str) -> str | None:
        """Return whose commands a peer may read with arguments; None for those of everybody."""
        return None if self._doorkeeper.role_of(user) == "controller" else self._own_user

    def has_followers(self, topic: bytes, node: str = "") -> bool:
        return any(peer.is_told(topic, node) for peer in self._peers.values())

    def note_rejected(self) -> None:
        """Count a message that could not be read."""
        self.ignored += 1

    def stop_following(self, peer: bytes, node: str) -> None:
        """Send a peer nothing more of a node."""
        state = self._peers.get(peer)
        if state is not None:
            state.stop_following(node)

    def answer(self, identity: bytes, *frames: bytes) -> None:
        """Send one peer a message; forget a peer that has gone; one that does not read misses it."""
        try:
            self.router.send_multipart([identity, *split(*frames)], zmq.NOBLOCK)
        except zmq.Again:
            if identity in self._peers:  # it may have been the answer
                self._peers[identity].answering.clear()
        except zmq.ZMQError:  # nobody has this identity any more
            self._peers.pop(identity, None)

    def answer_join(self, identity: bytes, request: Request, *frames: bytes) -> None:
        """Send a peer what it asked for on joining; the same question is not answered again meanwhile."""
        state = self._peers.get(identity)
        if state is not None:
            state.answering[request.node] = request.request_id
        self.answer(identity, *frames)

    def cut_off_revoked(self) -> None:
        """Send nothing more to those whose key is no longer allowed, once the list of keys has changed."""
        if not self._doorkeeper.has_changed():
            return
        self._keys.forget(lambda user: self._doorkeeper.role_of(user) is None)
        for identity, peer in list(self._peers.items()):
            if self._doorkeeper.role_of(peer.user) is None:
                reason = self._explain_unknown(peer.user)
                refusal = Refusal(TO_WHOM_IT_CONCERNS, reason)
                self.answer(identity, encode("refusal", self._hub_id, refusal))
                self._peers.pop(identity, None)

    def _admit(self, peer: RemotePeer, request: Request) -> str | None:
        excess = explain_excess(request.devices)
        if excess is not None:
            return f"the list of devices {excess}"
        if not self._spend(peer, JOIN_COSTS if request.detail == "full" else CELLS_COST):
            return "the full state was requested too often: ask again in a few seconds"
        state = self._peers.get(peer)
        if state is None:
            return (
                f"{self._node} rejects more viewers: it has {MAX_PEERS}, or {MAX_PEERS_OF_KEY} with one key"
            )
        topics = tuple(it[:MAX_TOPIC_CHARACTERS].encode() for it in request.topics[:MAX_TOPICS])
        state.follow(request.node, topics, select_devices(request.devices))
        return None

    def _spend(self, peer: RemotePeer, cost: float) -> bool:
        """Return whether a peer and its key may ask now; one that is one too many is not remembered."""
        now_s = self._clock.monotonic_s()
        cost = cost / max(1.0, len(self._nodes) / NODES_A_SHARE)
        state = self._peers.get(peer)
        if state is None or state.user != peer.user:  # peers choose identities: this was another's
            self._peers.pop(peer, None)
            state = PeerState(peer.user, now_s)
            if self._has_room(peer.user):
                self._peers[bytes(peer)] = state
        if not state.spend(cost, now_s):
            return False
        return peer.user == VISITOR or self._keys.spend(peer.user, cost, now_s)

    def _has_room(self, user: str) -> bool:
        """Return whether one more peer may be kept; the oldest that follows nothing makes way for it."""
        of_key = {identity: peer for identity, peer in self._peers.items() if peer.user == user != VISITOR}
        if len(self._peers) < MAX_PEERS and len(of_key) < MAX_PEERS_OF_KEY:
            return True
        among = of_key if len(of_key) >= MAX_PEERS_OF_KEY else self._peers
        idle = next((identity for identity, peer in among.items() if not peer.is_following), None)
        if idle is not None:
            del self._peers[idle]
        return idle is not None

    def _explain_unknown(self, user: str) -> str:
        return f"this key is not allowed on {self._node}: run there `vramscope keys allow {user} --name NAME`"

    def _explain_role(self, user: str, role: Role) -> str:
        if user == VISITOR:
            return f"{self._node} listens without keys: everyone can read, nobody can change anything"
        return (
            f"this key may not do that on {self._node}: run there `vramscope keys allow {user} --name "
            f"NAME --role {role}`"
        )


def _explain(listening: Listening, error: zmq.ZMQError) -> UsageError:
    address = listening.address
    if error.errno == zmq.EADDRINUSE:
        from .addresses import describe_holder

        holder = describe_holder(address.host, address.port)
        return UsageError(listening.taken.format(port=address.port, host=address.host, holder=holder))
    return UsageError(
        f"cannot listen on {address.text}: {os.strerror(error.errno or 0)}; name an address of this machine"
    )
