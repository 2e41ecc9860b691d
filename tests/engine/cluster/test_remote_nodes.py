"""Hubs and viewers over real tcp sockets, with keys and without: who may read, do more, or is turned away."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from vramscope.analyzers.pressure import PressureAnalyzer
from vramscope.engine.agent.worker import Worker
from vramscope.engine.alerts.state import FindingDecision
from vramscope.engine.cluster.addresses import LOOPBACK, TcpAddress
from vramscope.engine.cluster.connections import RemoteWorkerLink
from vramscope.engine.cluster.keys import KeyPair, keys_folder, make_key_pair
from vramscope.engine.cluster.trust import Trust

from ...waiting import wait_until
from ..agent.hubs import make_sample
from .remote import ListeningHub, allow, following, free_port, has_seq, says, trust_of, until

NODE, VIEWER, OTHER = make_key_pair(), make_key_pair(), make_key_pair()


def test_a_viewer_over_tcp_sees_the_past_and_what_follows() -> None:
    with ListeningHub(None, keys_folder()) as hub, following(trust_of(None), hub.address) as watch:
        hub.producer.push([make_sample(seq, used_gib=seq) for seq in range(1, 31)])
        until(watch, has_seq(30))
        hub.producer.push([make_sample(31, used_gib=31)])
        snapshot = until(watch, has_seq(31))
        history = watch.nodes[hub.address.label].picture.history
        assert history.columns("GPU-a", "used", 1031.0, 1.0, 31).last == [
            seq * 1024**3 for seq in range(1, 32)
        ]
        assert snapshot.samples_dropped == 0
        until(watch, lambda it: it.hub is not None and it.hub.viewers == 1)


@pytest.mark.parametrize(("own", "expected"), [(VIEWER, None), (NODE, None), (OTHER, "keys allow")])
def test_only_keys_that_are_allowed_come_in(own: KeyPair, expected: str | None) -> None:
    allow(keys_folder(), ("viewer", VIEWER))
    with ListeningHub(NODE, keys_folder()) as hub:
        hub.producer.push([make_sample(1)])
        with following(trust_of(own, node=NODE), hub.address) as watch:
            if expected is None:
                until(watch, has_seq(1))
            else:
                reason = until(watch, says("refused")).reason or ""
                assert f"vramscope keys allow {own.public_text} --name" in reason
                allow(keys_folder(), ("viewer", own))
                until(watch, has_seq(1))  # without a new start on either side


def test_a_node_with_another_key_than_is_known_is_not_believed() -> None:
    allow(keys_folder(), ("viewer", VIEWER))
    with ListeningHub(NODE, keys_folder()) as hub:
        hub.producer.push([make_sample(1)])
        elsewhere = trust_of(VIEWER, node=OTHER)
        with following(elsewhere, hub.address) as watch:
            assert until(watch, lambda it: it.reason).sample is None


def test_a_viewer_reads_a_controller_decides_and_what_is_taken_back_holds_at_once() -> None:
    allow(keys_folder(), ("viewer", VIEWER))
    decision = FindingDecision("acknowledge", "nothing")
    with (
        ListeningHub(NODE, keys_folder()) as hub,
        following(trust_of(VIEWER, node=NODE), hub.address) as watch,
    ):
        hub.producer.push([make_sample(1)])
        until(watch, has_seq(1))
        picture = watch.nodes[hub.address.label].picture
        picture.decide(decision)
        refused = until(watch, lambda it: it.decision_refused).decision_refused
        assert refused is not None
        assert "--role controller" in refused.reason
        picture.advise(1, "empty_cache")
        (advice,) = until(watch, lambda it: it.advice).advice
        assert "--role controller" in (advice.refusal or "")
        allow(keys_folder(), ("controller", VIEWER))

        def is_let_through(it: object) -> bool:
            picture.decide(decision)  # the finding is unknown, which only a hub says that looked for it
            told = watch.nodes[hub.address.label].picture.newest.decision_refused
            return told is not None and "--role" not in told.reason

        until(watch, is_let_through)


def test_on_loopback_everybody_reads_an_agent_without_keys_and_nobody_changes_it() -> None:
    with ListeningHub(None, keys_folder()) as hub, following(trust_of(None), hub.address) as watch:
        hub.producer.push([make_sample(1)])
        assert until(watch, has_seq(1)).sample is not None
        picture = watch.nodes[hub.address.label].picture
        picture.decide(FindingDecision("acknowledge", "nothing"))
        refused = until(watch, lambda it: it.decision_refused).decision_refused
        assert refused is not None
        assert "key" in refused.reason
        picture.advise(1, "empty_cache")
        (advice,) = until(watch, lambda it: it.advice).advice
        assert "key" in (advice.refusal or "")


def test_a_key_that_is_revoked_is_cut_off_while_connected_and_others_are_not() -> None:
    allow(keys_folder(), ("viewer", VIEWER), ("viewer", OTHER))
    with (
        ListeningHub(NODE, keys_folder()) as hub,
        following(trust_of(VIEWER, node=NODE), hub.address) as revoked,
        following(trust_of(OTHER, node=NODE), hub.address) as kept,
    ):
        hub.producer.push([make_sample(1)])
        until(revoked, has_seq(1))
        until(kept, has_seq(1))
        allow(keys_folder(), ("viewer", OTHER))
        until(revoked, says("not allowed on node"))
        hub.producer.push([make_sample(2)])
        assert until(kept, has_seq(2)).samples_dropped == 0
        shown = until(revoked, says("not allowed on node")).sample
        assert shown is not None
        assert shown.seq == 1


def test_who_has_a_key_and_is_answered_without_one_is_told_that_nothing_is_proven() -> None:
    with ListeningHub(None, keys_folder()) as hub:
        for trust, is_told in ((trust_of(VIEWER), True), (trust_of(None), False)):
            with following(trust, hub.address) as watch:
                hub.producer.push([make_sample(1)])
                status = until(watch, has_seq(1)).hub
                assert status is not None
                assert any("uses no keys" in note for note in status.notes) == is_told


def test_a_node_that_is_away_is_said_to_be_and_others_are_followed_meanwhile() -> None:
    away, unknown = TcpAddress(LOOPBACK, free_port()), TcpAddress("nobody.invalid", 5757)
    with ListeningHub(None, keys_folder()) as hub:
        hub.producer.push([make_sample(1)])
        with following(trust_of(None), away, unknown, hub.address) as watch:
            until(watch, has_seq(1), hub.address)
            until(watch, says(f"no agent listens at {away.text}"), away)
            until(watch, says("cannot be resolved"), unknown)


def test_a_hub_that_ended_is_lost_with_its_age_and_found_again() -> None:
    with ListeningHub(None, keys_folder()) as hub, following(trust_of(None), hub.address) as watch:
        hub.producer.push([make_sample(4)])
        until(watch, has_seq(4))
        hub.hub.stop()
        lost = until(watch, says("connection lost"))
        assert lost.sample is not None
        assert (lost.silent_s or 0) > 2
        with ListeningHub(None, keys_folder(), hub.address) as after:
            after.producer.push([make_sample(1)])
            until(watch, has_seq(1))
            after.producer.push([make_sample(2)])
            until(watch, has_seq(2))


def test_beyond_this_machine_nothing_is_said_without_a_key() -> None:
    elsewhere = TcpAddress("192.0.2.1", 5757)  # of documentation: nobody has it
    with following(trust_of(None), elsewhere) as watch:
        until(watch, says("vramscope keys new"))
        assert watch.nodes[elsewhere.label].connection.sources == ()


@contextmanager
def _worker(trust: Trust, address: TcpAddress) -> Iterator[list[str]]:
    """Analyze for a hub on a thread; yields what is told of the connection."""
    told: list[str] = []
    worker = Worker(RemoteWorkerLink(address, trust, told.append), [PressureAnalyzer()])
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        worker.stop()
        thread.join(timeout=60)


@pytest.mark.waits
def test_a_worker_says_that_nobody_listens() -> None:
    with _worker(trust_of(None), TcpAddress(LOOPBACK, free_port())) as told:
        wait_until(lambda: told, what="a word")
    assert "does not answer: no agent listens at" in told[0]


def test_a_worker_elsewhere_finds_what_one_here_would() -> None:
    allow(keys_folder(), ("worker", OTHER), ("viewer", VIEWER))
    full = [make_sample(seq, used_gib=79.0) for seq in range(1, 121)]
    with ListeningHub(NODE, keys_folder()) as hub, following(trust_of(NODE), hub.address) as watch:
        hub.producer.push(full)
        with _worker(trust_of(VIEWER, node=NODE), hub.address) as told:
            wait_until(lambda: any("--role worker" in it for it in told), what="the refusal")
        assert watch.nodes[hub.address.label].picture.newest.findings == ()
        with _worker(trust_of(OTHER, node=NODE), hub.address):
            (found,) = until(watch, lambda it: it.findings).findings
            until(watch, lambda it: it.hub is not None and it.hub.workers)
    assert (found.kind, found.is_open) == ("pressure", True)
