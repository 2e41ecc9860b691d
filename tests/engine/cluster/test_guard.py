"""Two agents, a job over both, and a watch that asks one of its processes for its cache before an error."""

import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import msgspec
import pytest
import zmq

from tests import REPOSITORY
from vramscope.cli.application import run as main
from vramscope.cli.verbs.guard import Guard, GuardOptions
from vramscope.engine.agent.hub import Hub
from vramscope.engine.cluster.addresses import LOOPBACK, TcpAddress
from vramscope.engine.cluster.gate import make_listening
from vramscope.engine.cluster.keys import Role, make_key_pair
from vramscope.engine.cluster.nodes_watch import NodesWatch
from vramscope.engine.model import Assessment, RankCoordinates
from vramscope.engine.ranks.messages import AdviceTaken
from vramscope.engine.ranks.roster import Roster
from vramscope.engine.sampling.live import LiveProducer
from vramscope.engine.settings import AlertSettings
from vramscope.engine.wire.endpoints import endpoints_of
from vramscope.engine.wire.messages import WorkerReport, encode
from vramscope.exporters.schema import build_schema, render_schema

from ...clocks import HandClock
from ...waiting import wait_until
from ..ranks.probe_client import GIB, ProbeClient, make_hello, make_readings
from ..ranks.running import TICK_S
from .remote import allow, free_port, trust_of

NODE, GUARD = make_key_pair(), make_key_pair()


class _Node(NamedTuple):
    """One agent with a process of the job."""

    address: TcpAddress
    folder: Path
    probe: ProbeClient

    def assess(self, watch: NodesWatch, **forecast: Any) -> None:
        """Tell the agent what its worker would say of the process."""
        newest = watch.nodes[self.address.label].picture.newest
        assert newest.sample is not None
        [rank] = newest.sample.ranks
        said = Assessment(
            newest.sample.node,
            rank.device_uuid,
            "sim0",
            newest.sample.time_s,
            reason="its floor grows",
            pid=rank.pid,
            started_s=rank.started_s,
            **forecast,
        )
        with zmq.Context() as context, context.socket(zmq.PUSH) as push:
            push.connect(endpoints_of(self.folder).reports)
            push.send(encode("report", "", WorkerReport("w", 1, 1, 0, (), assessments=(said,))))


@contextmanager
def _open_node(number: int, role: Role = "controller") -> Iterator[_Node]:
    """Run an agent on loopback with one process, on a modelled card that is full of unused cache."""
    with tempfile.TemporaryDirectory(prefix="vs-guard-", dir="/tmp") as name:
        folder, keys, address = Path(name) / "run", Path(name) / "keys", TcpAddress(LOOPBACK, free_port())
        folder.mkdir(mode=0o700)
        keys.mkdir(mode=0o700)
        allow(keys, (role, GUARD))
        roster = Roster(folder, node=f"n{number}")
        producer = LiveProducer([], None, node=f"n{number}", interval_s=TICK_S, roster=roster)
        listening = make_listening(address, NODE, keys)
        hub = Hub(folder, producer, version="test", roster=roster, listening=listening)
        thread = threading.Thread(target=hub.run, daemon=True)
        thread.start()
        try:
            with ProbeClient(folder) as probe:
                hello = make_hello(is_simulated=True, started_s=1.0, job=f"run-{number}", demands=("advise",))
                place = RankCoordinates(number, 2, source="environment")
                probe.send(msgspec.structs.replace(hello, coordinates=place))
                yield _Node(address, folder, probe)
        finally:
            hub.stop()
            thread.join(timeout=60)
            assert not thread.is_alive()


def _read_lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


class _Watch:
    """A watch over two agents, by a clock of the test's own.

    Args:
        nodes: The agents.
        capsys: Where it prints.
        alerts: Whose hooks are told.
    """

    def __init__(
        self, nodes: tuple[_Node, ...], capsys: pytest.CaptureFixture[str], alerts: AlertSettings
    ) -> None:
        self._nodes, self._capsys, self._clock = nodes, capsys, HandClock(1_000_000.0)
        addresses = [node.address for node in nodes]
        self.watch = NodesWatch(addresses, trust_of(GUARD, node=NODE), most_in_full=0)
        options = GuardOptions(is_json=True, prevents_oom=True, alerts=alerts)
        self._guard = Guard(self.watch, options, clock=self._clock)
        self.lines: list[dict[str, Any]] = []

    def pass_second(self) -> None:
        """Let a second pass."""
        for node in self._nodes:
            node.probe.send(make_readings(10 * GIB, reserved=(23 * GIB + GIB // 2,)))
        self._clock.now_s += 1.0
        self._guard.turn(0.05)
        self.lines += map(json.loads, self._capsys.readouterr().out.splitlines())

    def has_told(self, event: str) -> bool:
        """Let a second pass, and return whether such a line has been printed."""
        self.pass_second()
        return any(line["event"] == event for line in self.lines)

    def has_delivered(self) -> bool:
        """Let a second pass, and return whether the hook has taken an alert."""
        self.pass_second()
        return self._guard.hooks[0].delivered > 0

    def sees_ranks(self) -> bool:
        """Let a second pass, and return whether both processes are seen."""
        self.pass_second()
        samples = [node.picture.newest.sample for node in self.watch.nodes.values()]
        return all(it is not None and it.ranks and it.ranks[0].allocator is not None for it in samples)


def _make_hook(told: Path) -> AlertSettings:
    """Return settings with a command that writes what it is told to a file, a line each."""
    program = f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read() + chr(10))"
    return AlertSettings(command=(sys.executable, "-S", "-c", program))


def test_a_process_on_a_full_card_is_asked_for_its_cache_and_its_answer_and_a_hook_are_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words, told_by_hook = "gave back what it could", tmp_path / "told"
    with _open_node(0) as calm, _open_node(1) as grave:
        watching = _Watch((calm, grave), capsys, _make_hook(told_by_hook))
        with closing(watching.watch):
            wait_until(watching.sees_ranks, what="both processes to be seen")
            calm.assess(watching.watch, level="low")
            grave.assess(watching.watch, level="high", oom_in_s=300.0)
            for event in ("finding", "advice"):
                wait_until(lambda it=event: watching.has_told(it), what=f"the {event}")  # type: ignore[misc]
            demand = grave.probe.receive()
            assert (demand.kind, demand.action) == ("advise", "empty_cache")
            assert "libraries outside the allocator" in (demand.reason or "")
            answer = AdviceTaken(v=1, request=demand.request, is_obeyed=True, outcome=words, freed_bytes=GIB)
            grave.probe.send(answer)
            wait_until(lambda: watching.has_told("outcome"), what="the answer")
            wait_until(watching.has_delivered, what="the hook")
    validator = jsonschema.Draft202012Validator(build_schema("guard"))
    for line in watching.lines:
        validator.validate(line)
    assert {line["advice"]["rank"] for line in watching.lines if line["advice"]} == {1}
    told = {line["event"]: line for line in watching.lines}
    assert (told["outcome"]["advice"]["is_obeyed"], told["outcome"]["advice"]["freed_bytes"]) == (True, GIB)
    finding = told["finding"]["finding"]
    assert finding["kind"] == "cluster_oom"
    [alert] = map(json.loads, told_by_hook.read_text().splitlines())
    assert (alert["event"], alert["finding"]["id"]) == ("opened", finding["id"])
    assert {"name": "rank 1 was advised", "value": f"empty_cache: {words}", "unit": ""} in finding["evidence"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "no nodes are named: give --connect"),
        (("--connect", "127.0.0.1:9", "--planned", "many"), 2, "--planned many: not a size"),
        (("--connect", "127.0.0.1:9", "--duration", "0"), 2, "--duration 0: expected a time above zero"),
        (("--connect", "127.0.0.1:9", "--duration", "0.1s"), 7, ""),
    ],
)
def test_what_cannot_be_watched_is_said(
    words: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["guard", *words]) == code
    assert said in capsys.readouterr().err


def test_hooks_are_those_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VRAMSCOPE_ALERTS_LEVEL", "loud")
    words = ("guard", "--connect", "127.0.0.1:9", "--duration", "0.1s")
    assert main([*words]) == 2
    assert "VRAMSCOPE_ALERTS_LEVEL" in capsys.readouterr().err
    assert main([*words, "--no-hooks"]) == 7


def test_the_schema_is_that_of_the_lines() -> None:
    assert (REPOSITORY / "docs" / "guard.schema.json").read_text("utf-8") == render_schema("guard")
