"""Attaching for a viewer: by the agent of the node, a few at a time, and each wish is answered."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from vramscope.engine.agent.attachments import (
    ENDS_WITHIN_S,
    MOST_AT_ONCE,
    MOST_WAITING,
    Answered,
    AttachmentDesk,
)
from vramscope.engine.jobs.background import find_or_start_hub
from vramscope.engine.viewer.client import Client, connect
from vramscope.engine.viewer.snapshot import RankAttachment
from vramscope.engine.wire.endpoints import holder_pid

from ...waiting import wait_until
from ..jobs.targets import BUSY, make_stub_torch, running


class Clock:
    now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s


def say(words: str) -> Callable[[int, Path], "subprocess.Popen[bytes]"]:
    """Return what starts a shell in the place of `vramscope attach`; `$1` is the process."""

    def start(pid: int, _: Path) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        return subprocess.Popen(["sh", "-c", words, "sh", str(pid)], stdout=pipe, stderr=pipe)

    return start


@pytest.fixture
def folder(private_environment: Path, tmp_path: Path) -> Iterator[Path]:
    from vramscope.engine.paths import open_runtime_folder

    folder = open_runtime_folder()
    yield folder
    pid = holder_pid(folder)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the end of the agent")


def wait_for_answer(client: Client, number: int) -> RankAttachment:
    def find() -> tuple[RankAttachment, ...]:
        return client.snapshot(timeout_s=0.2).attachments

    wait_until(lambda: len(find()) == number, 60.0, "the answer")
    return find()[0]


@pytest.mark.waits
def test_a_viewer_has_its_agent_attach_and_detach(folder: Path, tmp_path: Path) -> None:
    script = f"import torch\nprint('ready')\n{BUSY}"
    with running(script, tmp_path, PYTHONPATH=make_stub_torch(tmp_path)) as target:
        target.wait_for("ready")
        find_or_start_hub(folder)
        started_s = psutil.Process(target.pid).create_time()
        with connect(folder) as client:
            client.ask_attach(target.pid, started_s - 60)
            answer = wait_for_answer(client, 1)
            assert (
                answer.refusal
                == f"process {target.pid} has exited, or its id belongs to another process by now"
            )
            client.ask_attach(target.pid, started_s)
            answer = wait_for_answer(client, 2)
            assert (answer.pid, answer.verb, answer.refusal) == (target.pid, "attach", None)
            assert re.fullmatch(rf"process {target.pid} reports \(attached in .*\)", answer.outcome)
            client.ask_detach(target.pid)
            answer = wait_for_answer(client, 3)
            assert (answer.verb, answer.refusal) == ("detach", None)
            client.ask_attach(os.getppid(), None)
            answer = wait_for_answer(client, 4)
            assert answer.refusal is not None
        assert target.process.poll() is None


def take_all(desk: AttachmentDesk, count: int) -> list[Answered]:
    answers: list[Answered] = []

    def take() -> bool:
        answers.extend(desk.take_answers())
        return len(answers) >= count

    wait_until(take, what="the answers")
    return answers


def test_few_run_at_a_time_and_all_are_answered(tmp_path: Path) -> None:
    words = (
        'test $1 = 3 && { echo "vramscope: no such process" >&2; exit 2; }; echo; echo "process $1 reports"'
    )
    started: list[int] = []
    running_now: list[subprocess.Popen[bytes]] = []

    def start(pid: int, folder: Path) -> "subprocess.Popen[bytes]":
        assert sum(process.poll() is None for process in running_now) < MOST_AT_ONCE
        started.append(pid)
        running_now.append(say(words)(pid, folder))
        return running_now[-1]

    desk = AttachmentDesk(tmp_path, Clock(), start)
    for pid in range(1, 6):
        assert desk.begin(pid, None, (b"peer", pid)) is None
    answers = {it.asker[1]: (it.outcome, it.refusal) for it in take_all(desk, 5)}
    assert started == [1, 2, 3, 4, 5]
    assert answers == {
        **{pid: (f"process {pid} reports", None) for pid in (1, 2, 4, 5)},
        3: ("", "no such process"),
    }


def test_one_that_never_ends_is_given_up_and_too_many_are_refused(tmp_path: Path) -> None:
    clock = Clock()
    desk = AttachmentDesk(tmp_path, clock, say("exec sleep 600"))
    refusals = [desk.begin(1, None, (b"peer", it)) for it in range(MOST_AT_ONCE + MOST_WAITING + 1)]
    assert [it for it in refusals if it] == [
        "the agent has too many processes to attach to already; try again"
    ]
    clock.now_s += ENDS_WITHIN_S + 1
    answers = list(desk.take_answers())
    assert [it.refusal for it in answers] == ["attaching took more than 60 s"] * MOST_AT_ONCE
    desk.stop()
    assert list(desk.take_answers()) == []
    assert desk.begin(None, None, (b"peer", 1)) == "attaching needs the id of a process"
