"""The Breakdown screen over a job that trains: who is asked, what is waited for, and what is followed."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from textual.pilot import Pilot

from vramscope.cli.live import read_by_words
from vramscope.engine.model import RankSample
from vramscope.engine.model.sample import ModuleMemory
from vramscope.engine.units import GIB
from vramscope.engine.viewer.snapshot import RankModules, Snapshot
from vramscope.tui.app import VramscopeApp
from vramscope.tui.modules.live_screen import LiveBreakdownScreen
from vramscope.tui.terminal.abilities import TerminalAbilities

from ..breakdown_cases import make_profile
from ..canned import FakeFeed, StillClock, make_app
from ..canned_ranks import make_job, with_ranks
from ..looks import shown_text

SnapCompare = Callable[..., bool]
SIZE = (150, 40)


def grow(memory: ModuleMemory, steps: int) -> ModuleMemory:
    """Return a profile that has gone on for some steps after its first."""
    last = memory.moments[-1]
    more = [
        msgspec.structs.replace(last, tag=f"step {number}", time_s=float(number))
        for number in range(3, 3 + steps)
    ]
    return msgspec.structs.replace(memory, moments=(*memory.moments, *more))


class Job:
    """Two ranks, and what they have answered."""

    def __init__(self, abilities: TerminalAbilities | None = None) -> None:
        self.clock = StillClock()
        self.answers: dict[int, RankModules] = {}
        self._seq = self._number = 0
        devices, ranks = make_job(2)
        self.devices, self.ranks = devices, list(ranks)
        self.feed = FakeFeed(self.snapshot())
        self.app: VramscopeApp = make_app(
            self.feed, clock=self.clock, abilities=abilities or TerminalAbilities()
        )
        self.app.tools["modules"].read = read_by_words

    def snapshot(self) -> Snapshot:
        """Return the job as it stands."""
        snapshot = with_ranks(self.devices, self.ranks)
        assert snapshot.sample is not None
        self._seq += 1
        sample = msgspec.structs.replace(snapshot.sample, seq=self._seq)
        return msgspec.structs.replace(snapshot, sample=sample, modules=tuple(self.answers.values()))

    async def tell(self, pilot: Pilot[None], seconds: float = 1.0) -> str:
        """Let the next sample come, and return the screen."""
        self.clock.now_s += seconds
        self.feed.hand_over(self.snapshot())
        await pilot.pause()
        await pilot.pause()
        return shown_text(self.app)

    def answer(self, rank: int, memory: ModuleMemory | None = None, refusal: str | None = None) -> None:
        """Let a rank answer."""
        self._number += 1
        pid = self.ranks[rank].pid
        self.answers[pid] = RankModules(pid, self._number, memory, refusal)

    def change(self, rank: int, **fields: object) -> None:
        """Let something of a rank change."""
        made: Callable[..., RankSample] = msgspec.structs.replace
        self.ranks[rank] = made(self.ranks[rank], **fields)


@asynccontextmanager
async def opened(job: Job) -> AsyncIterator[tuple[Pilot[None], LiveBreakdownScreen]]:
    """Open the screen over the job."""
    async with job.app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        await pilot.press("7")
        await pilot.pause()
        assert isinstance(job.app.screen, LiveBreakdownScreen)
        yield pilot, job.app.screen


async def test_what_is_waited_for_is_said_and_the_newest_point_is_followed() -> None:
    job = Job()
    async with opened(job) as (pilot, screen):
        pids = [rank.pid for rank in job.ranks]
        assert job.feed.modules_asked == pids[:1], "of the shown one alone: it costs something"
        text = await job.tell(pilot, 3.0)
        assert "rank 0" in text
        assert "asked 3 s ago; a step takes" in text
        assert job.feed.modules_asked == pids[:1], "the answer is waited for"
        memory = make_profile(is_simulated=True)
        job.answer(0, memory)
        text = await job.tell(pilot)
        assert "live: rank 0" in text
        assert "simulated device" in text
        assert "newest, 3 of 3: step 1" in text
        assert "activations reach 513 MiB" in text
        assert job.feed.modules_asked == [pids[0]] * 2, "who looks on asks on"
        job.answer(0, grow(memory, 2))
        assert "newest, 5 of 5: step 4" in await job.tell(pilot)
        await pilot.press("left_square_bracket", "left_square_bracket")
        job.answer(0, msgspec.structs.replace(memory, moments=grow(memory, 4).moments[1:]))
        text = await job.tell(pilot)
        assert "2 of 6: step 1, 2.0 s" in text, "the point that was looked at, though older ones have gone"
        await pilot.press("n")
        assert "newest, 6 of 6: step 6" in await job.tell(pilot)
        await pilot.press("left_square_bracket", "n", "tab")
        job.answer(1, memory)
        assert "newest, 3 of 3" in await job.tell(pilot)
        await pilot.press("tab")
        assert "newest, 6 of 6: step 6" in await job.tell(pilot)
        await pilot.press("right_square_bracket")
        assert "whole profile, 6 points" in await job.tell(pilot)
        assert not screen.is_following
        assert "Data of 10 s ago. Most" in await job.tell(pilot, 6.0)
        await pilot.press("escape")
        asked = len(job.feed.modules_asked)
        job.answer(0, memory)
        await job.tell(pilot)
        assert len(job.feed.modules_asked) == asked, "nobody looks on"


async def test_another_rank_is_held_against_the_first_at_its_newest_point() -> None:
    job = Job()
    async with opened(job) as (pilot, _):
        job.answer(0, make_profile())
        await job.tell(pilot)
        await pilot.press("tab")
        text = await job.tell(pilot)
        assert "rank 1" in text
        assert "asked" in text
        assert job.feed.modules_asked[-1] == job.ranks[1].pid
        job.answer(1, grow(make_profile(GIB * 3 // 16), 2))
        text = await job.tell(pilot)
        assert "newest, 5 of 5: step 4" in text
        assert "+2.5 GiB (+50.0 %) vs rank 0" in text


async def test_a_refusal_and_an_end_are_said() -> None:
    job = Job()
    async with opened(job) as (pilot, _):
        job.answer(0, refusal="process 1 called no module")
        text = await job.tell(pilot)
        assert "process 1 called no module; asking again every 10 s" in text
        assert len(job.feed.modules_asked) == 1
        await job.tell(pilot, 10.0)
        assert len(job.feed.modules_asked) == 2
        job.answer(0, make_profile())
        await job.tell(pilot)
        job.change(0, state="ended")
        assert "Ended, data of 7 s ago. Most" in await job.tell(pilot, 7.0)
        asked = len(job.feed.modules_asked)
        await job.tell(pilot, 30.0)
        assert len(job.feed.modules_asked) == asked
    ended = Job()
    for rank in (0, 1):
        ended.change(rank, state="ended")
    async with ended.app.run_test(size=SIZE) as pilot:
        await ended.tell(pilot)
        await pilot.press("7")
        assert "profile files" in shown_text(ended.app), "nobody trains: files are asked for"


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_pictures(size: tuple[int, int], snap_compare: SnapCompare) -> None:
    job = Job(TerminalAbilities(color_depth="none") if size == (80, 24) else None)

    async def prepare(pilot: Pilot[None]) -> None:
        await pilot.pause()
        await pilot.press("7")
        job.answer(0, grow(make_profile(is_simulated=True), 2))
        await job.tell(pilot)
        pilot.app.clear_notifications()
        await pilot.press("down", "right")
        await pilot.pause()

    assert snap_compare(job.app, terminal_size=size, run_before=prepare)
