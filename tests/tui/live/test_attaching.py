"""Attaching from the live view: to the process that is marked, after one question, and what came of it."""

import asyncio
import os
from collections.abc import Callable
from typing import NoReturn

import msgspec
import pytest
from textual.pilot import Pilot

from tests.tui.canned import NODE, FakeFeed, StillClock
from tests.tui.canned_ranks import make_job, with_ranks
from tests.tui.looks import notices, shown_text
from vramscope.engine.errors import AttachRefusedError, VramscopeError
from vramscope.engine.jobs import attach
from vramscope.engine.model import ProcessReading
from vramscope.engine.settings import AttachPolicy, Settings
from vramscope.engine.sources.processes import find_user_name
from vramscope.engine.viewer.snapshot import RankAttachment, Snapshot
from vramscope.tui.app import VramscopeApp
from vramscope.tui.controls.attach import NO_CANDIDATE, NO_PROCESS, READ_ONLY
from vramscope.tui.live.attach_questions import AttachQuestion
from vramscope.tui.live.process_signals import SignalPolicy
from vramscope.tui.screens.dialogs import ChoiceScreen
from vramscope.tui.terminal.abilities import TerminalAbilities
from vramscope.tui.widgets.one_line import KeyLine

SIZE = (150, 40)
PIDS = (51001, 51002)


class AttachingFakeFeed(FakeFeed):
    """A feed that passes wishes on."""

    def __init__(self, *snapshots: Snapshot) -> None:
        super().__init__(*snapshots)
        self.attached: list[tuple[int, float | None]] = []
        self.detached: list[int] = []

    def attach(self, pid: int, started_s: float | None) -> None:
        self.attached.append((pid, started_s))

    def detach(self, pid: int) -> None:
        self.detached.append(pid)


def make_app(feed: FakeFeed, policy: AttachPolicy = "never", **signals: object) -> VramscopeApp:
    return VramscopeApp(
        feed,
        settings=Settings(attach=policy),
        abilities=TerminalAbilities(),
        clock=StillClock(),
        signal_policy=SignalPolicy(**signals),  # type: ignore[arg-type]  # what a test says fits
        driver_class=None,
    )


def without_reports(**changes: object) -> Snapshot:
    """Return two devices with a process each, of this user, that do not report."""
    devices, _ = make_job(2)
    processes = [
        ProcessReading(
            **{
                "pid": pid,
                "user": find_user_name(os.geteuid()),
                "command": f"python train_{pid}.py",
                "used_bytes": 1 << 33,
                "location": "here",
                "started_s": float(pid),
                **changes,
            }  # type: ignore[arg-type]
        )
        for pid in PIDS
    ]
    return with_ranks(
        [
            msgspec.structs.replace(device, processes=(process,), allocator=None)
            for device, process in zip(devices, processes, strict=True)
        ],
        [],
    )


def possible(monkeypatch: pytest.MonkeyPatch, check: Callable[[int], object] = lambda _: None) -> None:
    monkeypatch.setattr(attach, "check_attachable", check)
    monkeypatch.setattr(attach, "has_torch", lambda pid: pid != 51003)


async def until(pilot: Pilot[None], is_met: Callable[[], object]) -> None:
    """Let the application run until a thread of its own has answered."""
    async with asyncio.timeout(30):
        while not is_met():
            await pilot.pause(0.01)


async def test_the_marked_process_is_attached_to_after_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    possible(monkeypatch)
    snapshot = without_reports()
    feed = AttachingFakeFeed(snapshot)
    app = make_app(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "a")
        await until(pilot, lambda: isinstance(app.screen, AttachQuestion))
        text = shown_text(app)
        assert "Attach to process 51001?" in text
        assert "undo press a again, or `vramscope detach 51001`" in text
        await pilot.press("enter", "escape")
        assert feed.attached == []
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, AttachQuestion))
        await pilot.press("y")
        assert feed.attached == [(51001, 51001.0)]
        done = RankAttachment(51001, 3, "attach", outcome="process 51001 reports (attached in 0.4 s)")
        refused = RankAttachment(51002, 4, "attach", refusal="process 51002 (cat) does not run Python")
        for _ in range(2):
            feed.hand_over(msgspec.structs.replace(snapshot, attachments=(refused, done)))
            await pilot.pause()
        said = [
            "Process 51001 reports (attached in 0.4 s).",
            "Not attached: process 51002 (cat) does not run Python.",
        ]
        assert [it for it in notices(app) if it in said] == said


async def test_with_the_devices_focused_the_only_process_without_a_probe_is_asked_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    possible(monkeypatch)
    monkeypatch.setattr(attach, "has_torch", lambda pid: pid == PIDS[1])
    feed = AttachingFakeFeed(without_reports())
    app = make_app(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, AttachQuestion))
        assert "Attach to process 51002?" in shown_text(app)
        await pilot.press("y")
        assert feed.attached == [(51002, 51002.0)]


async def test_with_the_devices_focused_one_of_several_processes_or_all_are_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    possible(monkeypatch)
    feed = AttachingFakeFeed(without_reports())
    app = make_app(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        assert "Attach to which process?" in shown_text(app)
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: isinstance(app.screen, AttachQuestion))
        assert "Attach to process 51002?" in shown_text(app)
        await pilot.press("escape", "a")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, AttachQuestion))
        assert "Attach to 2 processes of yours with PyTorch?" in shown_text(app)
        await pilot.press("y")
        assert feed.attached == [(51001, 51001.0), (51002, 51002.0)]


@pytest.mark.parametrize(
    ("local_node", "changes", "said"),
    [
        (None, {"user": "somebody else"}, NO_CANDIDATE),
        (None, {"pid": 51003}, NO_CANDIDATE),
        ("", {"location": "gone"}, NO_PROCESS),
    ],
)
async def test_without_a_process_to_attach_to_that_is_said(
    monkeypatch: pytest.MonkeyPatch, local_node: str | None, changes: dict[str, object], said: str
) -> None:
    possible(monkeypatch)
    app = make_app(AttachingFakeFeed(without_reports(**changes)), local_node=local_node)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("a")
        await until(pilot, lambda: notices(app))
        assert notices(app) == [said]


async def test_the_processes_of_another_node_are_chosen_from_as_far_as_they_are_known() -> None:
    feed = AttachingFakeFeed(without_reports(user="somebody else"))
    app = make_app(feed, local_node="")
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("a")
        await pilot.pause()
        assert f"Attach to which process of {NODE}?" in shown_text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert f"Attach to 2 processes of {NODE}?" in shown_text(app)


async def test_the_screen_of_a_device_without_a_probe_names_the_key() -> None:
    for feed, words in (
        (AttachingFakeFeed(without_reports()), "Press a to attach to one that runs, or start it with"),
        (FakeFeed(without_reports()), "or attach to a running one with `vramscope attach PID`"),
    ):
        app = make_app(feed)
        async with app.run_test(size=SIZE) as pilot:
            await pilot.press("2")
            await pilot.pause()
            assert words in shown_text(app)


async def test_a_process_that_reports_is_let_go_by_the_same_key() -> None:
    devices, ranks = make_job(2)
    feed = AttachingFakeFeed(with_ranks(devices, ranks))
    app = make_app(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "a")
        await pilot.pause()
        assert f"Detach from process {ranks[1].pid}?" in shown_text(app)  # has the most memory
        await pilot.press("y")
        assert (feed.attached, feed.detached) == ([], [ranks[1].pid])


async def test_why_it_is_impossible_is_said_instead_of_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> NoReturn:
        raise AttachRefusedError("process 51001 belongs to user ann: run `vramscope attach 51001` as ann")

    possible(monkeypatch, refuse)
    app = make_app(AttachingFakeFeed(without_reports()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "a")
        said = "Not attached: process 51001 belongs to user ann: run `vramscope attach"
        await until(pilot, lambda: any(it.startswith(said) for it in notices(app)))
        assert not isinstance(app.screen, AttachQuestion)


@pytest.mark.parametrize(
    ("changes", "signals", "said"),
    [
        ({}, {"is_read_only": True}, READ_ONLY),
        ({"location": "gone"}, {}, "Process 51001 has exited; the driver or a child process still holds its"),
        (
            {"location": "outside"},
            {},
            "Process 51001 runs outside this container: run `vramscope attach PID` t",
        ),
    ],
)
async def test_where_nobody_can_attach_the_reason_is_said(
    changes: dict[str, object], signals: dict[str, object], said: str
) -> None:
    app = make_app(AttachingFakeFeed(without_reports(**changes)), "mine", **signals)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "a")
        assert notices(app)[-1].startswith(said)


async def test_a_process_of_another_node_is_left_to_the_agent_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(_: int) -> NoReturn:
        raise VramscopeError("looked at a process of this machine")

    possible(monkeypatch, check)
    feed = AttachingFakeFeed(without_reports())
    app = make_app(feed, "mine", local_node="")
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "a")
        await pilot.pause()
        assert f"Attach to process 51001 of {NODE}?" in shown_text(app)
        await pilot.press("y")
        assert feed.attached == [(51001, 51001.0)]


async def test_a_feed_that_cannot_attach_does_not_offer_it() -> None:
    app = make_app(FakeFeed(without_reports()), "mine")
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "a")
        await pilot.pause()
        assert notices(app) == []


async def test_all_own_processes_with_pytorch_are_offered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    possible(monkeypatch)
    snapshot = without_reports()
    feed = AttachingFakeFeed(snapshot)
    app = make_app(feed, "ask")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: isinstance(app.screen, AttachQuestion))
        assert "Attach to 2 processes of yours with PyTorch? 51001 python train_51001.py" in shown_text(app)
        await pilot.press("y")
        assert feed.attached == [(51001, 51001.0), (51002, 51002.0)]
        feed.hand_over(without_reports(started_s=7.0))
        await pilot.pause()
        assert not isinstance(app.screen, AttachQuestion)


async def test_own_processes_are_attached_to_without_a_question_if_that_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    possible(monkeypatch)
    feed = AttachingFakeFeed(without_reports(user="somebody else"))
    app = make_app(feed, "mine")
    async with app.run_test(size=SIZE) as pilot:
        feed.hand_over(without_reports(pid=51003, started_s=5.0))  # without PyTorch
        await pilot.pause()
        feed.hand_over(without_reports(started_s=7.0))
        await until(pilot, lambda: feed.attached)
        assert feed.attached == [(51001, 7.0), (51002, 7.0)]
        feed.hand_over(without_reports(started_s=7.0))
        await pilot.pause()
        assert len(feed.attached) == 2


async def test_a_wide_pane_names_further_keys_in_the_order_of_their_use() -> None:
    app = make_app(AttachingFakeFeed(without_reports()))
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.pause()
        assert "K signal  a attach  c columns  t tree" in app.live.query_one(KeyLine).text
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        narrow = app.live.query_one(KeyLine).text
        assert "attach" not in narrow
        assert "columns" not in narrow


async def test_a_key_that_does_nothing_here_is_not_named() -> None:
    app = make_app(FakeFeed(without_reports()))
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.pause()
        text = app.live.query_one(KeyLine).text
        assert "c columns" in text
        assert "attach" not in text
