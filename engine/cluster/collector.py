"""Takes the reports of other nodes over ZeroMQ; use from one thread."""

import os
import time
from contextlib import suppress

import zmq

from ..errors import UsageError, WireError
from ..wire.envelope import body_of, decode, encode
from .address import describe_holder
from .listening import Listening
from .node_report import (
    MAX_REPORT_BYTES,
    MOST_NODES,
    RECEIPT,
    REPORT,
    NodeReceipt,
    NodeReport,
    check_report,
)
from .roll import NodeRoll
from .tcp_address import TcpAddress
from .tcp_options import ZAP_ENDPOINT, set_listening_options

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
        listening: Where, and for whom.
        node_id: Of this node, told in receipts.
        roll: Where reports go.

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
