"""`vramscope --json`: one object a line, flushed, until somebody has had enough."""

import itertools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import jsonschema
import pytest
import zmq

from vramscope.analyzers.pressure import PressureAnalyzer
from vramscope.cli.status import Observer
from vramscope.engine.agent.worker import LocalWorkerLink, Worker
from vramscope.engine.clock import SystemClock
from vramscope.engine.history import History
from vramscope.engine.model import HubStatus
from vramscope.engine.paths import locate_runtime_folder, open_runtime_folder
from vramscope.engine.viewer.client import connect
from vramscope.engine.viewer.hub_feed import HubFeed
from vramscope.engine.viewer.this_node import LocalNode
from vramscope.engine.wire.endpoints import HubLock, endpoints_of, is_hub_alive
from vramscope.engine.wire.messages import Request, Welcome, body_of, decode, encode

from ...engine.agent.hubs import RunningHub, make_sample
from ...pretend_nvml.driver import PretendDriver
from ...waiting import wait_until
from .running import GIB, Program, environment, no_library, run, start
from .test_once import SCHEMA


@contextmanager
def running(*arguments: str, start: Callable[..., Program] = start, **variables: str) -> Iterator[Program]:
    process = start(*arguments, **variables)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def agent(*arguments: str, start: Callable[..., Program] = start) -> Iterator[Program]:
    """Run an agent that answers."""
    with running("agent", *arguments, start=start) as process:
        wait_until(lambda: is_hub_alive(locate_runtime_folder()), what="the agent to take its folder")
        with connect(timeout_s=30.0) as client:
            wait_until(lambda: client.snapshot(0.05).sample, what="the first sample")
        yield process


def read_lines(stream: IO[str] | None) -> Iterator[dict[str, object]]:
    assert stream is not None
    for line in stream:
        yield json.loads(line)


def test_a_stream_ends_after_its_duration_with_at_most_a_line_a_tick(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device()
    outcome = run("--json", "--interval", "0.2", "--duration", "1.1s")
    assert (outcome.code, outcome.stderr) == (0, "")
    lines = outcome.lines
    assert 1 <= len(lines) <= 7
    for line in lines:
        jsonschema.validate(line, SCHEMA)
    times = [line["time"] for line in lines]
    assert all(later > earlier for earlier, later in itertools.pairwise(times))


def test_each_line_arrives_when_it_is_measured_and_ctrl_c_is_130(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    device = pretend_driver.add_device(used_bytes=GIB)
    with running("--json", "--interval", "0.1") as process:
        lines = read_lines(process.stdout)
        next(lines)
        device.set_memory(2 * GIB)
        memories = (line["devices"][0]["memory"]["used_bytes"] for line in lines)  # type: ignore[index] # JSON
        assert 2 * GIB in itertools.islice(memories, 500)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_spike_between_two_lines_is_in_the_later_one(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    device = pretend_driver.add_device(used_bytes=10 * GIB)
    with running("--json", "--interval", "1", "--memory-interval", "20ms") as process:
        lines = read_lines(process.stdout)
        next(lines)
        calls = device.calls()
        device.set_memory(70 * GIB)
        wait_until(lambda: device.calls() > calls + 3, what="a reading of the spike")
        device.set_memory(10 * GIB)
        peaks = (line["devices"][0]["memory"]["used_max_bytes"] for line in lines)  # type: ignore[index] # JSON
        assert 70 * GIB in itertools.islice(peaks, 60)


def test_a_reader_that_has_had_enough_is_no_error(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device()
    with running("--json", "--interval", "0.1") as process:
        next(read_lines(process.stdout))
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_full_disk_is_told(pretend_driver: PretendDriver, pretend_environment: dict[str, str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    pretend_driver.add_device()
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "vramscope", "--once"],
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=environment(),
            check=False,
            timeout=30,
        )
    assert done.returncode == 1
    assert done.stderr == "vramscope: cannot write the output: No space left on device\n"


def test_without_a_library_the_host_streams_on_and_the_reason_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in no_library(tmp_path).items():
        monkeypatch.setenv(name, value)
    with running("--json", "--interval", "0.1") as process:
        for line in itertools.islice(read_lines(process.stdout), 3):
            assert line["host"]["total_bytes"]  # type: ignore[index] # JSON
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
        assert process.returncode == 130
    assert told.count("libnvidia-ml.so.1") == 1


def test_without_a_library_a_stream_that_ends_by_itself_has_the_code_of_that(tmp_path: Path) -> None:
    outcome = run("--json", "--interval", "0.1", "--duration", "0.2", **no_library(tmp_path))
    assert outcome.code == 4
    assert outcome.stderr.count("libnvidia-ml.so.1") == 1


def test_why_there_is_no_device_is_told_where_the_time_was_up_before_the_first_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LocalNode, "is_decided", True)
    monkeypatch.setattr(LocalNode, "sentences", ["no library"])
    monkeypatch.setattr(LocalNode, "take", lambda *_: [])  # a busy machine may have a first sample at once
    observer = Observer(interval_s=60.0, memory_interval_s=0.1)
    assert observer.next(0.0) is None
    assert observer.sentences == ["no library"]
    observer.close()


def test_a_running_agent_is_asked(pretend_driver: PretendDriver, pretend_environment: dict[str, str]) -> None:
    pretend_driver.add_device()
    with agent("--interval", "0.2") as process:
        outcome = run("--once", "--json")
        assert (outcome.code, outcome.stderr) == (0, "")
        (status,) = outcome.lines
        jsonschema.validate(status, SCHEMA)
        assert status["agent"]["pid"] == process.pid
        assert f"agent {process.pid}" in run("--once").stdout
        assert process.poll() is None


def test_the_findings_of_the_agent_come_along() -> None:
    folder = open_runtime_folder()
    lock = HubLock(folder)
    lock.acquire()
    with RunningHub(folder) as hub:
        worker = Worker(LocalWorkerLink(folder, SystemClock()), [PressureAnalyzer()])
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        hub.producer.push([make_sample(seq, used_gib=79.9) for seq in range(1, 120)])
        with connect() as client:
            wait_until(lambda: client.snapshot(0.05).findings, what="the worker's finding")
        outcome, table = run("--once", "--json"), run("--once", COLUMNS="200")
        worker.stop()
        thread.join(timeout=60)
    lock.release()
    (status,) = outcome.lines
    jsonschema.validate(status, SCHEMA)
    (finding,) = status["findings"]
    assert finding["kind"] == "pressure"
    assert finding["title"] in table.stdout
    assert finding["advice"] in " ".join(table.stdout.split())


def test_an_agent_that_knows_no_device_does_not_hide_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in no_library(tmp_path).items():
        monkeypatch.setenv(name, value)
    with agent("--interval", "0.2"):
        outcome = run("--once", "--json")
    assert outcome.code == 4
    assert "libnvidia-ml.so.1" in outcome.stderr


def test_a_stream_outlives_its_agent(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device()
    with agent("--interval", "0.1") as process, running("--json", "--interval", "0.1") as stream:
        lines = read_lines(stream.stdout)
        assert next(lines)["agent"]["pid"] == process.pid  # type: ignore[index] # JSON
        process.kill()
        process.wait()
        own = next(line for line in itertools.islice(lines, 100) if line["agent"] is None)
        assert own["devices"]


def test_no_sample_of_the_agent_is_printed_twice(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device()
    with agent("--interval", "0.7") as process, running("--json", "--interval", "0.1") as stream:
        lines = list(itertools.islice(read_lines(stream.stdout), 3))
    assert {line["agent"]["pid"] for line in lines} == {process.pid}  # type: ignore[index] # JSON
    times = [line["time"] for line in lines]
    assert len(times) == 3
    assert times == sorted(set(times))  # type: ignore[type-var] # JSON


def test_a_faster_agent_is_asked_no_more_often_than_the_interval(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device()
    with agent("--interval", "0.1"), running("--json", "--interval", "0.5") as stream:
        times = [line["time"] for line in itertools.islice(read_lines(stream.stdout), 3)]
    assert len(times) == 3
    assert all(later - earlier > 0.25 for earlier, later in itertools.pairwise(times))  # type: ignore[operator]


def test_an_agent_that_falls_silent_is_replaced_by_own_sampling_and_that_is_told(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device()
    with agent("--interval", "0.1") as process, running("--json", "--interval", "0.1") as stream:
        lines = read_lines(stream.stdout)
        assert next(lines)["agent"]
        process.send_signal(signal.SIGSTOP)
        try:
            own = next(line for line in itertools.islice(lines, 100) if line["agent"] is None)
        finally:
            process.send_signal(signal.SIGCONT)
        assert own["devices"]
        next(lines)
        stream.send_signal(signal.SIGINT)
        assert stream.stderr is not None
        assert stream.stderr.read() == (
            f"vramscope: the agent (process {process.pid}) is silent; sampling in this process from here on\n"
        )


def test_a_question_that_got_lost_is_asked_again() -> None:
    folder = open_runtime_folder()
    lock = HubLock(folder)
    lock.acquire()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as control:
        control.linger = 0
        control.bind(endpoints_of(folder).control)

        def answer_the_second() -> None:
            control.recv_multipart()
            peer, *_, data = control.recv_multipart()
            request = body_of(decode(data), Request)
            hub = HubStatus(hub_id="a", pid=1, version="test", started_s=0.0, interval_s=5.0)
            history = History().block()
            welcome = Welcome(request.request_id, sample=None, findings=(), hub=hub, history=history)
            control.send_multipart([peer, encode("welcome", "a", welcome)])

        thread = threading.Thread(target=answer_the_second, daemon=True)
        thread.start()
        with connect(timeout_s=30.0) as client:
            assert client.snapshot(0.0).hub is not None
        thread.join(timeout=60)
    lock.release()


def test_two_viewers_that_start_an_agent_at_once_share_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_runtime_folder()
    log = folder / "hub.log"
    log.write_text("what the first agent said\n")
    lock = HubLock(folder)
    lock.acquire()
    # Both looked before either had the lock.
    monkeypatch.setattr("vramscope.engine.viewer.hub_feed.is_hub_alive", lambda _: False)
    feed = HubFeed(folder)
    feed.start_hub()
    loser = feed._hub
    assert loser is not None
    assert loser.wait(timeout=60) == 0
    assert log.read_text() == "what the first agent said\n"
    lock.release()


def test_an_agent_of_a_viewer_begins_its_log_anew() -> None:
    folder = open_runtime_folder()
    (folder / "hub.log").write_text("an old story\n")
    feed = HubFeed(folder)
    feed.start_hub()
    has_joined = threading.Event()
    feed.start(lambda snapshot: has_joined.set() if snapshot.connection == "live" else None)
    assert has_joined.wait(timeout=60)
    wait_until(lambda: (folder / "hub.log").read_text() == "", what="an empty log")
    feed.stop()
    wait_until(lambda: not is_hub_alive(folder), what="the agent to leave with its viewer")


def test_an_agent_that_ends_in_order_leaves_no_socket_behind() -> None:
    folder = locate_runtime_folder()
    with agent() as process:
        assert len(list(folder.glob("*.sock"))) == 4
        process.terminate()
        assert process.wait(timeout=60) == 0
    assert {path.name for path in folder.iterdir()} <= {"hub.lock", "worker.log"}


def test_an_agent_that_does_not_answer_is_passed_over(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device()
    with agent() as process:
        process.send_signal(signal.SIGSTOP)
        try:
            outcome = run("--once", "--json")
        finally:
            process.send_signal(signal.SIGCONT)
    assert outcome.code == 0
    assert outcome.lines[0]["agent"] is None
    assert len(outcome.lines[0]["devices"]) == 1
    assert "sampling in this process instead" in outcome.stderr
