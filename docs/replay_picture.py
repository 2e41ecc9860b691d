"""Draw the picture of a replay: the recording that is shipped, at its first finding."""

import asyncio
from pathlib import Path

from vramscope.cli.live import EXAMPLE
from vramscope.cli.replay import ReplayFiles
from vramscope.engine.clock import SystemClock
from vramscope.engine.plugins import make_analyzers
from vramscope.engine.replay.feed import ReplayFeed
from vramscope.engine.replay.player import ReplayOptions
from vramscope.engine.settings import Settings
from vramscope.tui.app import VramscopeApp
from vramscope.tui.live.process_signals import SignalPolicy
from vramscope.tui.terminal.abilities import TerminalAbilities

SIZE = (120, 32)
SETTLED_S = 4.0
"""Until the moment that was jumped to has its verdict."""


async def draw_replay(pictures: Path) -> Path:
    """Go to the first finding, and write what the screen shows as SVG."""
    tapes = ReplayFiles([EXAMPLE]).open_tapes()
    feed = ReplayFeed(
        lambda: tapes, make_analyzers=lambda: make_analyzers().made, options=ReplayOptions(1.0, False)
    )
    app = VramscopeApp(
        feed,
        settings=Settings(),
        abilities=TerminalAbilities(),
        clock=SystemClock(),
        signal_policy=SignalPolicy(is_read_only=True, is_replay=True),
        driver_class=None,
    )
    async with app.run_test(size=SIZE) as pilot:
        await asyncio.sleep(SETTLED_S)
        for key in ("space", "n"):
            await pilot.press(key)
            await asyncio.sleep(SETTLED_S)
        await pilot.pause()
        picture = app.export_screenshot(title="vramscope replay example.vscope (a simulated device)")
    path = pictures / f"replay-{SIZE[0]}x{SIZE[1]}.svg"
    path.write_text(picture, encoding="utf-8")
    return path
