"""What viewers ask of a node behind a relay: handed on under other numbers, and the answers handed back."""

from collections.abc import Callable

import msgspec

from ..bus.conversation import ANSWERS, HubConversation
from ..bus.messages import Refusal, Request
from ..bus.wire import Envelope, body_of, encode

MOST_OPEN = 256
"""Requests to one node whose answers are waited for; the oldest are forgotten, and time out at who asked."""


class PassedRequests:
    """Keeps who asked what of one node.

    Args:
        conversation: What is said with the node.
        answer: Sends a message to who asked.
    """

    def __init__(self, conversation: HubConversation, answer: Callable[[bytes, bytes], None]) -> None:
        self._conversation, self._answer = conversation, answer
        self._open: dict[int, tuple[bytes, int]] = {}

    def pass_on(self, peer: bytes, request: Request) -> None:
        """Hand a request on to the node, with the rights that the relay has there."""
        self._open[self._conversation.ask_for(request)] = (peer, request.request_id)
        while len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]

    def take_answer(self, envelope: Envelope) -> None:
        """Hand an answer of the node back to who asked, under the number that was given there.

        Raises:
            WireError: It is no answer.
        """
        kind = ANSWERS.get(envelope.kind)
        body = body_of(envelope, Refusal) if kind is None else body_of(envelope, kind)
        asker = self._open.pop(body.request_id, None)
        if asker is not None:
            peer, number = asker
            answer = msgspec.structs.replace(body, request_id=number)
            self._answer(peer, encode(envelope.kind, envelope.hub_id, answer))
