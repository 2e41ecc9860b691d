"""What the probe costs the training: CPU time that is counted, and paired wall times."""

import json
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vramscope.engine.probe.history import (
    PERIOD_S,
    SECONDS_PER_ALLOCATION,
    count_affordable_steps,
)
from vramscope.engine.ranks.messages import MAX_PACKET_BYTES, PROBE_SOCKET_NAME
from vramscope.engine.ranks.roster import DRAIN_INTERVAL_S

from .budgets import Budget
from .measure.tables import format_number, format_table

LIMIT_US = 100.0
SUSPICION_LIMIT_PERCENT = 1.0
ALLOCATIONS_OF_A_STEP = (500, 3_700, 20_000)
"""Of a small model, of a GPT of 1.6 billion parameters, and of a program that allocates without end."""
_RESAMPLES = 4000


@dataclass(frozen=True)
class ProbeCost:
    """What was counted and timed."""

    tensors: int
    steps: int
    step_s: float
    clock_us: float
    """CPU time of asking the clock twice, after a step and a sleep; subtracted from what follows."""
    hook_us: float
    """CPU time of the hook in the thread that trains, per 100 ms."""
    hook_median_us: float
    hook_worst_us: float
    """The dearest is a walk through all optimizers."""
    phases_us: float
    """CPU time of begin and end of three named parts a step, in the thread that trains, per 100 ms."""
    phase_median_us: float
    """Of a begin or an end; most are not read."""
    sampler_us: float
    """CPU time of the sampler with the lock, per 100 ms: between its waits, less `system_calls_us`."""
    system_calls_us: float
    """CPU time of the sampler's system calls, per 100 ms; Python lets its lock go for each."""
    ticks_a_second: float
    tick_us: float
    """Median CPU time of what the sampler does between two waits."""
    sampler_thread_us: float
    """CPU time of the sampler's thread per 100 ms, its waits included, which hold no lock."""
    statistics_us: float
    """CPU time of one reading of the stand-in's statistics in a loop."""
    statistics_cold_us: float
    """The same after a step and a sleep: what the machine adds, because the caches hold something else."""
    paired_us: float
    """Median difference of a step's wall time with and without the probe."""
    paired_low_us: float
    paired_high_us: float
    """Between these the difference lies, at 95 % (bootstrap over the pairs)."""
    plain_step_s: float

    @property
    def total_us(self) -> float:
        """CPU time per step of 100 ms."""
        return self.hook_us + self.phases_us + self.sampler_us


def measure_probe_cost(window_s: float, blocks: int) -> ProbeCost:
    """Return the cost of the probe on a real training on the CPU, with a hub that reads.

    Args:
        window_s: How long to count.
        blocks: How many pairs of blocks of steps are timed.
    """
    counted = json.loads(_train("count", window_s))
    timed = json.loads(_train("pair", blocks))
    pairs = [1e6 * (b - a) for a, b in zip(timed["without"], timed["with"], strict=True)]
    low, high = find_interval(pairs)
    return ProbeCost(
        **counted,
        paired_us=statistics.median(pairs),
        paired_low_us=low,
        paired_high_us=high,
        plain_step_s=statistics.median(timed["without"]),
    )


def find_interval(differences: Sequence[float], seed: int = 1) -> tuple[float, float]:
    """Return the interval of 95 % of the median (percentile bootstrap, Efron 1979)."""
    chosen = random.Random(seed)
    medians = sorted(
        statistics.median(chosen.choices(differences, k=len(differences))) for _ in range(_RESAMPLES)
    )
    return medians[int(0.025 * _RESAMPLES)], medians[int(0.975 * _RESAMPLES) - 1]


def find_share_of_suspicion(allocations_per_step: int) -> float:
    """Return the share of a minute, in percent, that recording stacks may take; arithmetic, not measured."""
    steps = count_affordable_steps(allocations_per_step)
    return 100.0 * steps * allocations_per_step * SECONDS_PER_ALLOCATION / PERIOD_S


def format_probe_cost(cost: ProbeCost) -> str:
    """Return the table of costs."""
    interval = f"{format_number(cost.paired_low_us, 0)} to {format_number(cost.paired_high_us, 0)}"
    walk = f"{format_number(cost.hook_median_us, 1)}, {format_number(cost.hook_worst_us, 1)}"
    reading = f"{format_number(cost.statistics_us, 1)}, {format_number(cost.statistics_cold_us, 1)}"
    rows = [
        ["thread that trains: the hook", format_number(cost.hook_us, 1)],
        ["  median, and the dearest (it walks through the optimizer)", walk],
        ["  three named phases a step, per 100 ms", format_number(cost.phases_us, 1)],
        ["  median of a begin or an end", format_number(cost.phase_median_us, 1)],
        ["sampler with the lock, per 100 ms", format_number(cost.sampler_us, 1)],
        [
            f"  median of its {cost.ticks_a_second:.1f} turns a second",
            format_number(cost.tick_us, 1),
        ],
        ["together, per step of 100 ms", format_number(cost.total_us, 1)],
        ["sampler's system calls, which hold no lock", format_number(cost.system_calls_us, 1)],
        ["sampler's thread with its waits, which hold no lock", format_number(cost.sampler_thread_us, 1)],
        ["one reading of 122 statistics: in a loop, after a sleep", reading],
        [
            f"wall time, with less without, step of {1e3 * cost.plain_step_s:.0f} ms",
            format_number(cost.paired_us, 0),
        ],
        ["  95 % interval of that median", interval],
    ]
    title = (
        f"The probe on a training of {cost.tensors} tensors, {cost.steps} steps of {1e3 * cost.step_s:.0f} ms"
    )
    return f"{format_table(title, ['', 'µs'], rows)}\n\n{_format_suspicion()}"


def _format_suspicion() -> str:
    rows = [
        [
            f"{allocations:,}",
            str(count_affordable_steps(allocations)),
            format_number(find_share_of_suspicion(allocations)),
        ]
        for allocations in ALLOCATIONS_OF_A_STEP
    ]
    title = f"Recording on suspicion, by arithmetic at {1e6 * SECONDS_PER_ALLOCATION:.0f} µs an allocation"
    return format_table(title, ["allocations a step", "steps a minute", "% of the minute"], rows)


def judge_probe_cost(cost: ProbeCost) -> list[Budget]:
    """Return the budgets of the probe."""
    share = max(find_share_of_suspicion(allocations) for allocations in ALLOCATIONS_OF_A_STEP)
    return [
        Budget("probe, per step of 100 ms: CPU time counted", cost.total_us, LIMIT_US, "µs"),
        Budget("probe, on suspicion: share of a minute, by arithmetic", share, SUSPICION_LIMIT_PERCENT, "%"),
    ]


def _train(way: str, amount: float) -> str:
    """Run the training with a hub that does nothing but read, and return what it printed."""
    with tempfile.TemporaryDirectory(prefix="vs-bench-", dir="/tmp") as folder:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(Path(folder) / PROBE_SOCKET_NAME))
        listener.listen()
        threading.Thread(target=_drain, args=(listener,), daemon=True).start()
        command = [sys.executable, "-m", "benchmarks.probed_training", way, folder, str(amount)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        listener.close()
    return result.stdout


def _drain(listener: socket.socket) -> None:
    """Take what has arrived once a second, as the hub does: nobody waits at the socket to be woken."""
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        with peer:
            while _take_all(peer):
                time.sleep(DRAIN_INTERVAL_S)


def _take_all(peer: socket.socket) -> bool:
    """Take what waits; return whether the other end is still there."""
    while True:
        try:
            if not peer.recv(MAX_PACKET_BYTES, socket.MSG_DONTWAIT):
                return False
        except BlockingIOError:
            return True
        except OSError:
            return False
