"""From pressing Enter to figures on the screen, and the wall time of commands that print and end."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from vramscope.engine.paths import locate_runtime_folder

from .machine import Machine
from .measure.tables import format_number, format_table
from .measure.terminal import Terminal
from .programs import Program, find_nvitop, find_vramscope, running_agent

TIMEOUT_S = 20.0


def measure_start_up(devices: int, runs: int) -> dict[str, float]:
    """Return median seconds of each way to start, measured in turn."""
    ours, peer = find_vramscope(), find_nvitop()
    with Machine(devices) as machine:
        ways: dict[str, Callable[[], float]] = {
            "import textual.app": lambda: time_command(
                [sys.executable, "-c", "import textual.app"], machine.env
            ),
            "vramscope, first figures": lambda: time_screen(ours, ours.figure, machine),
            "vramscope, whole screen": lambda: time_screen(ours, ours.whole, machine),
            "vramscope --once": lambda: time_command(ours.once, machine.env),
            "vramscope --once --json": lambda: time_command([*ours.once, "--json"], machine.env),
            "vramscope --version": lambda: time_command([ours.live[0], "--version"], machine.env),
        }
        with_agent: dict[str, Callable[[], float]] = {
            "vramscope, first figures, agent runs": lambda: time_screen(ours, ours.figure, machine),
            "vramscope, whole screen, agent runs": lambda: time_screen(ours, ours.whole, machine),
        }
        if peer:
            ways["nvitop, first figures"] = lambda: time_screen(peer, peer.figure, machine)
            ways["nvitop --once"] = lambda: time_command(peer.once, machine.env)
            with_agent["nvitop, first figures, agent runs"] = ways["nvitop, first figures"]
        medians = run_in_turn(ways, runs)
        with running_agent(locate_runtime_folder(machine.env), env=machine.env):
            return {**medians, **run_in_turn(with_agent, runs)}


def run_in_turn(ways: Mapping[str, Callable[[], float]], runs: int) -> dict[str, float]:
    """Return the median of each way, all run once unmeasured and then A B C A B C."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(runs + 1):
        for name, measure in ways.items():
            taken_s = measure()
            if turn:
                seconds[name].append(taken_s)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def time_command(command: Sequence[str], env: Mapping[str, str]) -> float:
    """Return the wall time of a command that ends by itself.

    Raises:
        RuntimeError: The command failed; the message holds what it said.
    """
    start_s = time.monotonic()
    result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    taken_s = time.monotonic() - start_s
    if result.returncode:
        raise RuntimeError(
            f"{' '.join(command)} returned {result.returncode}: {result.stderr or result.stdout}"
        )
    return taken_s


def time_screen(program: Program, pattern: str, machine: Machine) -> float:
    """Return the seconds from exec until the terminal shows a pattern."""
    with Terminal(program.live, machine.terminal_env) as terminal:
        shown_s = terminal.wait_for(pattern, TIMEOUT_S)
        taken_s = (shown_s or float("nan")) - terminal.started_s
        terminal.press("q")
        while terminal.wait_for_end(1.0) is None and time.monotonic() - terminal.started_s < TIMEOUT_S:
            terminal.press("q")  # nvitop drops keys that come with its first figures
    return taken_s


def format_start_up(medians: Mapping[str, float]) -> str:
    """Return the table of start-up times."""
    base = medians["import textual.app"]
    rows = [[name, format_number(value, 3), format_number(value / base)] for name, value in medians.items()]
    return format_table("Start-up (medians)", ["", "seconds", "× import textual.app"], rows)
