"""Commands of others are sent to who has the right to them, and to nobody else: read from the real socket."""

import os
from collections.abc import Callable

import msgspec
import pytest
import zmq

from vramscope.engine.cluster.keys import Role, keys_folder, make_key_pair
from vramscope.engine.masking import MASKED_WORD
from vramscope.engine.model import ProcessReading, RankSample, Sample
from vramscope.engine.sources.processes import find_user_name
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.engine.wire.messages import Request, encode

from ...waiting import wait_until
from ..agent.hubs import make_sample
from .relays import RunningRelay, until_of
from .remote import ListeningHub, allow, following, has_seq, trust_of, until

OWN = find_user_name(os.geteuid())
OTHERS = "/opt/venv/bin/python train.py --data /home/eve --token s3cret"
OURS = "python serve.py --port 8000 --api-key s3cret"
NAMED = "python …"
MASKED_OURS = f"python serve.py --port 8000 --api-key {MASKED_WORD}"
WHOLE = (OTHERS, OURS, OTHERS, OURS)
CUT = (NAMED, MASKED_OURS, NAMED, MASKED_OURS)


def make_busy(seq: int) -> Sample:
    """Return a sample with processes of another user, of ours and of somebody unknown, and a rank."""
    sample = make_sample(seq)
    processes = (
        ProcessReading(7, "eve", OTHERS),
        ProcessReading(8, OWN, OURS),
        ProcessReading(9, None, OTHERS),
    )
    device = msgspec.structs.replace(sample.devices[0], processes=processes)
    return msgspec.structs.replace(sample, devices=(device,), ranks=(RankSample(8, command=OURS),))


def commands_of(snapshot: Snapshot) -> tuple[str | None, ...]:
    assert snapshot.sample is not None
    processes = snapshot.sample.devices[0].processes
    assert processes is not None
    assert [it.user for it in processes] == ["eve", OWN, None], "whose it is stays"
    return (*(it.command for it in processes), *(it.command for it in snapshot.sample.ranks))


@pytest.mark.parametrize(
    ("role", "commands"),
    [("viewer", CUT), ("worker", CUT), ("controller", WHOLE)],
    ids=lambda it: str(it)[:6],
)
def test_the_role_of_a_key_decides_whose_commands_it_gets(role: Role, commands: tuple[str, ...]) -> None:
    node, own = make_key_pair(), make_key_pair()
    allow(keys_folder(), (role, own))
    with ListeningHub(node, keys_folder()) as hub:
        hub.producer.push([make_busy(1)])
        with following(trust_of(own, node=node), hub.address) as watch:
            assert commands_of(until(watch, has_seq(1))) == commands, "in the answer to the first question"
            hub.producer.push([make_busy(2)])
            assert commands_of(until(watch, has_seq(2))) == commands, "in what is published"


def test_a_right_that_is_given_or_revoked_counts_from_the_next_sample_on() -> None:
    node, own = make_key_pair(), make_key_pair()
    allow(keys_folder(), ("controller", own))
    with ListeningHub(node, keys_folder()) as hub, following(trust_of(own, node=node), hub.address) as watch:
        hub.producer.push([make_busy(1)])
        assert commands_of(until(watch, has_seq(1))) == WHOLE
        allow(keys_folder(), ("viewer", own))
        seqs = iter(range(2, 10_000))

        def is_cut() -> bool:
            seq = next(seqs)
            hub.producer.push([make_busy(seq)])
            return commands_of(until(watch, has_seq(seq))) == CUT

        wait_until(is_cut, what="the agent to read the list of keys again")


def has_processes(seq: int) -> Callable[[Snapshot], bool]:
    return lambda it: has_seq(seq)(it) and it.sample is not None and bool(it.sample.devices[0].processes)


def test_behind_a_relay_the_rights_at_the_relay_count() -> None:
    with ListeningHub(None, keys_folder()) as hub, RunningRelay(hub.address) as relay:
        hub.producer.push([make_busy(1)])
        with following(trust_of(None), relay.address) as watch:
            snapshot = until_of(watch, hub.address.label, has_processes(1))
    assert commands_of(snapshot) == CUT


def test_a_relay_that_may_read_all_passes_no_more_on_than_its_viewers_may_read() -> None:
    node, viewer = make_key_pair(), make_key_pair()
    allow(keys_folder(), ("viewer", viewer))
    with (
        ListeningHub(node, keys_folder()) as hub,
        RunningRelay(hub.address, pair=node, node=node) as relay,
        following(trust_of(viewer, node=node), relay.address) as limited,
        following(trust_of(node, node=node), relay.address) as own,
    ):
        for seq in (1, 2):
            hub.producer.push([make_busy(seq)])
            for watch, commands in ((limited, CUT), (own, WHOLE)):
                snapshot = until_of(
                    watch,
                    hub.address.label,
                    has_processes(seq),
                )
                assert commands_of(snapshot) == commands


def test_the_bytes_of_an_agent_without_keys_have_no_secret() -> None:
    with ListeningHub(None, keys_folder()) as hub:
        hub.producer.push([make_busy(1)])
        with following(trust_of(None), hub.address) as watch:
            until(watch, has_seq(1))
        context = zmq.Context()
        peer = context.socket(zmq.DEALER)
        peer.setsockopt(zmq.RCVTIMEO, 30_000)
        peer.connect(hub.address.endpoint)
        peer.send(
            encode("request", "", Request("join", 1, topics=("sample/", "findings/", "hub/", "cells/")))
        )
        received = [peer.recv()]
        while b"welcome" not in received[-1]:
            received.append(peer.recv())
        for seq in (2, 3):
            hub.producer.push([make_busy(seq)])
        while sum(b"train" in it or b"serve.py" in it for it in received) < 3:
            received.append(peer.recv())
        context.destroy(linger=0)
    sent = b"".join(received)
    assert b"serve.py" in sent, "our own command is sent"
    assert b"s3cret" not in sent
    assert b"/home/eve" not in sent
    assert b"/opt/venv" not in sent
