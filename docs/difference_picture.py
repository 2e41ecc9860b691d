"""Draw the picture of two runs: the job of `vramscope demo`, recorded twice on a simulated card.

The second run evaluates four sequences where the first evaluates one, and keeps them. It takes some minutes.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from vramscope.cli.verbs.diff import compare_files
from vramscope.engine.clock import SystemClock
from vramscope.tui.diff.screen import view_difference
from vramscope.tui.screens.terminal_app import TerminalApp
from vramscope.tui.terminal.abilities import TerminalAbilities

JOB = Path(__file__).resolve().parents[1] / "engine" / "workloads" / "leaking_gpt.py"
SIZE = (120, 32)
STEPS = 60
RUNS = {"main.vscope": 1, "branch.vscope": 4}
"""Name of the recording, and sequences of an evaluation."""


def record(folder: Path, name: str, sequences: int) -> None:
    """Run the job to its end and record it."""
    words = ("run", "--simulate", "4GiB", f"--record={folder / name}", "--", sys.executable, str(JOB))
    subprocess.run(
        [sys.executable, "-m", "vramscope", *words, "--steps", str(STEPS), "--evaluate", str(sequences)],
        check=True,
        env={**os.environ, "VRAMSCOPE_RUNTIME_DIR": str(folder / "run"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
    )


async def draw_difference(pictures: Path) -> Path:
    """Record both runs, compare them, and write what the screen shows as SVG."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for run, sequences in RUNS.items():
            record(folder, run, sequences)
        a, b = (folder / run for run in RUNS)
        view = view_difference(lambda report: compare_files(a, b, report))
        app = TerminalApp(TerminalAbilities(), view=view, clock=SystemClock(), driver_class=None)
        async with app.run_test(size=SIZE) as pilot:
            while view.screen.comparison is None:
                await pilot.pause(0.05)
            await pilot.pause()
            picture = app.export_screenshot(title="vramscope (simulated device)")
    path = pictures / f"difference-{SIZE[0]}x{SIZE[1]}.svg"
    path.write_text(picture, encoding="utf-8")
    return path
