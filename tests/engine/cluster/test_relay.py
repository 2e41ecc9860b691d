"""Nodes behind relays: seen by one connection as if there were none between, however deep."""

import itertools
from contextlib import closing

import pytest

from vramscope.engine.alerts.state import FindingDecision
from vramscope.engine.cluster.addresses import LOOPBACK, TcpAddress
from vramscope.engine.cluster.keys import keys_folder, make_key_pair
from vramscope.engine.cluster.nodes_watch import NodesWatch

from ...waiting import wait_until
from ..agent.hubs import make_sample
from .faults.path import FaultyPath
from .relays import RunningRelay, until_of
from .remote import ListeningHub, allow, following, free_port, has_seq, says, trust_of
from .test_detail import has_processes, list_seqs, make_full


def test_nodes_behind_a_relay_are_followed_as_if_it_were_not_there() -> None:
    with ListeningHub(None, keys_folder()) as one, ListeningHub(None, keys_folder()) as other:
        for hub in (one, other):
            hub.producer.push([make_full(seq) for seq in range(1, 11)])
        with RunningRelay(one.address, other.address) as relay:
            names = [hub.address.label for hub in (one, other)]
            with closing(NodesWatch([relay.address], trust_of(None), most_in_full=1)) as watch:
                for name in names:
                    until_of(watch, name, has_seq(10))
                assert list(watch.nodes) == names
                first, second = (watch.nodes[name].picture for name in names)
                watch.look_at(names[0])
                until_of(watch, names[0], has_processes)
                assert list_seqs(first) == list(range(1, 11))
                assert not has_processes(second.newest)

                watch.look_at(names[1])
                until_of(watch, names[1], has_processes)
                assert list_seqs(second) == list(range(1, 11))
                one.producer.push([make_full(11)])
                other.producer.push([make_full(11), make_full(12)])
                assert has_processes(until_of(watch, names[1], has_seq(12)))
                until_of(watch, names[0], has_seq(11))
                assert list_seqs(second) == list(range(1, 13))
                assert first.newest.samples_dropped == second.newest.samples_dropped == 0


def test_nobody_is_followed_in_full_whom_nobody_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramscope.engine.cluster.relay.UNWATCHED_S", 0.0)
    with ListeningHub(None, keys_folder()) as hub, RunningRelay(hub.address) as relay:
        hub.producer.push([make_full(1)])
        name = hub.address.label
        with closing(NodesWatch([relay.address], trust_of(None), most_in_full=0)) as watch:
            with following(trust_of(None), relay.address) as looking:
                assert has_processes(until_of(looking, name, has_seq(1)))
                until_of(watch, name, has_seq(1))
                held = relay.relay.pictures[name].history
                assert held.last_seq == 1
            hub.producer.push([make_full(2)])
            until_of(watch, name, has_seq(2))
            wait_until(lambda: (watch.turn(0.05), held.last_seq is None)[1], what="less of the node")


def test_what_was_sampled_while_a_relay_was_away_is_not_lost() -> None:
    with ListeningHub(None, keys_folder()) as hub:
        hub.producer.push([make_sample(1)])
        name = hub.address.label
        with RunningRelay(hub.address) as relay, following(trust_of(None), relay.address) as watch:
            until_of(watch, name, has_seq(1))
            relay.relay.stop()
            relay.thread.join(timeout=60)
            hub.producer.push([make_sample(seq) for seq in range(2, 6)])
            until_of(watch, name, lambda it: it.connection == "lost" and "relay" in (it.reason or ""))
            with RunningRelay(hub.address, address=relay.address):
                seen = until_of(watch, name, has_seq(5))
            assert seen.samples_dropped == 0
            assert list_seqs(watch.nodes[name].picture) == [1, 2, 3, 4, 5]


@pytest.mark.waits
def test_a_node_that_is_lost_behind_a_relay_says_why_and_comes_back() -> None:
    with ListeningHub(None, keys_folder()) as hub:
        hub.producer.push([make_sample(seq) for seq in range(1, 6)])
        name = hub.address.label
        with RunningRelay(hub.address) as relay, following(trust_of(None), relay.address) as watch:
            until_of(watch, name, has_seq(5))
            hub.hub.stop()
            until_of(watch, name, says("connection lost"))
            with following(trust_of(None), relay.address) as late:
                found = until_of(late, name, says("connection lost"))
                assert found.sample is None
                assert (found.silent_s or 0) > 2
                with ListeningHub(None, keys_folder(), hub.address) as after:
                    after.producer.push([make_sample(1)])
                    for each in (watch, late):
                        until_of(each, name, has_seq(1))
                    after.producer.push([make_sample(2)])
                    for each in (watch, late):
                        assert until_of(each, name, has_seq(2)).samples_dropped == 0


def ask_in_vain(watch: NodesWatch, name: str) -> str:
    """Decide about a finding that no hub knows; return why that was refused."""
    watch.nodes[name].picture.decide(FindingDecision("acknowledge", "nothing"))
    refused = until_of(watch, name, lambda it: it.decision_refused).decision_refused
    assert refused is not None
    return refused.reason


def test_roles_are_those_at_the_relay_and_its_key_decides_at_the_node() -> None:
    pair, viewer = make_key_pair(), make_key_pair()
    allow(keys_folder(), ("viewer", viewer))
    with (
        ListeningHub(pair, keys_folder()) as hub,
        RunningRelay(hub.address, pair=pair, node=pair) as relay,
        following(trust_of(viewer, node=pair), relay.address) as watch,
        following(trust_of(pair, node=pair), relay.address) as own,
    ):
        hub.producer.push([make_sample(1)])
        name = hub.address.label
        for each in (watch, own):
            until_of(each, name, has_seq(1))
        assert "on relay: run there `vramscope keys allow" in ask_in_vain(watch, name)
        assert "unknown finding" in ask_in_vain(own, name)
        allow(keys_folder())
        until_of(watch, name, says("this key is not allowed on relay"))
        hub.producer.push([make_sample(2)])
        until_of(own, name, has_seq(2))
        assert watch.nodes[name].picture.newest.sample == make_sample(1)


@pytest.mark.waits
def test_a_node_that_is_reached_twice_is_one_and_the_other_way_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vramscope.engine.cluster.nodes_watch.TAKES_OVER_S", 0.0)
    with (
        ListeningHub(None, keys_folder()) as hub,
        FaultyPath(hub.address) as path,
        RunningRelay(hub.address) as low,
        RunningRelay(path.address, low.address) as top,
        following(trust_of(None), top.address) as watch,
    ):
        relayed, direct = hub.address.label, path.address.label
        seqs = itertools.count(1)

        def is_only(name: str) -> bool:
            hub.producer.push([make_full(next(seqs))])
            watch.turn(0.05)
            is_one = list(watch.nodes) == [name]
            return is_one and watch.nodes[name].picture.newest.connection == "live"

        wait_until(lambda: is_only(direct), what="the direct way")
        path.cut()
        wait_until(lambda: is_only(relayed), what="the way through the relay")
        path.heal()
        wait_until(lambda: is_only(direct), what="the direct way again")
        last = next(seqs) - 1
        until_of(watch, direct, has_seq(last))
        assert list_seqs(watch.nodes[direct].picture) == list(range(1, last + 1))


def test_a_node_is_followed_once_by_whatever_addresses_and_relays_it_is_reached() -> None:
    with (
        ListeningHub(None, keys_folder()) as hub,
        FaultyPath(hub.address) as path,
        RunningRelay(hub.address) as relay,
        following(trust_of(None), relay.address, path.address) as watch,
        following(trust_of(None), hub.address, path.address) as direct,
    ):
        hub.producer.push([make_full(1)])
        until_of(watch, path.address.label, has_seq(1))
        wait_until(lambda: (watch.turn(0.05), len(watch.nodes) == 1)[1], what="one way to the node")
        assert list(watch.nodes) == [path.address.label]
        wait_until(lambda: (direct.turn(0.05), len(direct.nodes) == 1)[1], what="one way to the node")
        ((other, followed),) = direct.doubles.items()
        assert {other, followed} == {hub.address.label, path.address.label}
        assert list(direct.nodes) == [followed]


def test_relays_that_lead_back_to_themselves_say_so_and_serve_the_rest() -> None:
    back = TcpAddress(LOOPBACK, free_port())
    with (
        ListeningHub(None, keys_folder()) as hub,
        RunningRelay(hub.address, back) as relay,
        RunningRelay(relay.address, address=back),
        following(trust_of(None), relay.address) as watch,
    ):
        hub.producer.push([make_sample(1)])
        until_of(watch, hub.address.label, has_seq(1))

        def is_said() -> bool:
            watch.turn(0.05)
            others = [it.picture.newest for name, it in watch.nodes.items() if name != hub.address.label]
            return [says("loop: this relay")(it) for it in others] == [
                True
            ]  # which of them finds out is chance

        wait_until(is_said, what="the loop that is found")
        hub.producer.push([make_sample(2)])
        assert until_of(watch, hub.address.label, has_seq(2)).samples_dropped == 0
