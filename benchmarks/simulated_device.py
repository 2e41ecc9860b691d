"""What a step costs on the simulated device, against the same step on the plain host, taken in turn."""

import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from .budgets import Budget
from .measure.tables import format_number, format_table

ROOT = Path(__file__).parent.parent
STEPPER = Path(__file__).parent / "simulated_device_stepper.py"
LIMIT_RATIO = 3.0
WARM_UP_STEPS = 2
RESAMPLES = 2000


@dataclass(frozen=True)
class SimulationCost:
    """Seconds of each step, as pairs that were taken in turn."""

    model: str
    plain_s: tuple[float, ...]
    simulated_s: tuple[float, ...]
    plain_cpu_s: tuple[float, ...]
    simulated_cpu_s: tuple[float, ...]
    """CPU time of all threads, which other programs on the machine disturb less than wall time."""

    @property
    def ratios(self) -> list[float]:
        """Simulated over plain, pair by pair."""
        return [simulated / plain for simulated, plain in zip(self.simulated_s, self.plain_s, strict=True)]

    @property
    def cpu_ratio(self) -> float:
        """Median ratio of the CPU times of the pairs."""
        pairs = zip(self.simulated_cpu_s, self.plain_cpu_s, strict=True)
        return statistics.median(simulated / plain for simulated, plain in pairs)

    @property
    def ratio(self) -> float:
        """Median ratio of the pairs."""
        return statistics.median(self.ratios)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the median ratio, by the percentile bootstrap."""
        draw = random.Random(0)
        medians = sorted(
            statistics.median(draw.choices(self.ratios, k=len(self.ratios))) for _ in range(RESAMPLES)
        )
        return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]


class Stepper:
    """A training process that makes one step when it is asked to."""

    def __init__(self, is_simulated: bool) -> None:
        environment = {
            **os.environ,
            "STEPPER_SIMULATED": "1" if is_simulated else "",
            "STEPPER_ROOT": str(ROOT),
        }
        self._process = subprocess.Popen(
            [sys.executable, str(STEPPER)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def step(self) -> dict[str, float | str]:
        """Make one step and return what the process said of it.

        Raises:
            RuntimeError: The process ended.
        """
        assert self._process.stdin is not None  # noqa: S101  (a pipe was asked for)
        assert self._process.stdout is not None  # noqa: S101  (a pipe was asked for)
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the training process ended with {self._process.wait()}")
        answer: dict[str, float | str] = json.loads(line)
        return answer


def measure_simulation(steps: int) -> SimulationCost:
    """Return the cost of steps of a GPT of 100 M parameters, plain and simulated in turn.

    Args:
        steps: Pairs that count, after two that do not.
    """
    pairs = []
    with ExitStack() as stack:
        plain, simulated = (stack.enter_context(Stepper(it)) for it in (False, True))
        for turn in range(WARM_UP_STEPS + steps):
            # Who goes first changes, so that a drift of the machine favours neither.
            first, second = (plain, simulated) if turn % 2 else (simulated, plain)
            taken = {it: it.step() for it in (first, second)}
            if taken[plain]["loss"] != taken[simulated]["loss"]:
                raise RuntimeError("the simulated step computed something else than the plain one")
            if turn >= WARM_UP_STEPS:
                pairs.append((taken[plain], taken[simulated]))
    kinds = [(side, key) for key in ("seconds", "cpu_s") for side in (0, 1)]
    figures = [tuple(float(pair[side][key]) for pair in pairs) for side, key in kinds]
    return SimulationCost(str(pairs[0][0]["model"]), *figures)


def judge_simulation(cost: SimulationCost) -> list[Budget]:
    """Return the budget of a step on the simulated device."""
    return [Budget("simulated device: step, × the plain step", cost.ratio, LIMIT_RATIO, "×")]


def format_simulation(cost: SimulationCost) -> str:
    """Return the table of step times."""
    low, high = cost.interval
    rows = [
        ["plain host", *_describe(cost.plain_s), "1.00", "1.00"],
        [
            "simulated device",
            *_describe(cost.simulated_s),
            f"{cost.ratio:.2f} ({low:.2f} to {high:.2f})",
            f"{cost.cpu_ratio:.2f}",
        ],
    ]
    head = ["", "median s", "least s", "most s", "× plain (95 %)", "× plain, CPU time"]
    return format_table(f"Simulated device: {cost.model}, {len(cost.plain_s)} pairs of steps", head, rows)


def _describe(seconds: Sequence[float]) -> list[str]:
    return [format_number(it, 3) for it in (statistics.median(seconds), min(seconds), max(seconds))]
