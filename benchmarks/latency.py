"""From key to screen, and from `q` to the shell, with a healthy driver and with one that hangs."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .machine import Machine
from .measure.tables import format_table
from .measure.terminal import Terminal
from .programs import Program

PATIENCE_S = 5.0
"""What does not happen within this many seconds is reported as not having happened."""
HANG_SETTLES_S = 3.0


@dataclass(frozen=True)
class Latency:
    """How long one program let a person wait; None where it never answered."""

    program: str
    driver: str
    key_s: float | None
    quit_s: float | None


def measure_latencies(programs: Sequence[Program], devices: int, runs: int) -> list[Latency]:
    """Measure programs in turn, each with a healthy driver and with one device's calls hanging."""
    found: dict[tuple[str, str], list[Latency]] = {}
    for _ in range(runs):
        for driver in ("healthy", "one device hangs"):
            for program in programs:
                latency = _measure_once(program, devices, driver)
                found.setdefault((program.name, driver), []).append(latency)
    return [_summarize(latencies) for latencies in found.values()]


def _measure_once(program: Program, devices: int, driver: str) -> Latency:
    with Machine(devices) as machine, Terminal(program.live, machine.terminal_env) as terminal:
        if terminal.wait_for(program.whole, 20.0) is None:
            raise TimeoutError(f"{program.name} showed no figures: {terminal.text()[-2000:]}")
        time.sleep(1.5)
        if driver != "healthy":
            machine.hang(devices - 1)
            time.sleep(HANG_SETTLES_S)
        written = terminal.bytes_written
        pressed_s = terminal.press(program.help_key)
        shown_s = terminal.wait_for(program.help_text, PATIENCE_S, since=written)
        terminal.press("\x1b")
        time.sleep(0.5)
        quit_s = terminal.press("q")
        ended_s = terminal.wait_for_end(PATIENCE_S)
        machine.release()
    return Latency(
        program.name,
        driver,
        None if shown_s is None else shown_s - pressed_s,
        None if ended_s is None else ended_s - quit_s,
    )


def _summarize(latencies: Sequence[Latency]) -> Latency:
    """Return the medians; a program that once gave no answer gave none."""

    def median(values: Sequence[float | None]) -> float | None:
        answered = [value for value in values if value is not None]
        return statistics.median(answered) if len(answered) == len(values) else None

    first = latencies[0]
    keys = median([latency.key_s for latency in latencies])
    return Latency(first.program, first.driver, keys, median([latency.quit_s for latency in latencies]))


def format_latencies(latencies: Sequence[Latency]) -> str:
    """Return the table of waiting times."""

    def cell(value: float | None) -> str:
        return f"never in {PATIENCE_S:g} s" if value is None else f"{value:.3f} s"

    rows = [[f"{it.program}, {it.driver}", cell(it.key_s), cell(it.quit_s)] for it in latencies]
    return format_table("Waiting (medians)", ["", "key to screen", "q to shell"], rows)


def as_seconds(latencies: Sequence[Latency]) -> Mapping[str, float | None]:
    """Return the waiting times by name, for the JSON."""
    return {f"{it.program}, {it.driver}, key": it.key_s for it in latencies} | {
        f"{it.program}, {it.driver}, quit": it.quit_s for it in latencies
    }
