"""Nodes behind relays: seen by one connection as if there were none between, however deep."""

from contextlib import closing

from vramscope.engine.cluster.keys import keys_folder
from vramscope.engine.cluster.nodes_watch import NodesWatch

from ..bus.hubs import make_sample
from .relays import RunningRelay, until_of
from .remote import ListeningHub, following, has_seq, trust_of
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
                assert has_processes(first.newest)
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
