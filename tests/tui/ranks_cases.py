"""Situations in which training processes report, as the tests of pictures show them."""

from collections.abc import Callable

import msgspec

from tests.tui.canned import NOON_S, UNICODE_COLOR, FakeFeed, make_app, make_finding, make_snapshot
from tests.tui.canned_ranks import (
    history_of,
    make_allocator,
    make_crowd,
    make_job,
    make_on_processors,
    make_rank,
    make_segments,
    make_simulated,
    make_trained,
    with_ranks,
)
from vramscope.engine.model import PhaseReading
from vramscope.engine.settings import Settings
from vramscope.engine.units import GIB
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.app import VramscopeApp
from vramscope.tui.terminal.abilities import TerminalAbilities


def snapshot_troubled() -> Snapshot:
    """Return a job of which one rank is silent, one has ended, and one met the limit of its device."""
    devices, ranks = make_job(8)
    ranks[1] = msgspec.structs.replace(
        ranks[1], state="stale", age_s=12.0, reason="the process holds the interpreter lock"
    )
    ranks[2] = msgspec.structs.replace(ranks[2], state="ended", reason="its probe was detached")
    ranks[3] = make_rank(3, allocator=make_allocator(70.0, 2.0, retries=3, ooms=1))
    devices[3] = make_trained(3, [ranks[3]])
    return with_ranks(devices, ranks, findings=(make_finding(3), make_finding(1, closed_s=NOON_S - 20)))


def snapshot_mapped() -> Snapshot:
    """Return a job of one rank whose segment map has come."""
    maps = (make_segments(4000, "GPU-0000", with_stacks=True),)
    return with_ranks(*make_job(1), segment_maps=maps, findings=(make_finding(0),))


def snapshot_phased() -> Snapshot:
    """Return a job of one rank that names the phases of its steps."""
    devices, _ = make_job(1)
    levels = {
        "create the model": (1, 0.0, 12.0, 12.4, True),
        "forward": (1842, 36.0, 47.5, 47.5, False),
        "backward": (1841, 47.5, 42.0, 50.0, True),
        "optimizer": (1841, 42.0, 36.0, 43.1, False),
    }
    phases = tuple(
        PhaseReading(
            name,
            calls,
            NOON_S,
            0.3,
            allocated_before_bytes=int(before * GIB),
            reserved_before_bytes=int((before + 6) * GIB),
            allocated_after_bytes=int(after * GIB),
            reserved_after_bytes=int((after + 6) * GIB),
            peak_bytes=int(most * GIB),
            is_peak_exact=is_exact,
            most_bytes=int(most * GIB),
            is_most_exact=is_exact,
        )
        for name, (calls, before, after, most, is_exact) in levels.items()
    )
    return with_ranks(devices, [make_rank(0, phases=phases)])


def snapshot_job() -> Snapshot:
    """Return a job of eight ranks on eight devices."""
    return with_ranks(*make_job(8), findings=(make_finding(4),))


CASES: dict[str, tuple[Callable[[], Snapshot], TerminalAbilities]] = {
    "one-rank": (lambda: with_ranks(*make_job(1)), UNICODE_COLOR),
    "eight-ranks": (snapshot_job, UNICODE_COLOR),
    "mapped": (snapshot_mapped, UNICODE_COLOR),
    "phases": (snapshot_phased, UNICODE_COLOR),
    "mapped-mono": (snapshot_mapped, TerminalAbilities(color_depth="none")),
    "mapped-ascii": (snapshot_mapped, TerminalAbilities(is_ascii=True, color_depth="16")),
    "two-on-one": (lambda: with_ranks(*make_crowd()), UNICODE_COLOR),
    "simulated": (lambda: with_ranks(*make_simulated()), UNICODE_COLOR),
    "processors": (lambda: with_ranks(*make_on_processors()), UNICODE_COLOR),
    "no-probe": (lambda: make_snapshot(2), UNICODE_COLOR),
    "troubled": (snapshot_troubled, UNICODE_COLOR),
    "mono": (snapshot_job, TerminalAbilities(color_depth="none")),
    "ascii": (snapshot_job, TerminalAbilities(is_ascii=True, color_depth="16")),
}
"""What is shown, and on what terminal."""


def app_for(case: str, settings: Settings | None = None) -> VramscopeApp:
    """Return the application in a situation, with what came before it."""
    snapshot, abilities = CASES[case]
    feed = FakeFeed(snapshot(), history=history_of(snapshot()))
    return make_app(feed, abilities=abilities, settings=settings)
