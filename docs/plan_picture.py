"""Draw the picture of a plan: GPT-1.5B in two to eight stages on devices of 12 GiB."""

from pathlib import Path

from vramscope.cli.plan_screen import present_words
from vramscope.engine.clock import SystemClock
from vramscope.tui.plan.planned import JobDefaults
from vramscope.tui.plan.screen import view_plan
from vramscope.tui.screens.terminal_app import TerminalApp
from vramscope.tui.terminal.abilities import TerminalAbilities

MODEL, FLAGS = "gpt-1.5b", "2,4,6,8 --strategy exact,uniform,balanced_memory --capacity 12GiB"
SIZE = (120, 32)


async def draw_plan(pictures: Path) -> Path:
    """Make the plan, and write what the screen shows as SVG."""
    view = view_plan(lambda: present_words(f"{MODEL} {FLAGS}", JobDefaults()), model=MODEL)
    app = TerminalApp(TerminalAbilities(), view=view, clock=SystemClock(), driver_class=None)
    async with app.run_test(size=SIZE) as pilot:
        while view.screen.candidate is None:
            await pilot.pause(0.05)
        await pilot.press("enter")
        await pilot.pause()
        picture = app.export_screenshot(title="vramscope (estimates)")
    path = pictures / f"plan-{SIZE[0]}x{SIZE[1]}.svg"
    path.write_text(picture, encoding="utf-8")
    return path
