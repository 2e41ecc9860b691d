"""Takes the reports of other nodes over ZeroMQ; use from one thread."""

from contextlib import suppress

import zmq

from ..bus.wire import body_of, decode, encode
from ..errors import UsageError, WireError
from .address import describe_holder, resolve_loopback
from .node_report import MAX_REPORT_BYTES, MOST_NODES, RECEIPT, REPORT, NodeReceipt, NodeReport
from .roll import NodeRoll

MOST_AT_ONCE = 2 * MOST_NODES
"""Messages taken in one go, so that a flood holds nothing up."""


class Collector:
    """Listens on loopback and answers each report with a receipt.

    Args:
        address: Address on loopback; None for the usual one.
        port: Port number.
        node_id: Of this node, told in receipts.
        roll: Where reports go.

    Raises:
        UsageError: The address is not on loopback, or the port is taken; the text names its holder.
    """

    def __init__(self, address: str | None, port: int, node_id: str, roll: NodeRoll) -> None:
        self._node_id, self._roll = node_id, roll
        self.rejected = 0
        """Messages that were no reports."""
        host = resolve_loopback(address, port)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_REPORT_BYTES)
        self._socket.setsockopt(zmq.RCVHWM, MOST_AT_ONCE)
        try:
            self._socket.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            self.close()
            raise _explain(host, port, error) from error

    def collect(self) -> int:
        """Take the reports that have come, without waiting; return how many."""
        taken = 0
        for _ in range(MOST_AT_ONCE):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            taken += self._take(frames)
        return taken

    def close(self) -> None:
        """Stop listening."""
        self._context.destroy(linger=0)

    def _take(self, frames: list[bytes]) -> bool:
        try:
            report = _read(frames)
        except WireError:
            self.rejected += 1
            return False
        receipt = NodeReceipt(self._node_id, len(self._roll.nodes), self._roll.take(report))
        with suppress(zmq.ZMQError):  # whoever sent it may have gone, or take no answers
            self._socket.send_multipart((frames[0], encode(RECEIPT, self._node_id, receipt)), zmq.NOBLOCK)
        return True


def _read(frames: list[bytes]) -> NodeReport:
    if len(frames) != 2:
        raise WireError(f"a message of {len(frames)} frames was refused: expected a sender and a report")
    envelope = decode(frames[1], MAX_REPORT_BYTES)
    if envelope.kind != REPORT:
        raise WireError(f"a message of kind {envelope.kind!r} was refused: expected {REPORT!r}")
    return body_of(envelope, NodeReport)


def _explain(host: str, port: int, error: zmq.ZMQError) -> UsageError:
    if error.errno == zmq.EADDRINUSE:
        hint = " (torchrun uses 29500 too)" if port == 29500 else ""
        return UsageError(
            f"port {port} of {host} is taken by {describe_holder(port)}{hint}: name another port, here and "
            "at the workers"
        )
    return UsageError(f"cannot listen on {host}:{port}: {error}; name another port")
