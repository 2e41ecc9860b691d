"""Sends the reports of this node to the one that gathers, and knows whether they arrive."""

import math

import zmq

from ..bus.wire import body_of, decode, encode
from ..clock import Clock, SystemClock
from ..errors import WireError
from .address import resolve_loopback
from .node_report import MAX_REPORT_BYTES, RECEIPT, REPORT, NodeReceipt, NodeReport

UNSENT_REPORTS = 2
"""Reports that wait for a connection; a newer one makes older ones worthless."""
LEAVE_WITHIN_MS = 300
RECONNECT_MS, RECONNECT_MOST_MS = 200, 5_000


class Reporter:
    """Connects to the node that gathers, again and again while it is away; use from one thread.

    Args:
        address: Its address, on loopback; None for the usual one.
        port: Its port.
        clock: Injected in tests.

    Raises:
        UsageError: The address is not on loopback.
    """

    def __init__(self, address: str | None, port: int, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.receipt: NodeReceipt | None = None
        """The newest answer; None until the first."""
        self._answered_s = -math.inf
        self.endpoint = f"{resolve_loopback(address, port)}:{port}"
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, LEAVE_WITHIN_MS)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_REPORT_BYTES)
        self._socket.setsockopt(zmq.SNDHWM, UNSENT_REPORTS)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)  # what waits here until somebody listens would be old news
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MOST_MS)
        self._socket.connect(f"tcp://{self.endpoint}")

    @property
    def answer_age_s(self) -> float:
        """Seconds since the newest receipt; infinite before the first."""
        return self._clock.monotonic_s() - self._answered_s

    def send(self, report: NodeReport) -> bool:
        """Send a report without waiting; return whether it went: it does not while nobody listens."""
        self.receive()
        try:
            self._socket.send(encode(REPORT, report.node_id, report), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self) -> None:
        """Take the receipts that have come, without waiting."""
        while True:
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                envelope = decode(data, MAX_REPORT_BYTES)
                if envelope.kind == RECEIPT:
                    self.receipt = body_of(envelope, NodeReceipt)
                    self._answered_s = self._clock.monotonic_s()
            except WireError:
                continue  # whoever listens there is none of ours; its silence is told

    def close(self) -> None:
        """End the connection; a last report is given a moment to go."""
        self._context.destroy(linger=LEAVE_WITHIN_MS)
