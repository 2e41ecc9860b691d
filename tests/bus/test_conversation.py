"""What one end of a hub's stream makes of numbers that cannot be."""

from tests.clocks import HandClock
from vramscope.engine.bus.conversation import Event, HubConversation
from vramscope.engine.bus.messages import Request, Welcome
from vramscope.engine.bus.wire import body_of, decode, encode
from vramscope.engine.history import History
from vramscope.engine.model import HubStatus, Sample

from .hubs import make_sample


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
