"""Advice to processes of other nodes: who may give it, and what is said to who may not."""

import pytest

from vramscope.engine.cluster.keys import Role, keys_folder, make_key_pair

from ...vramscope.cli.running import run
from ..agent.hubs import make_sample
from .relays import RunningRelay, until_of
from .remote import ListeningHub, allow, following, has_seq, trust_of, until

LET_THROUGH = "no process reports to it"
"""What a hub says that has looked for the process."""


@pytest.mark.parametrize(
    ("role", "answer"),
    [("viewer", "--role controller"), ("worker", LET_THROUGH), ("controller", LET_THROUGH)],
)
def test_advice_is_given_by_controllers_and_workers(role: Role, answer: str) -> None:
    node, own = make_key_pair(), make_key_pair()
    allow(keys_folder(), (role, own))
    with ListeningHub(node, keys_folder()) as hub, following(trust_of(own, node=node), hub.address) as watch:
        hub.producer.push([make_sample(1)])
        until(watch, has_seq(1))
        number = watch.nodes[hub.address.label].picture.advise(1, "empty_cache")
        (told,) = until(watch, lambda it: it.advice).advice
        assert (told.pid, told.number, told.action, told.advised) == (1, number, "empty_cache", None)
        assert answer in (told.refusal or "")


def test_an_agent_without_keys_lets_nobody_advise() -> None:
    with ListeningHub(None, keys_folder()) as hub:
        refused = run("advise", "1", "empty_cache", "--connect", hub.address.text)
    assert (refused.code, refused.stdout) == (2, "")
    assert "node listens without keys: everyone can read, nobody can change anything" in refused.stderr


def test_a_node_behind_a_relay_is_named_and_the_relay_goes_by_its_own_keys() -> None:
    with ListeningHub(None, keys_folder()) as hub, RunningRelay(hub.address) as relay:
        hub.producer.push([make_sample(1)])
        words, name = ("advise", "1", "empty_cache", "--connect", relay.address.text), hub.address.label
        with following(trust_of(None), relay.address) as watch:
            until_of(watch, name, has_seq(1))  # the relay knows its node
        asked = run(*words)
        assert f"is a relay: choose a node with --node: {name} (node)" in asked.stderr
        unknown = run(*words, "--node", "other")
        assert f"--node 'other' matches none of the nodes behind it; choose a node with --node: {name}" in (
            unknown.stderr
        )
        refused = [run(*words, "--node", it) for it in (name, "node")]
        direct = run(*words[:-1], hub.address.text, "--node", "other")
        assert f"{name} (node) is not a relay: leave out --node 'other'" in direct.stderr
    assert {it.code for it in (asked, unknown, direct, *refused)} == {2}
    for it in refused:
        assert "relay listens without keys: everyone can read, nobody can change anything" in it.stderr


def test_a_worker_is_told_that_a_relay_is_none_of_its_agents() -> None:
    with ListeningHub(None, keys_folder()) as hub, RunningRelay(hub.address) as relay:
        refused = run("worker", "--connect", relay.address.text)
    assert refused.code == 2
    assert f"--connect {relay.address.label}: this is a relay" in refused.stderr
    assert f"from here: {hub.address.label}" in refused.stderr
