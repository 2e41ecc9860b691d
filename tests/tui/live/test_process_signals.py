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
from vramscope.engine.model import ProcessReading
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
        assert notices(app) == ["No process to signal."]


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
