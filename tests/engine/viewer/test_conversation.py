"""What one end of a hub's stream makes of numbers that cannot be."""

import msgspec

from tests.clocks import HandClock
from vramscope.engine.history import History
from vramscope.engine.model import Finding, HubStatus, Sample
from vramscope.engine.viewer.conversation import Event, HubConversation
from vramscope.engine.wire.messages import FindingBatch, Request, Welcome, body_of, decode, encode

from ..agent.hubs import make_sample


def _status(seq: int) -> HubStatus:
    return HubStatus("hub", 1, "test", 0.0, 1.0, last_seq=seq)


def _welcome(seq: int, request_id: int) -> bytes:
    return encode(
        "welcome", "hub", Welcome(request_id, make_sample(seq), (), _status(seq), History().block())
    )


def test_a_hub_that_counts_from_below_is_asked_anew_and_followed_from_there() -> None:
    sent: list[bytes] = []
    events: list[Event] = []
    conversation = HubConversation(sent.append, HandClock(1000.0))
    conversation.ask()
    conversation.take(_welcome(100, 1), events)
    conversation.take(encode("sample", "hub", make_sample(3)), events)
    conversation.take(encode("hub", "hub", _status(3)), events)
    asked = body_of(decode(sent[-1]), Request)
    assert (len(sent), asked.verb, asked.since_seq) == (2, "join", None)
    conversation.take(_welcome(4, 2), events)
    conversation.take(encode("sample", "hub", make_sample(5)), events)
    assert [event.seq for event in events if isinstance(event, Sample)] == [5]
    assert conversation.samples_dropped == 0


def _findings(number: int | None, *ids: str) -> bytes:
    found = tuple(Finding(id, "note", "node", "GPU-a", "0", "low", id, 1.0, 1.0) for id in ids)
    return encode("findings", "hub", FindingBatch(found, None, number))


def _join(number: int | None, request_id: int, *ids: str) -> bytes:
    welcome = body_of(decode(_welcome(4, request_id)), Welcome)
    found = tuple(Finding(id, "note", "node", "GPU-a", "0", "low", id, 1.0, 1.0) for id in ids)
    welcome = msgspec.structs.replace(welcome, findings=found, findings_number=number)
    return encode("welcome", "hub", welcome)


def test_findings_that_were_published_before_the_subscription_took_effect_are_asked_for() -> None:
    sent: list[bytes] = []
    events: list[Event] = []
    conversation = HubConversation(sent.append, HandClock(1000.0))
    conversation.ask()
    conversation.take(_join(2, 1), events)
    conversation.take(_findings(3, "a"), events)
    conversation.take(_findings(3), events)
    assert len(sent) == 1, "nothing was missed"
    conversation.take(_findings(5), events)
    assert body_of(decode(sent[-1]), Request).verb == "join"
    conversation.take(_join(5, 2, "a", "b"), events)
    conversation.take(_findings(5), events)
    assert len(sent) == 2


def test_a_single_batch_that_was_missed_is_asked_for_when_its_number_is_repeated() -> None:
    sent: list[bytes] = []
    events: list[Event] = []
    conversation = HubConversation(sent.append, HandClock(1000.0))
    conversation.ask()
    conversation.take(_join(0, 1), events)
    conversation.take(_findings(1), events)
    assert len(sent) == 2
    conversation.take(_join(1, 2, "a"), events)
    conversation.take(_findings(1), events)
    assert len(sent) == 2


def test_findings_that_overtake_an_older_answer_are_asked_for_again() -> None:
    sent: list[bytes] = []
    events: list[Event] = []
    conversation = HubConversation(sent.append, HandClock(1000.0))
    conversation.ask()
    conversation.take(_join(2, 1), events)
    conversation.ask()
    conversation.take(_findings(3, "a"), events)
    conversation.take(_join(2, 2), events)
    assert len(sent) == 3
    conversation.take(_join(3, 3, "a"), events)
    assert len(sent) == 3


def test_a_hub_that_does_not_count_its_findings_is_not_asked_for_them() -> None:
    sent: list[bytes] = []
    events: list[Event] = []
    conversation = HubConversation(sent.append, HandClock(1000.0))
    conversation.ask()
    conversation.take(_join(None, 1), events)
    for number in (None, 7, None, 8):
        conversation.take(_findings(number, "a"), events)
    assert len(sent) == 1
