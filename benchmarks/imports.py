"""What each part costs to import: wall time and resident memory of a fresh interpreter."""

import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial

from .measure.tables import format_number, format_table
from .start_up import run_in_turn

PARTS = (
    "sys",
    "vramscope",
    "vramscope.engine.model",
    "vramscope.engine.agent.hub",
    "vramscope.engine.agent.worker",
    "rich.table",
    "textual.app",
    "vramscope.tui.app",
)
RSS = "\nprint(open('/proc/self/status').read().split('VmRSS:')[1].split()[0])"


def measure_imports(runs: int) -> dict[str, tuple[float, float]]:
    """Return median seconds and resident MiB after importing each part in a fresh interpreter."""
    sizes: dict[str, float] = {}

    def time_import(part: str) -> float:
        start_s = time.monotonic()
        command = [sys.executable, "-c", f"import {part}{RSS}"]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        sizes[part] = int(result.stdout) / 1024
        return time.monotonic() - start_s

    medians = run_in_turn({part: partial(time_import, part) for part in PARTS}, runs)
    return {part: (seconds, sizes[part]) for part, seconds in medians.items()}


def format_imports(measured: Mapping[str, tuple[float, float]]) -> str:
    """Return the table of import costs."""
    rows = [[part, format_number(s, 3), format_number(mib, 1)] for part, (s, mib) in measured.items()]
    return format_table("Imports, process start and end included (medians)", ["", "seconds", "RSS MiB"], rows)
