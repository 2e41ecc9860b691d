"""CPU, memory, threads and terminal bytes of a live view that is left alone in tmux."""

import statistics
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .machine import Machine
from .measure.processes import Cost, measure_cost
from .measure.tables import format_number, format_table
from .measure.tmux import TmuxWindow
from .programs import Program

ROLES = ("all", "viewer", "hub", "worker")
SETTLE_S = 6.0
"""What a program does to start is measured elsewhere; after this it is steady."""


@dataclass
class Steadiness:
    """Every window measured of one program with one number of devices."""

    program: str
    devices: int
    costs: dict[str, list[Cost]] = field(default_factory=dict)
    bytes_per_s: list[float] = field(default_factory=list)

    def median(self, role: str, figure: str) -> float | None:
        """Return the median of a figure (`cpu_percent`, `rss_mib`, `pss_mib`, `threads`) of a role."""
        costs = self.costs.get(role)
        return statistics.median(getattr(cost, figure) for cost in costs) if costs else None

    def bytes_median(self) -> float:
        """Return the median of the bytes written to the terminal per second."""
        return statistics.median(self.bytes_per_s)


def measure_live_views(
    programs: Sequence[Program], devices: int, runs: int, window_s: float
) -> list[Steadiness]:
    """Measure programs in turn, A B A B, so that a change of the machine's mood meets them all."""
    results = {program.name: Steadiness(program.name, devices) for program in programs}
    for _ in range(runs):
        for program in programs:
            with Machine(devices) as machine:
                _measure_once(program, machine, results[program.name], window_s)
    return list(results.values())


def _measure_once(program: Program, machine: Machine, result: Steadiness, window_s: float) -> None:
    mark = uuid.uuid4().hex[:8]
    with TmuxWindow(program.live, machine.env, mark, Path(machine.folder)) as window:
        window.wait_for("GiB", timeout_s=20.0)
        time.sleep(SETTLE_S)
        written, start_s = window.bytes_written, time.monotonic()
        costs = measure_cost(mark, window_s)
        result.bytes_per_s.append((window.bytes_written - written) / (time.monotonic() - start_s))
        for role, cost in costs.items():
            result.costs.setdefault(role, []).append(cost)
        window.press("q")
        machine.wait_until_gone(mark)


def format_live_views(results: Sequence[Steadiness]) -> str:
    """Return the table of steady costs."""
    rows = [
        [
            f"{result.program}, {result.devices} devices" if role == "all" else f"  {role}",
            format_number(result.median(role, "cpu_percent")),
            format_number(result.median(role, "rss_mib"), 1),
            format_number(result.median(role, "pss_mib"), 1),
            format_number(result.median(role, "threads"), 0),
            format_number(result.bytes_median(), 0) if role == "all" else "",
        ]
        for result in results
        for role in ROLES
        if role in result.costs and (role == "all" or len(result.costs) > 2)
    ]
    head = ["live view, tmux 200x70, 1 s", "CPU % of a core", "RSS MiB", "PSS MiB", "threads", "bytes/s"]
    return format_table("Left alone (medians)", head, rows)
