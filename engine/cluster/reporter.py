"""Sends the reports of this node to the one that gathers, and knows whether they arrive."""

import math

import zmq

from ..clock import Clock, SystemClock, ceil_ms
from ..errors import UsageError, WireError
from ..wire.envelope import body_of, decode, encode
from .gathering import find_host
from .name_lookup import FoundAddress
from .node_report import MAX_REPORT_BYTES, RECEIPT, REPORT, NodeReceipt, NodeReport
from .remote_connection import RemoteConnection, Sockets
from .remote_link import Failure, NodeKeys
from .tcp_address import TcpAddress
from .trust import Trust, read_trust

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
        trust: Keys of this user.
        clock: Injected in tests.
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
        port: Its port.
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
