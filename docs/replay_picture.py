"""Draw the picture of a replay: the job of `vramscope demo`, recorded until it is out of memory."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from vramscope.cli.replay import ReplayFiles
from vramscope.engine.clock import SystemClock
from vramscope.engine.plugins import make_analyzers
from vramscope.engine.replay.feed import ReplayFeed
from vramscope.engine.replay.player import ReplayOptions
from vramscope.engine.settings import Settings
from vramscope.tui.app import VramscopeApp
from vramscope.tui.live.process_signals import SignalPolicy
from vramscope.tui.terminal.abilities import TerminalAbilities

WORKLOADS = Path(__file__).resolve().parents[1] / "engine" / "workloads"
SIZE = (120, 32)
STEPS = 100
SETTLED_S = 4.0
"""Until the moment that was jumped to has its verdict."""


def record(path: Path) -> None:
    """Run the job beyond its error, from a folder with a short name, and record it."""
    folder = path.parent
    for script in ("leaking_gpt.py", "small_gpt.py"):
        shutil.copy(WORKLOADS / script, folder)
    words = (
        "run",
        "--simulate",
        "1.5GiB",
        "--job",
        "small-gpt",
        f"--record={path}",
        "--",
        "python",
        "leaking_gpt.py",
    )
    variables = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "VRAMSCOPE_RUNTIME_DIR": str(folder / "run"),
        "VRAMSCOPE_FLIGHT_DIR": str(folder),
        "VRAMSCOPE_NODE": "node03",
        "OMP_NUM_THREADS": "1",
    }
    subprocess.run(
        ["vramscope", *words, "--pace", "0.4", "--evaluate", "1", "--steps", str(STEPS)],
        check=True,
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
    )


async def draw_replay(pictures: Path) -> Path:
    """Record the job, go to the first finding, and write what the screen shows as SVG."""
    with tempfile.TemporaryDirectory() as name:
        recording = Path(name) / "run.vscope"
        record(recording)
        with ReplayFiles([recording]).prepared() as prepared:
            feed = ReplayFeed(
                prepared, make_analyzers=lambda: make_analyzers().made, options=ReplayOptions(1.0, False)
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
                picture = app.export_screenshot(title="vramscope replay run.vscope (a simulated device)")
    path = pictures / f"replay-{SIZE[0]}x{SIZE[1]}.svg"
    path.write_text(picture, encoding="utf-8")
    return path
