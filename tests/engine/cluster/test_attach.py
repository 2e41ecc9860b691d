"""Attaching to processes of other nodes: only a controller may ask for it."""

import pytest

from vramscope.engine.cluster.keys import Role, keys_folder, make_key_pair

from ..agent.hubs import make_sample
from .remote import ListeningHub, allow, following, has_seq, trust_of, until

LET_THROUGH = "this agent plays a recording; there is no process to attach to"
"""What a hub without processes says to who may ask."""


@pytest.mark.parametrize(
    ("role", "answer"),
    [("viewer", "--role controller"), ("worker", "--role controller"), ("controller", LET_THROUGH)],
)
def test_controllers_alone_may_have_the_probe_loaded(role: Role, answer: str) -> None:
    node, own = make_key_pair(), make_key_pair()
    allow(keys_folder(), (role, own))
    with ListeningHub(node, keys_folder()) as hub, following(trust_of(own, node=node), hub.address) as watch:
        hub.producer.push([make_sample(1)])
        until(watch, has_seq(1))
        watch.nodes[hub.address.label].picture.ask_attach(1, None)
        (attachment,) = until(watch, lambda it: it.attachments).attachments
        assert (attachment.pid, attachment.verb) == (1, "attach")
        assert answer in (attachment.refusal or "")
