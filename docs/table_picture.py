"""Draw the picture of `vramscope --once`: the table of pretend devices, as a terminal shows it."""

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from benchmarks.machine import Machine

COLUMNS = 100
DEVICES = 4


def draw_table(pictures: Path) -> Path:
    """Print the table in colour and write it as SVG."""
    with Machine(DEVICES, name="Simulated GPU 80GB") as machine:
        printed = subprocess.run(
            [sys.executable, "-m", "vramscope", "--once", "--color"],
            env={**os.environ, **machine.env, "VRAMSCOPE_NODE": "node03", "COLUMNS": str(COLUMNS)},
            capture_output=True,
            encoding="utf-8",
            check=True,
        ).stdout
    console = Console(
        width=COLUMNS, record=True, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print("$ vramscope --once", style="bold", highlight=False)
    console.print(Text.from_ansi(printed.rstrip("\n")))
    path = pictures / "once-100.svg"
    console.save_svg(str(path), title="vramscope --once (simulated devices)", unique_id="vramscope")
    return path
