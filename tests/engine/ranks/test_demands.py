"""Segment maps, detaching and recording: from a viewer through the hub to a process, and back."""

import base64
import inspect
import json
import os
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.errors import HubUnreachableError, UsageError, WireError
from vramscope.engine.model import Backend, Segment, SegmentMap
from vramscope.engine.model.sample import ALLOCATED, FREE, LiveStack
from vramscope.engine.ranks import demands
from vramscope.engine.ranks.demands import Wish
from vramscope.engine.ranks.messages import (
    MAX_PARTS,
    MAX_UNPACKED_BYTES,
    PackedSegments,
    PartAssembly,
    SegmentsPart,
    unpack_segments,
)
from vramscope.engine.viewer import client as client_module
from vramscope.engine.viewer.client import Client
from vramscope.engine.viewer.hub_feed import HubFeed
from vramscope.engine.viewer.snapshot import Snapshot

from ...waiting import wait_until
from ..agent.hubs import RunningHub, make_sample
from .probe_client import MIB, ProbeClient, make_hello, make_readings
from .rosters import RosterBench, open_roster
from .running import RankHub, see, see_ranks

SEGMENT = [0x7F00, 2 * MIB, 0, 7, True, False, [[MIB, ALLOCATED], [MIB, FREE]]]
STACK = [MIB, 1, [["train.py", 12, "forward"]]]
ASKER = (b"peer", 1)


def pack(**content: object) -> str:
    """Return the data of a map as a probe packs it."""
    whole = {"time_s": 5.0, "segments": [SEGMENT], "left_out": 3, "live_stacks": [STACK]} | content
    return base64.b64encode(zlib.compress(json.dumps(whole).encode())).decode()


def make_parts(data: str, request: int, parts: int) -> Iterator[SegmentsPart]:
    """Yield a map cut into so many parts."""
    size = -(-len(data) // parts)
    for part in range(parts):
        yield SegmentsPart(
            v=1, request=request, part=part, parts=parts, data=data[part * size : (part + 1) * size]
        )


def test_a_map_that_was_asked_for_arrives_with_every_viewer(private_environment: Path) -> None:
    with (
        RankHub(private_environment),
        ProbeClient(private_environment) as probe,
        Client(private_environment) as client,
        Client(private_environment) as other,
    ):
        probe.send(make_hello(is_simulated=True), make_readings(MIB))
        see_ranks(client)
        see_ranks(other)
        client.ask_segments(os.getpid())
        client.snapshot(timeout_s=0.0)
        demand = probe.receive()
        assert demand.kind == "segments"
        probe.send(*make_parts(pack(), demand.request, parts=3))
        for viewer in (client, other):
            (found,) = see(viewer, lambda s: s.segment_maps).segment_maps
            assert found == SegmentMap(
                node="n",
                pid=os.getpid(),
                device_uuid="sim-job-0",
                time_s=5.0,
                segments=(
                    Segment(0x7F00, 2 * MIB, "small", 7, ((MIB, ALLOCATED), (MIB, FREE)), is_expandable=True),
                ),
                segments_left_out=3,
                live_stacks=(LiveStack(MIB, 1, (("train.py", 12, "forward"),)),),
            )


def test_a_process_nobody_knows_is_refused_with_those_that_are(private_environment: Path) -> None:
    with (
        RankHub(private_environment),
        ProbeClient(private_environment) as probe,
        Client(private_environment) as client,
    ):
        client.ask_segments(424242)
        lonely = see(client, lambda s: s.segments_refused).segments_refused
        assert lonely[0].reason == "no training process 424242 reports to this agent; none does"
        probe.send(make_hello(), make_readings(MIB))
        see_ranks(client)
        with pytest.raises(
            UsageError, match=rf"no training process 424242 .*; those that do: {os.getpid()}$"
        ):
            client.detach(424242)


def test_a_map_that_cannot_be_read_is_said_to_those_who_wait(private_environment: Path) -> None:
    with (
        RankHub(private_environment),
        ProbeClient(private_environment) as probe,
        Client(private_environment) as client,
    ):
        probe.send(make_hello(), make_readings(MIB))
        see_ranks(client)
        client.ask_segments(os.getpid())
        client.snapshot(timeout_s=0.0)
        demand = probe.receive()
        data = base64.b64encode(b"no zlib").decode()
        probe.send(SegmentsPart(v=1, request=demand.request, part=0, parts=1, data=data))
        (refused,) = see(client, lambda s: s.segments_refused).segments_refused
        assert refused.reason.startswith(f"the segment map of process {os.getpid()} cannot be read")
        assert see_ranks(client).connection == "live"


def test_detaching_returns_once_the_process_has_said_goodbye(private_environment: Path) -> None:
    with (
        RankHub(private_environment),
        ProbeClient(private_environment) as probe,
        Client(private_environment) as client,
    ):
        probe.send(make_hello(), make_readings(MIB))
        see_ranks(client)

        def obey() -> None:
            assert probe.receive().kind == "detach"
            probe.say_goodbye(detached=True)

        process = threading.Thread(target=obey)
        process.start()
        client.detach(os.getpid())
        process.join(10)
        (rank,) = see(
            client, lambda s: s.sample is not None and s.sample.ranks[0].state == "ended"
        ).sample.ranks  # type: ignore[union-attr] # it has a sample
        assert rank.reason == "its probe was detached"


def test_a_process_that_is_late_is_waited_for_as_long_as_the_agent_waits(
    private_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "USUAL_ANSWER_S", 0.0)
    is_said = threading.Event()
    said: list[str] = []
    with (
        RankHub(private_environment),
        ProbeClient(private_environment) as probe,
        Client(private_environment) as client,
    ):
        probe.send(make_hello(), make_readings(MIB))
        see_ranks(client)

        def note() -> None:
            said.append("waits")
            is_said.set()

        def obey_late() -> None:
            assert probe.receive().kind == "detach"
            is_said.wait(30)
            probe.say_goodbye(detached=True)

        process = threading.Thread(target=obey_late)
        process.start()
        client.detach(os.getpid(), on_wait=note)
        process.join(10)
    assert said == ["waits"]
    longest = inspect.signature(Client.detach).parameters["timeout_s"].default
    assert longest == demands.ANSWER_WITHIN_S


def test_a_process_that_does_not_react_is_named(private_environment: Path) -> None:
    with (
        RankHub(private_environment),
        ProbeClient(private_environment) as probe,
        Client(private_environment) as client,
    ):
        probe.send(make_hello(), make_readings(MIB))
        see_ranks(client)
        with pytest.raises(
            HubUnreachableError, match=rf"process {os.getpid()} has not answered within 0.2 s"
        ):
            client.detach(os.getpid(), timeout_s=0.2)


def test_recording_is_passed_on(private_environment: Path) -> None:
    with (
        RankHub(private_environment),
        ProbeClient(private_environment) as probe,
        Client(private_environment) as client,
    ):
        probe.send(make_hello(), make_readings(MIB))
        see_ranks(client)
        client.record_history(os.getpid(), is_on=True, seconds=30.0)
        client.snapshot(timeout_s=0.0)
        demand = probe.receive()
        assert (demand.kind, demand.is_on, demand.seconds) == ("history", True, 30.0)


def test_a_hub_without_probes_says_so(private_environment: Path) -> None:
    with RunningHub(private_environment) as running, Client(private_environment) as client:
        running.producer.push([make_sample(1)])
        see(client, lambda s: s.sample)
        with pytest.raises(UsageError, match="this agent plays a recording; no process reports to it"):
            client.detach(1)


def test_a_feed_asks_from_any_thread_and_hands_the_map_on(private_environment: Path) -> None:
    seen: list[Snapshot] = []
    with RankHub(private_environment), ProbeClient(private_environment) as probe:
        probe.send(make_hello(), make_readings(MIB))
        feed = HubFeed(private_environment)
        feed.start(seen.append)
        wait_until(lambda: seen and seen[-1].sample is not None and seen[-1].sample.ranks, what="the rank")
        feed.ask_segments(os.getpid())
        demand = probe.receive()
        probe.send(*make_parts(pack(), demand.request, parts=1))
        wait_until(lambda: seen[-1].segment_maps, what="the map")
        feed.stop()
        feed.ask_segments(os.getpid())


def _meet(bench: RosterBench, probe: ProbeClient) -> None:
    probe.send(make_hello(), make_readings(MIB))
    bench.tick()


def test_a_process_is_not_asked_again_too_soon(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        _meet(bench, probe)
        for number in (1, 2):
            bench.roster.ask(os.getpid(), Wish("segments", (b"peer", number)))
        first = probe.receive()
        probe.send(*make_parts(pack(), first.request, parts=1))
        bench.tick()
        assert len(bench.roster.take_maps()) == 1
        assert [answer.asker[1] for answer in bench.roster.take_answers()] == [1, 2]
        bench.roster.ask(os.getpid(), Wish("segments", ASKER))
        assert len(bench.roster.take_maps()) == 1
        bench.tick(after_s=demands.SEGMENTS_INTERVAL_S)
        bench.roster.ask(os.getpid(), Wish("segments", ASKER))
        assert bench.roster.take_maps() == []
        assert probe.receive().request > first.request


def test_a_map_of_the_end_of_a_step_is_never_an_older_one_and_may_take_as_long_as_a_step(
    private_environment: Path,
) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        _meet(bench, probe)
        bench.roster.ask(os.getpid(), Wish("segments", (b"viewer", 1)))
        probe.send(*make_parts(pack(), probe.receive().request, parts=1))
        bench.tick()
        assert len(bench.roster.take_maps()) == 1
        bench.roster.take_answers()
        bench.roster.ask(os.getpid(), Wish("segments", (b"worker", 2), seconds=40.0))
        patient = probe.receive()
        assert (patient.kind, patient.seconds) == ("segments", 40.0)
        bench.tick(after_s=demands.ANSWER_WITHIN_S + 5)
        bench.roster.ask(os.getpid(), Wish("segments", (b"viewer", 3)))
        plain = probe.receive()
        assert plain.seconds is None
        for request, is_at_step_end in ((plain.request, False), (patient.request, True)):
            data = pack(is_at_step_end=is_at_step_end)
            probe.send(*make_parts(data, request, parts=1))
            bench.tick()
            (found,) = bench.roster.take_maps()
            assert unpack_segments(found).is_at_step_end is is_at_step_end
        assert [answer.asker[1] for answer in bench.roster.take_answers()] == [3, 2]
        bench.roster.ask(os.getpid(), Wish("segments", ASKER, seconds=40.0))
        bench.tick(after_s=demands.ANSWER_WITHIN_S + 41)
        (answer,) = bench.roster.take_answers()
        assert answer.refusal is not None
        assert "has not answered within 50 s" in answer.refusal


@pytest.mark.parametrize(
    ("backend", "reason"),
    [("cpu", "trains on CPU, whose allocator reports no segments"), (None, "has not used a device yet")],
)
def test_a_process_without_segments_is_not_asked_for_them(
    private_environment: Path, backend: Backend | None, reason: str
) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello(backend=backend), make_readings(MIB))
        bench.tick()
        bench.roster.ask(os.getpid(), Wish("segments", ASKER))
        (answer,) = bench.roster.take_answers()
        assert answer.refusal == f"process {os.getpid()} {reason}"


def test_the_hub_looks_often_only_while_an_answer_is_due(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        _meet(bench, probe)
        relaxed_s = bench.roster.wait_s
        bench.roster.ask(os.getpid(), Wish("segments", ASKER))
        assert bench.roster.wait_s < relaxed_s / 10
        bench.tick(after_s=demands.ANSWER_WITHIN_S + 1)
        (answer,) = bench.roster.take_answers()
        assert answer.refusal is not None
        assert "has not answered within 10 s" in answer.refusal
        assert bench.roster.wait_s == relaxed_s


def test_parts_nobody_waits_for_are_let_go(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        _meet(bench, probe)
        probe.send(*make_parts(pack(), 77, parts=2))
        assert bench.tick().notes == ()
        assert bench.roster.take_maps() == []


def test_who_waits_for_a_process_that_ends_is_told(private_environment: Path) -> None:
    with open_roster(private_environment) as bench:
        with ProbeClient(private_environment) as probe:
            _meet(bench, probe)
            bench.roster.ask(os.getpid(), Wish("segments", (b"a", 1)))
            bench.roster.ask(os.getpid(), Wish("detach", (b"b", 2)))
        bench.tick()
        answers = {answer.asker: answer.refusal for answer in bench.roster.take_answers()}
    assert answers == {(b"b", 2): None, (b"a", 1): f"process {os.getpid()} has ended or was detached"}


def test_a_process_asked_between_its_end_and_the_next_tick_has_ended(private_environment: Path) -> None:
    with open_roster(private_environment) as bench:
        with ProbeClient(private_environment) as probe:
            _meet(bench, probe)
        bench.roster.ask(os.getpid(), Wish("segments", (b"a", 1)))
        bench.roster.ask(os.getpid(), Wish("detach", (b"b", 2)))
        answers = {answer.asker: answer.refusal for answer in bench.roster.take_answers()}
    assert answers == {(b"b", 2): None, (b"a", 1): f"process {os.getpid()} has ended or was detached"}


@pytest.mark.parametrize(
    ("part", "parts", "data"), [(0, MAX_PARTS + 1, ""), (2, 2, ""), (0, 0, ""), (0, 1, "no base64!")]
)
def test_parts_that_do_not_fit_are_refused_and_told(
    private_environment: Path, part: int, parts: int, data: str
) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        _meet(bench, probe)
        bench.roster.ask(os.getpid(), Wish("segments", ASKER))
        request = probe.receive().request
        probe.send(SegmentsPart(v=1, request=request, part=part, parts=parts, data=data))
        assert "segment map" in bench.tick().notes[0]
        (answer,) = bench.roster.take_answers()
        assert answer.refusal is not None
        assert len(bench.tick().ranks) == 1


def test_a_map_that_swells_is_not_unpacked() -> None:
    bomb = zlib.compress(b"[" + b" " * (MAX_UNPACKED_BYTES + 1) + b"]", 9)
    assert len(bomb) < MIB
    with pytest.raises(WireError, match=rf"larger than {MAX_UNPACKED_BYTES} bytes"):
        unpack_segments(PackedSegments("n", 1, None, bomb))


@given(st.binary(max_size=200))
def test_any_content_is_a_map_or_refused(content: bytes) -> None:
    with pytest.raises(WireError, match="the segment map of process 1"):
        unpack_segments(PackedSegments("n", 1, None, zlib.compress(content)))


@given(st.permutations(range(5)), st.integers(0, 400))
def test_parts_may_come_in_any_order(order: list[int], left_out: int) -> None:
    parts = list(make_parts(pack(left_out=left_out), 1, parts=5))
    assembly = PartAssembly()
    found = [assembly.add(parts[position]) for position in order]
    assert found[:-1] == [None] * 4
    assert found[-1] is not None
    assert unpack_segments(PackedSegments("n", 1, None, found[-1])).segments_left_out == left_out
