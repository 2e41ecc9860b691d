"""Draw the picture of the sweep screen: the sweep of the original, as the tests write it."""

import asyncio
import tempfile
from pathlib import Path

from tests.analyzers.planning.sweep.trees import write_tree
from vramscope.engine.clock import SystemClock
from vramscope.sweeps import index_sweeps
from vramscope.tui.screens.terminal_app import TerminalApp
from vramscope.tui.sweep.index_screen import view_sweeps
from vramscope.tui.sweep.screen import SweepScreen, SweepView
from vramscope.tui.terminal.abilities import TerminalAbilities

SIZE = (120, 32)
_STEP_S = 0.05


async def draw_sweep_screen(pictures: Path) -> Path:
    """Read the sweeps and write what the screen shows as SVG.

    Args:
        pictures: Folder of the pictures.
    """
    with tempfile.TemporaryDirectory() as name:
        index = index_sweeps([write_tree(Path(name))], 80.0)
    view = view_sweeps(lambda report: index, [], begin=SweepView("485B_8192gpus_tplimit8"))
    app = TerminalApp(TerminalAbilities(), view=view, clock=SystemClock(), driver_class=None)
    async with app.run_test(size=SIZE) as pilot:
        while not isinstance(app.screen, SweepScreen):
            await asyncio.sleep(_STEP_S)
        await pilot.pause()
        picture = app.export_screenshot(title="vramscope (one GPU played each rank)")
    path = pictures / f"sweep-{SIZE[0]}x{SIZE[1]}.svg"
    path.write_text(picture, encoding="utf-8")
    return path
