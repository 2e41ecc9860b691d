"""Reports of a distributed run: sent by each node, gathered by one."""

import math
import os
import time
from contextlib import suppress
from pathlib import Path

import zmq

from ..clock import Clock, SystemClock, ceil_ms
from ..errors import UsageError, WireError
from ..wire.messages import body_of, decode, encode
from .addresses import LOOPBACK, FoundAddress, TcpAddress, describe_holder, parse_address, parse_port, resolve
from .connections import RemoteConnection, Sockets
from .gate import ZAP_ENDPOINT, Listening, make_listening, set_listening_options
from .keys import keys_folder, read_key_pair
from .links import Failure, NodeKeys, Trust, read_trust
from .reports import (
    MAX_REPORT_BYTES,
    MOST_NODES,
    RECEIPT,
    REPORT,
    NodeReceipt,
    NodeReport,
    NodeRoll,
    check_report,
)

EVERYWHERE = "0.0.0.0"  # noqa: S104 - only where `*` was typed, and with keys


def find_host(host: str | None, port: int) -> TcpAddress:
    """Return the numeric address of a host; asks name servers, and may take long.

    Args:
        host: Name or number; None for this machine, `*` for all of its addresses.

    Raises:
        UsageError: It is no host, nobody knows the name, or the port is none.
    """
    parse_port(str(port))
    if host in (None, "", "localhost"):
        return TcpAddress(LOOPBACK, port)
    if host == "*":
        return TcpAddress(EVERYWHERE, port)
    return resolve(TcpAddress(_read_host(str(host)), port))


def _read_host(text: str) -> str:
    """Return a host as it was typed, without the brackets of IPv6."""
    bare = text.removeprefix("[").removesuffix("]")
    try:
        return parse_address(f"[{bare}]" if ":" in bare else bare).host
    except UsageError as error:
        raise UsageError(
            f"{text}: expected a host alone, by name or number; its port is given apart"
        ) from error


def prepare_gathering(
    host: str | None, port: int, *, is_insecure: bool, folder: Path | None = None
) -> Listening:
    """Return where the node that gathers is to listen, and whom it lets in.

    Args:
        host: As for `find_host`.
        is_insecure: Take reports without keys, wherever that is.
        folder: Folder of the keys; that of this user by default.

    Raises:
        UsageError: It is no address, or it is beyond loopback and there is no key.
        InputFileError: The keys cannot be used.
    """
    address = find_host(host, port)
    folder = folder or keys_folder()
    pair = None if is_insecure else read_key_pair(folder)
    if pair is None and not is_insecure and not address.is_loopback:
        raise UsageError(
            f"{host}: beyond loopback reports travel with keys, and you have none yet: make one with "
            "`vramscope keys new` (--insecure, or insecure=True in a program, takes reports "
            "of everybody instead)"
        )
    return make_listening(address, pair, folder)


def describe_gathering(listening: Listening) -> str:
    """Return where reports are taken and of whom, in one sentence."""
    where = f"gathering on {listening.address.text}"
    if listening.pair is not None:
        return f"{where} for your key and those with the role worker (`vramscope keys list`)"
    if listening.address.is_loopback:
        return f"{where} without keys: of whoever is on this machine"
    return f"{where}, INSECURE: whoever reaches it may report, and everybody between may read"


MOST_AT_ONCE = 2 * MOST_NODES
"""Messages taken in one go, so that a flood holds nothing up."""
MOST_AT_ONCE_S = 0.1
"""And seconds: the rest waits for its turn, of each connection alike."""
MOST_WAITING = 4
"""Reports of one connection that wait to be taken; a newer one makes older ones worthless."""
TORCHRUN_PORT = 29500
_LET_IN = b"200"
_REPORTERS = ("worker", "controller")


class Collector:
    """Listens, lets in whom it may, and answers each report with a receipt.

    Args:
        node_id: Of this node, told in receipts.

    Raises:
        UsageError: The port is taken, and the text names its holder; or the address is none of this machine.
    """

    def __init__(self, listening: Listening, node_id: str, roll: NodeRoll) -> None:
        self.listening = listening
        self._node_id = node_id
        self._roll = roll
        """Where, and for whom."""
        self.rejected = 0
        """Messages that were no reports, or of keys that may not report."""
        self.turned_away: set[bytes] = set()
        """Addresses whose key was not let in when they last asked; they never get as far as a message."""
        self._context = zmq.Context()
        self._questions = self._context.socket(zmq.ROUTER)
        self._questions.setsockopt(zmq.LINGER, 0)
        self._questions.bind(ZAP_ENDPOINT)
        self._socket = self._context.socket(zmq.ROUTER)
        # Up to twice the size of a report what is too large is counted; beyond that it is cut off.
        most_bytes = 2 * MAX_REPORT_BYTES
        set_listening_options(self._socket, listening, most_bytes=most_bytes, most_waiting=MOST_WAITING)
        try:
            self._socket.bind(listening.address.endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise _explain(listening.address, error) from error

    def collect(self) -> int:
        """Take the reports that have come, without waiting; return how many."""
        self.listening.doorkeeper.has_changed()
        self._let_in()
        taken = 0
        end_s = time.monotonic() + MOST_AT_ONCE_S
        for _ in range(MOST_AT_ONCE):
            if time.monotonic() > end_s:
                break
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            user = str(frames[-1].get("User-Id") or "")
            taken += self._take([frame.bytes for frame in frames], user)
        return taken

    def close(self) -> None:
        """Stop listening."""
        self._context.destroy(linger=0)

    def _let_in(self) -> None:
        for _ in range(MOST_AT_ONCE):
            try:
                asker, empty, *question = self._questions.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            answer = self.listening.doorkeeper.answer(question)
            self._note_answer(question, is_let_in=answer[2] == _LET_IN)
            self._questions.send_multipart([asker, empty, *answer])

    def _note_answer(self, question: list[bytes], *, is_let_in: bool) -> None:
        address = question[3] if len(question) > 3 else b""
        if is_let_in:
            self.turned_away.discard(address)
        elif len(self.turned_away) < MOST_NODES:
            self.turned_away.add(address)

    def _take(self, frames: list[bytes], user: str) -> bool:
        try:
            report = _read(frames)
        except WireError:
            self.rejected += 1
            return False
        reason = self._refuse_key(user) or self._refuse_name(report, user)
        if reason is None:
            self._roll.take(report, user)
        receipt = NodeReceipt(self._node_id, len(self._roll.nodes), reason is None, reason or "")
        with suppress(zmq.ZMQError):  # whoever sent it may have gone, or take no answers
            self._socket.send_multipart((frames[0], encode(RECEIPT, self._node_id, receipt)), zmq.NOBLOCK)
        return reason is None

    def _refuse_key(self, user: str) -> str | None:
        """Return why this key may not report, or None."""
        is_open = self.listening.pair is None
        if is_open or self.listening.doorkeeper.role_of(user) in _REPORTERS:
            return None
        self.rejected += 1
        return (
            f"this key may not report to {self._node_id}: there type "
            f"`vramscope keys allow {user} --name NAME --role worker`"
        )

    def _refuse_name(self, report: NodeReport, user: str) -> str | None:
        if report.node_id == self._node_id:
            return self._roll.refuse_twin(report.node_id)
        return self._roll.refuse(report, user)


def _read(frames: list[bytes]) -> NodeReport:
    if len(frames) != 2:
        raise WireError(f"a message of {len(frames)} frames was refused: expected a sender and a report")
    envelope = decode(frames[1], MAX_REPORT_BYTES)
    if envelope.kind != REPORT:
        raise WireError(f"a message of kind {envelope.kind!r} was refused: expected {REPORT!r}")
    return check_report(body_of(envelope, NodeReport))


def _explain(address: TcpAddress, error: zmq.ZMQError) -> UsageError:
    if error.errno == zmq.EADDRINUSE:
        holder = describe_holder(address.host, address.port)
        hint = " (torchrun uses 29500 too)" if address.port == TORCHRUN_PORT else ""
        return UsageError(
            f"port {address.port} of {address.host} is taken by {holder}{hint}: "
            "name another port, here and at the workers"
        )
    reason = os.strerror(error.errno or 0)
    return UsageError(f"cannot listen on {address.text}: {reason}; name an address of this machine")


LEAVE_WITHIN_MS = 300


class MasterTrust(Trust):
    """The keys of a node that reports, with the words for what stands against it."""

    def explain(self, address: TcpAddress, failure: Failure, keys: NodeKeys | None) -> str:
        """Return why the master could not be reached, in one sentence with what to do."""
        if keys is None:
            what = "leave out --insecure" if self.is_insecure else "make one with `vramscope keys new`"
            return f"who listens at {address.text} asks for a key: {what}; or it is no master of vramscope"
        if failure == "refused":
            return (
                f"refused: this key is not allowed on {address.host}: there type "
                f"`vramscope keys allow {keys.own.public_text} --name NAME --role worker`"
            )
        if failure == "mechanism":
            return f"the master at {address.text} takes no keys: --insecure, typed here too, reports to it"
        return (
            f"the master at {address.text} has another key than is known here for {address.host}, or none: "
            f"there type `vramscope keys list`, and here `vramscope keys allow KEY --name {address.host} "
            "--role node` with the public key that it shows"
        )


class Reporter:
    """Connects to the node that gathers, again and again while it is away; use from one thread.

    Args:
        address: Its address, as it was typed.
        numeric: The same as a number.
    """

    def __init__(
        self, address: TcpAddress, numeric: TcpAddress, trust: MasterTrust, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self.receipt: NodeReceipt | None = None
        """The newest answer; None until the first."""
        self.has_been_accepted = False
        """Whether any report was."""
        self.endpoint = address.text
        self._answered_s = -math.inf
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self._connection = RemoteConnection(address, trust, Sockets(self._context, self._poller))
        self._connection.find(FoundAddress(address, numeric))

    @property
    def answer_age_s(self) -> float:
        """Seconds since the newest receipt; infinite before the first."""
        return self._clock.monotonic_s() - self._answered_s

    @property
    def trouble(self) -> str | None:
        """Why reports are not taken, in one sentence; None where nothing speaks against it."""
        if self._connection.trouble is not None:
            return self._connection.trouble
        is_refused = self.receipt is not None and not self.receipt.is_accepted
        if is_refused and self.receipt is not None:
            return self.receipt.reason
        return None if self._connection.link.is_connected else f"nobody listens at {self.endpoint}"

    def send(self, report: NodeReport) -> bool:
        """Send a report without waiting; return whether it went: it does not while nobody listens."""
        self.receive()
        if not self._connection.link.is_connected:
            return False
        self._connection.link.send(encode(REPORT, report.node_id, report))
        return True

    def receive(self) -> bool:
        """Take the receipts that have come, without waiting; return whether the connection is new."""
        is_new = self._connection.note_events()
        for data in self._connection.link.receive():
            self._take(data)
        self._connection.mend(self._clock.monotonic_s())
        return is_new

    def settle(self, timeout_s: float) -> None:
        """Wait for the first answer where somebody listens: a watch may be over before it comes."""
        end_s = self._clock.monotonic_s() + timeout_s
        while self.receipt is None and self._connection.link.is_connected:
            left_s = end_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            self._poller.poll(ceil_ms(left_s))
            self.receive()

    def close(self) -> None:
        """End the connection; a last report is given a moment to go."""
        self._context.destroy(linger=LEAVE_WITHIN_MS)

    def _take(self, data: bytes) -> None:
        try:
            envelope = decode(data, MAX_REPORT_BYTES)
            if envelope.kind == RECEIPT:
                self.receipt = body_of(envelope, NodeReceipt)
                self._answered_s = self._clock.monotonic_s()
                self.has_been_accepted = self.has_been_accepted or self.receipt.is_accepted
        except WireError:
            return  # whoever listens there is none of ours; its silence is told


def open_reporter(
    host: str | None, port: int, *, is_insecure: bool, trust: MasterTrust | None = None
) -> Reporter:
    """Return a connection to the node that gathers; asks name servers, and may take long.

    Args:
        host: Its name or number; None for this machine.
        is_insecure: Speak without keys beyond this machine too.
        trust: Keys; those of this user by default.

    Raises:
        UsageError: It is no address, or it is beyond loopback and there is no key.
        InputFileError: The keys cannot be used.
    """
    numeric = find_host(host, port)
    known = trust or MasterTrust(*read_trust(is_insecure=is_insecure))
    if known.pair is None and not known.is_insecure and not numeric.is_loopback:
        raise UsageError(
            f"{host}: beyond loopback reports travel with keys, and you have none yet: make one with "
            "`vramscope keys new` (--insecure, or insecure=True in a program, sends them "
            "without)"
        )
    return Reporter(TcpAddress(host or "localhost", port), numeric, known)
