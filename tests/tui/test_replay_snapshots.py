"""Pictures of a replay; look at them when they change."""

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.engine.replay.recordings import START_S, record
from tests.tui.replays import make_replay, press_until


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=["80x24", "200x50"])
def test_replay(size: tuple[int, int], tmp_path: Path, snap_compare: Callable[..., bool]) -> None:
    app = make_replay(record(tmp_path / "run.vscope"))

    async def go(pilot: Pilot[None]) -> None:
        await press_until(
            pilot, ["space", "g", *"40%", "enter"], lambda it: it.is_paused and it.position_s == START_S + 119
        )

    assert snap_compare(app, terminal_size=size, run_before=go)
