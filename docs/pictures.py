"""Draw the pictures of the documentation from the program itself: `make pictures`.

Hub, worker and screens are the real ones; the devices are those of the pretend driver, and say that they are
simulated. Each picture takes about twenty seconds, in which its devices gather history.
"""

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.machine import Machine
from vramscope.engine.clock import SystemClock
from vramscope.engine.settings import Settings
from vramscope.engine.viewer.hub_feed import attach_or_start
from vramscope.tui.app import VramscopeApp
from vramscope.tui.live.process_signals import SignalPolicy
from vramscope.tui.terminal.abilities import TerminalAbilities

PICTURES = Path(__file__).with_name("pictures")
HISTORY_S = 45.0
SIZES = {
    "live-120x32": (2, (120, 32)),
    "live-80x24": (8, (80, 24)),
    "live-200x50": (64, (200, 50)),
    "live-40x10": (8, (40, 10)),
}
"""Name to number of devices, columns and rows."""
OTHERS = ("job", "table", "replay", "difference", "heatmap", "sweep", "plan", "breakdown", "seqlen", "roots")


async def draw(name: str, devices: int, size: tuple[int, int]) -> Path:
    """Run the live view for a while and write what it shows as SVG."""
    with Machine(devices, name="Simulated GPU 80GB") as machine:
        os.environ.update({**machine.env, "VRAMSCOPE_NODE": "node03"})
        app = VramscopeApp(
            attach_or_start(interval_s=0.25),
            settings=Settings(history_window_s=HISTORY_S),
            abilities=TerminalAbilities(),
            clock=SystemClock(),
            signal_policy=SignalPolicy(is_read_only=True),
            driver_class=None,
        )
        async with app.run_test(size=size) as pilot:
            await asyncio.sleep(HISTORY_S)
            await pilot.pause()
            picture = app.export_screenshot(title="vramscope (simulated devices)")
    path = PICTURES / f"{name}.svg"
    path.write_text(picture, encoding="utf-8")
    return path


def main() -> int:
    """Draw every picture, or those named on the command line."""
    PICTURES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or [*SIZES, *OTHERS]:
        if name == "job":
            from docs.job_pictures import draw_job

            print(*draw_job(PICTURES), sep="\n")
        elif name == "table":
            from docs.table_picture import draw_table

            print(draw_table(PICTURES))
        elif name == "replay":
            from docs.replay_picture import draw_replay

            print(asyncio.run(draw_replay(PICTURES)))
        elif name == "difference":
            from docs.difference_picture import draw_difference

            print(asyncio.run(draw_difference(PICTURES)))
        elif name == "sweep":
            from docs.sweep_screen_picture import draw_sweep_screen

            print(asyncio.run(draw_sweep_screen(PICTURES)))
        elif name == "heatmap":
            from docs.sweep_picture import draw_sweep_pictures

            print(*draw_sweep_pictures(PICTURES), sep="\n")
        elif name == "breakdown":
            from docs.breakdown_picture import draw_breakdown

            print(asyncio.run(draw_breakdown(PICTURES)))
        elif name == "seqlen":
            from docs.seqlen_picture import draw_length_picture

            print(draw_length_picture(PICTURES))
        elif name == "roots":
            from docs.root_pictures import ROOTS, draw_root

            print(*(asyncio.run(draw_root(PICTURES, root)) for root in ROOTS), sep="\n")
        elif name == "plan":
            from docs.plan_picture import draw_plan

            print(asyncio.run(draw_plan(PICTURES)))
        else:
            devices, size = SIZES[name]
            print(asyncio.run(draw(name, devices, size)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
