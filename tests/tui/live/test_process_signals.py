"""Signalling: the very process that was shown, after a question, or none."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec
import psutil
import pytest

from tests.tui.canned import NODE, FakeFeed, make_app, make_device, make_sample, make_snapshot
from tests.tui.looks import notices
from vramscope.engine.model import ProcessReading, Sample
from vramscope.tui.app import VramscopeApp
from vramscope.tui.live.dialogs import SignalScreen
from vramscope.tui.live.node_screen import CHOOSE_FIRST
from vramscope.tui.live.process_signals import ProcessHandle, SignalPolicy, SignalRefused, refuse_by_policy

SLEEPER = "import signal, sys; print('ready', flush=True); signal.pause()"


@pytest.fixture
def job() -> Iterator[subprocess.Popen[str]]:
    """Run a process that waits for signals."""
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def reading_of(job: subprocess.Popen[str], **changes: object) -> ProcessReading:
    reading = ProcessReading(
        job.pid, "user1", "python train.py", 1 << 30, started_s=psutil.Process(job.pid).create_time()
    )
    return msgspec.structs.replace(reading, **changes)


def app_with(process: ProcessReading, policy: SignalPolicy | None = None) -> VramscopeApp:
    device = msgspec.structs.replace(make_device(0), processes=(process,))
    return make_app(FakeFeed(make_snapshot(sample=make_sample((device,)))), policy=policy)


async def wait_for_notice(app: VramscopeApp, text: str) -> None:
    import asyncio

    deadline = time.monotonic() + 60
    while not any(text in notice for notice in notices(app)):
        assert time.monotonic() < deadline, notices(app)
        await asyncio.sleep(0.01)


async def test_y_sends_term_and_the_exit_is_told(job: subprocess.Popen[str]) -> None:
    app = app_with(reading_of(job))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("tab", "K")
        assert isinstance(app.screen, SignalScreen)
        text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        for fact in (f"Signal process {job.pid}?", "user1", "H100", "1.0 GiB", "python train.py", "TERM"):
            assert fact in text
        await pilot.press("y")
        await wait_for_notice(app, f"Process {job.pid} exited.")
        assert f"SIGTERM sent to process {job.pid}." in notices(app)
    assert job.wait(60) == -signal.SIGTERM


@pytest.mark.parametrize(("keys", "number"), [(("up", "y"), signal.SIGINT), (("down", "y"), signal.SIGKILL)])
async def test_other_signals_can_be_chosen(
    job: subprocess.Popen[str], keys: tuple[str, ...], number: signal.Signals
) -> None:
    app = app_with(reading_of(job))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("tab", "K", *keys)
        await wait_for_notice(app, f"{number.name} sent")
    assert job.wait(60) in {-number, 1}


@pytest.mark.parametrize("key", ["escape", "n", "q", "enter"])
async def test_every_other_key_sends_nothing(job: subprocess.Popen[str], key: str) -> None:
    app = app_with(reading_of(job))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("tab", "K", key)
        await pilot.pause()
    assert job.poll() is None
    assert notices(app) == []


@pytest.mark.parametrize(
    ("changes", "policy", "reason"),
    [
        ({}, SignalPolicy(is_read_only=True), "--read-only"),
        ({}, SignalPolicy(local_node="other"), f"runs on {NODE}"),
        ({"location": "outside"}, SignalPolicy(), "runs outside this container"),
        (
            {"location": "outside", "command": None, "started_s": None},
            SignalPolicy(),
            "runs on the host, outside this container",
        ),
        ({"location": "gone"}, SignalPolicy(), "has exited; the driver"),
        ({"started_s": 1.0}, SignalPolicy(), "now belongs to another process"),
        ({"pid": 2**22 + 1}, SignalPolicy(), "has exited"),
    ],
)
async def test_refusals_say_why(
    job: subprocess.Popen[str], changes: dict[str, object], policy: SignalPolicy, reason: str
) -> None:
    app = app_with(reading_of(job, **changes), policy)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("tab", "K")
        assert app.screen is app.live
        assert reason in notices(app)[0]
    assert job.poll() is None


def test_a_recording_is_not_signalled() -> None:
    assert "recording" in (refuse_by_policy(ProcessReading(1), NODE, True, SignalPolicy()) or "")


def test_a_process_that_exits_before_the_answer_is_told(job: subprocess.Popen[str]) -> None:
    handle = ProcessHandle(reading_of(job))
    job.kill()
    job.wait(60)
    with pytest.raises(SignalRefused, match="has exited; nothing was sent"):
        handle.send(signal.SIGTERM)
    handle.close()


def test_a_process_of_somebody_else_is_refused_with_a_sentence() -> None:
    if os.geteuid() == 0:
        pytest.skip("root may signal every process")
    with pytest.raises(SignalRefused, match="no permission to signal process 1"):
        ProcessHandle(ProcessReading(1)).send(signal.SIGTERM)


async def test_without_a_process_there_is_nothing_to_signal() -> None:
    app = make_app(FakeFeed(make_snapshot(sample=make_sample((make_device(0, processes=0),)))))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("tab", "K")
        assert notices(app) == ["No process is listed."]


@pytest.mark.parametrize("keys", [("K",), ("tab", "escape", "K"), ("tab", "tab", "K")])
async def test_a_row_that_is_not_seen_to_be_marked_is_not_signalled(
    job: subprocess.Popen[str], keys: tuple[str, ...]
) -> None:
    app = app_with(reading_of(job))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(*keys)
        assert app.screen is app.live
        assert notices(app) == [CHOOSE_FIRST.format("Tab")]
    assert job.poll() is None


async def test_the_marked_signal_has_a_mark_and_not_a_colour_alone(job: subprocess.Popen[str]) -> None:
    app = app_with(reading_of(job))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("tab", "K")
        await pilot.pause()
        for key, name in (("down", "KILL"), ("up", "TERM"), ("k", "INT"), ("j", "TERM")):
            await pilot.press(key)
            await pilot.pause()
            lines = [strip.text for strip in app.screen._compositor.render_strips()]
            assert [line.split("▸ ")[1].split()[0] for line in lines if "▸" in line] == [name]


@pytest.fixture
def jobs() -> Iterator[list[subprocess.Popen[str]]]:
    """Run three processes that wait for signals."""
    command = [sys.executable, "-c", SLEEPER]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()
    yield started
    for process in started:
        process.kill()
        process.communicate()


def app_with_all(*processes: ProcessReading) -> VramscopeApp:
    device = msgspec.structs.replace(make_device(0), processes=processes)
    return make_app(FakeFeed(make_snapshot(sample=make_sample((device,)))))


def marked_pids(app: VramscopeApp) -> set[int]:
    return {row.process.pid for row in app.live.processes.marked_rows}


async def test_marked_processes_are_signalled_together_after_one_question(
    jobs: list[subprocess.Popen[str]],
) -> None:
    first, second, third = (reading_of(job, used_bytes=300 - at) for at, job in enumerate(jobs))
    app = app_with_all(first, second, third)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("tab", "m", "down", "m")
        assert marked_pids(app) == {first.pid, third.pid}
        assert [app.live.processes.render_line(y).text[0] for y in (1, 2, 3)] == ["✓", " ", "✓"]
        assert "2 of 3 marked" in app.live.processes.render_line(0).text
        await pilot.press("K")
        await pilot.pause()
        text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "Signal 2 processes?" in text
        assert all(str(pid) in text for pid in (first.pid, third.pid))
        await pilot.press("y")
        await wait_for_notice(app, "All 2 processes exited.")
        assert f"SIGTERM sent to 2 processes: {first.pid}, {third.pid}." in notices(app)
        assert marked_pids(app) == set()
    assert [jobs[0].wait(60), jobs[1].poll(), jobs[2].wait(60)] == [-signal.SIGTERM, None, -signal.SIGTERM]


async def test_a_marked_process_that_cannot_be_signalled_is_named_in_the_question(
    jobs: list[subprocess.Popen[str]],
) -> None:
    app = app_with_all(reading_of(jobs[0], used_bytes=300), ProcessReading(2**22 + 1, used_bytes=200))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("tab", "m", "m", "K")
        await pilot.pause()
        text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert f"Signal process {jobs[0].pid}?" in text
        assert f"not: process {2**22 + 1} has exited" in text
        await pilot.press("escape")
        assert len(marked_pids(app)) == 2, "nothing was sent, so the marks stay"
    assert jobs[0].poll() is None


async def test_marks_stay_with_their_processes_and_escape_removes_them() -> None:
    feed = FakeFeed(make_snapshot(sample=sample_of({1: 300, 2: 200, 3: 100})))
    app = make_app(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("tab", "m", "m")
        assert marked_pids(app) == {1, 2}
        feed.hand_over(make_snapshot(seq=2, sample=sample_of({2: 50, 3: 100, 4: 900})))
        await pilot.pause()
        assert marked_pids(app) == {2}, "one has ended"
        await pilot.press("escape")
        assert marked_pids(app) == set()
        assert app.focused is app.live.processes
        await pilot.press("m", "up", "m")
        assert marked_pids(app) == set(), "a second time removes the mark"


def sample_of(used_by_pid: dict[int, int]) -> Sample:
    processes = tuple(ProcessReading(pid, used_bytes=used) for pid, used in used_by_pid.items())
    return make_sample((msgspec.structs.replace(make_device(0), processes=processes),))
