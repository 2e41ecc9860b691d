"""Nodes that speak the wire of an agent's tcp port and do nothing else, many to a thread.

Keys, handshakes, the question whom to let in, `join` with its answer, and what is published from then on are
those of an agent; nothing is sampled, remembered or analyzed.
"""

import os
import threading
import time
from collections.abc import Sequence

import zmq

from vramscope.engine.cluster.gate import SEND_QUEUE_MESSAGES, ZAP_ENDPOINT, Listening, set_listening_options
from vramscope.engine.history import History
from vramscope.engine.model import HubStatus, Sample
from vramscope.engine.wire.cells import take_cells, trim_to_cells
from vramscope.engine.wire.messages import (
    TOPIC_CELLS,
    TOPIC_FINDING,
    TOPIC_HUB,
    TOPIC_SAMPLE,
    FindingBatch,
    Request,
    Welcome,
    body_of,
    decode,
    encode,
)

from .scripted import SAYS_EVERY, Kind, is_at_risk, make_assessments, make_sample

LISTEN_S, ANSWER_S = 0.02, 0.1
"""How often is looked who knocks, and who asks."""


class PublishedNode:
    """One node on its own port.

    Args:
        context: Shared by the nodes of a thread.
        listening: Where, and for whom.
        number: Of the node among all.
        due_s: Monotonic moment of its first sample.
        kind: How memory changes.
    """

    interval_s = 1.0

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        listening: Listening,
        number: int,
        due_s: float,
        kind: Kind,
    ) -> None:
        self.due_s = due_s
        self.taken: list[tuple[int, float]] = []
        """Number of each sample, and when it was taken by the monotonic clock."""
        self.router = context.socket(zmq.ROUTER)
        self.router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        set_listening_options(self.router, listening, SEND_QUEUE_MESSAGES)
        self.router.bind(listening.address.endpoint)
        self._name, self._number, self._kind = f"n{number:04d}", number, kind
        self._hub_id = os.urandom(8).hex()
        self._peers: dict[bytes, tuple[bytes, ...]] = {}
        self._sample: Sample | None = None
        self._seq = 0

    def publish(self, now_s: float) -> None:
        """Take a sample, and send it to who follows."""
        self.due_s += self.interval_s * (1 + int(now_s - self.due_s))
        self._seq += 1
        self._sample = sample = make_sample(self._name, self._number, self._seq, time.time(), self._kind)
        self.taken.append((sample.seq, now_s))
        topics = {topic for its in self._peers.values() for topic in its}
        if TOPIC_SAMPLE in topics:
            self._send(TOPIC_SAMPLE, encode("sample", self._hub_id, sample))
        if TOPIC_CELLS in topics:
            self._send(TOPIC_CELLS, encode("sample", self._hub_id, take_cells(sample)))
        if sample.seq % SAYS_EVERY == 1 or is_at_risk(self._number):
            batch = FindingBatch((), make_assessments(sample, self._number))
            self._send(TOPIC_FINDING, encode("findings", self._hub_id, batch))
        self._send(TOPIC_HUB, encode("hub", self._hub_id, self._status()))

    def answer(self) -> None:
        """Take in who joins."""
        while True:
            try:
                peer, data = self.router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            request = body_of(decode(data), Request)
            if request.verb == "join":
                self._peers[peer] = tuple(topic.encode() for topic in request.topics)
                self._send_to(peer, encode("welcome", self._hub_id, self._welcome(request)))

    def _welcome(self, request: Request) -> Welcome:
        sample = self._sample
        said = () if sample is None else make_assessments(sample, self._number)
        if sample is not None and request.detail == "cells":
            sample = trim_to_cells(sample)
        block = History().block()
        return Welcome(request.request_id, sample, (), self._status(), block, 1, assessments=said)

    def _status(self) -> HubStatus:
        last_seq = None if self._sample is None else self._sample.seq
        return HubStatus(self._hub_id, os.getpid(), "played", 1.7e9, self.interval_s, last_seq=last_seq)

    def _send(self, topic: bytes, message: bytes) -> None:
        for peer, topics in list(self._peers.items()):
            if topic in topics:
                self._send_to(peer, message)

    def _send_to(self, peer: bytes, message: bytes) -> None:
        try:
            self.router.send_multipart([peer, message], zmq.NOBLOCK)
        except zmq.Again:
            return  # it does not read
        except zmq.ZMQError:
            self._peers.pop(peer, None)


class Publisher:
    """Plays nodes on a thread of its own.

    Args:
        listenings: Of each node.
        numbers: Of each node among all.
        total: Nodes in all: their samples are spread over the second.
        kind: How memory changes.
    """

    def __init__(
        self, listenings: Sequence[Listening], numbers: Sequence[int], total: int, kind: Kind
    ) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, len(numbers) + 16)
        self._questions = self._context.socket(zmq.ROUTER)
        self._questions.bind(ZAP_ENDPOINT)
        self._doorkeepers = [it.doorkeeper for it in listenings]
        second_s = float(int(time.monotonic()) + 1)
        self.nodes = [
            PublishedNode(self._context, listening, number, second_s + number / total, kind)
            for listening, number in zip(listenings, numbers, strict=True)
        ]
        self._poller = zmq.Poller()
        for node in self.nodes:
            self._poller.register(node.router, zmq.POLLIN)
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begin to play."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._is_stopped.set()
        self._thread.join()
        self._context.destroy(linger=0)

    def _run(self) -> None:
        answer_s = 0.0
        while not self._is_stopped.is_set():
            self._let_in()
            now_s = time.monotonic()
            if now_s >= answer_s:
                answer_s = now_s + ANSWER_S
                ready = dict(self._poller.poll(0))
                for node in self.nodes:
                    if node.router in ready:
                        node.answer()
            for node in self.nodes:
                if node.due_s <= (now_s := time.monotonic()):
                    node.publish(now_s)
            next_s = min((node.due_s for node in self.nodes), default=now_s + LISTEN_S)
            time.sleep(max(0.0, min(next_s, now_s + LISTEN_S) - time.monotonic()))

    def _let_in(self) -> None:
        while True:
            try:
                asker, empty, *question = self._questions.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._questions.send_multipart([asker, empty, *self._doorkeepers[0].answer(question)])
