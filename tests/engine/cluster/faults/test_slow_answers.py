"""An answer of a hub that is long on its way: it is asked for less and less often, and the first counts."""

from vramscope.engine.history import History
from vramscope.engine.model import HubStatus, Sample
from vramscope.engine.viewer.conversation import Event, HubConversation, Joined
from vramscope.engine.wire.messages import Request, Welcome, body_of, decode, encode

from ....clocks import HandClock
from ...agent.hubs import make_sample

HUB = HubStatus(hub_id="hub", pid=1, version="test", started_s=0.0, interval_s=1.0)


class SlowHub:
    """A hub that answers when the test lets it; the other end of a conversation."""

    def __init__(self) -> None:
        self.clock = HandClock(1000.0)
        self.asked: list[Request] = []
        self.events: list[Event] = []
        self.conversation = HubConversation(self._note, self.clock)
        self._ring = History()
        self.conversation.ask()

    def publish(self, seq: int, *, is_lost: bool = False) -> None:
        """Publish a sample, which the way may lose."""
        self._ring.add(make_sample(seq))
        if not is_lost:
            self.conversation.take(encode("sample", "hub", make_sample(seq)), self.events)

    def answer(self, request: Request, newest: int) -> None:
        """Answer a question with what was known when a sample was the newest."""
        block = self._ring.block(request.since_seq)
        welcome = Welcome(request.request_id, make_sample(newest), (), HUB, block, 1, 1)
        self.conversation.take(encode("welcome", "hub", welcome), self.events)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds / 0.25)):
            self.clock.now_s += 0.25
            self.conversation.give_up_if_unanswered(self.events)

    @property
    def heard(self) -> list[int]:
        """Numbers of the samples that were told one by one."""
        return [event.seq for event in self.events if isinstance(event, Sample)]

    def _note(self, data: bytes) -> None:
        self.asked.append(body_of(decode(data), Request))


def test_samples_wait_for_what_fills_the_gap_before_them() -> None:
    hub = SlowHub()
    hub.publish(1)
    hub.answer(hub.asked[0], newest=1)
    hub.publish(2, is_lost=True)
    hub.publish(3)
    hub.wait(25.0)
    hub.publish(4)
    questions = hub.asked[1:]
    assert [it.request_id for it in questions] == 4 * [questions[0].request_id]  # after 3, 6 and 12 s again
    assert questions[0].since_seq == 1
    assert hub.heard == []
    hub.answer(questions[0], newest=3)
    (_, joined) = [event for event in hub.events if isinstance(event, Joined)]
    assert [sample.seq for sample in joined.held] == [3]
    assert hub.heard == [4]
    assert hub.conversation.samples_dropped == 0
    hub.answer(questions[1], newest=4)  # one that was asked for twice changes nothing
    assert len([event for event in hub.events if isinstance(event, Joined)]) == 2


def test_without_any_answer_samples_are_told_in_the_end_and_the_gap_is_counted() -> None:
    hub = SlowHub()
    hub.publish(1)
    hub.answer(hub.asked[0], newest=1)
    hub.publish(2, is_lost=True)
    hub.publish(3)
    hub.wait(31.0)
    assert hub.heard == [3]
    assert hub.conversation.samples_dropped == 1
