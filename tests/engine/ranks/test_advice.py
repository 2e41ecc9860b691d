"""Advice on its way through the hub: who is asked, who is answered, and what everybody is told."""

import os
from pathlib import Path

from vramscope.engine.ranks import demands
from vramscope.engine.ranks.demands import AdviceOutcome, Wish
from vramscope.engine.ranks.messages import AdviceTaken, DemandRefused
from vramscope.engine.ranks.roster import ADVICE_TOLD_S

from .probe_client import MIB, ProbeClient, make_hello, make_readings
from .rosters import open_roster

DONE = "emptied its cache; 8.0 MiB freed"


def make_wish(number: int) -> Wish:
    """Return the wish of one asker that a process empties its cache."""
    return Wish("advise", (b"peer", number), action="empty_cache", reason="another job needs the room")


def test_a_process_is_asked_once_all_askers_are_answered_and_every_viewer_is_told(
    private_environment: Path,
) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello(demands=("advise",)), make_readings(MIB))
        bench.tick()
        for number in (1, 2):
            bench.roster.ask(os.getpid(), make_wish(number))
        demand = probe.receive()
        asked = (demand.kind, demand.action, demand.reason, demand.seconds)
        assert asked == ("advise", "empty_cache", "another job needs the room", demands.ADVICE_WITHIN_S)
        bench.roster.ask(os.getpid(), Wish("advise", (b"peer", 3), action="checkpoint"))
        other = probe.receive()
        assert other.action == "checkpoint"
        probe.send(
            AdviceTaken(
                v=1, request=other.request, is_obeyed=False, outcome="has no callback\nfor checkpoint"
            ),
            AdviceTaken(v=1, request=demand.request, is_obeyed=True, outcome=DONE, freed_bytes=8 * MIB),
            AdviceTaken(v=1, request=99, is_obeyed=True, outcome="did what nobody has asked for"),
        )
        notes = bench.tick().notes
        told = {it.asker[1]: it.advice for it in bench.roster.take_answers()}
        assert told == {
            1: AdviceOutcome(os.getpid(), True, DONE, 8 * MIB),
            2: AdviceOutcome(os.getpid(), True, DONE, 8 * MIB),
            3: AdviceOutcome(os.getpid(), False, "has no callback for checkpoint", None),
        }
        assert notes[-1] == f"process {os.getpid()} was advised to empty_cache: it {DONE}"
        assert len(notes) == 2
        assert bench.tick(after_s=ADVICE_TOLD_S).notes == ()


def test_a_process_that_refuses_ends_or_is_silent_is_an_answer_too(private_environment: Path) -> None:
    with open_roster(private_environment) as bench:
        with ProbeClient(private_environment) as probe:
            probe.send(make_hello(demands=("advise",)), make_readings(MIB))
            bench.tick()
            bench.roster.ask(os.getpid(), make_wish(1))
            probe.send(DemandRefused(v=1, request=probe.receive().request, reason="accepts no advice"))
            bench.tick()
            bench.roster.ask(os.getpid(), make_wish(2))
            bench.tick(after_s=demands.ADVICE_WITHIN_S + demands.ANSWER_WITHIN_S + 1.0)
            bench.roster.ask(os.getpid(), make_wish(3))
        bench.tick()
        refused, silent, ended = [it.refusal or "" for it in bench.roster.take_answers()]
        assert refused == f"process {os.getpid()} accepts no advice"
        assert "has not answered within 70 s" in silent
        assert ended == f"process {os.getpid()} has ended or was detached"
