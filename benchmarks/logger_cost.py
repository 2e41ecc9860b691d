"""What `MemoryLog` adds to a step of a training loop while no agent runs: python -m benchmarks.logger_cost.

The steps do nothing, so that what is timed is all of it. Without a device nothing is read or logged; under
`vramscope run --simulate` the statistics of a simulated card are read, which takes longer than those of CUDA.
"""

import time
from statistics import median

from vramscope.callbacks.loggers import MemoryLog
from vramscope.callbacks.marks import StepMarks

STEPS = 20_000
ROUNDS = 5


class _Logger:
    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Keep nothing, as the cost of the library is its own."""


def _time_steps(log: MemoryLog) -> float:
    start_s = time.perf_counter()
    for _ in range(STEPS):
        log.step(batch=32)
    return (time.perf_counter() - start_s) / STEPS


def main() -> None:
    """Print microseconds a step, medians of some rounds."""
    for every in (1, 10, 100):
        log = MemoryLog(_Logger(), every=every)
        cost = median(_time_steps(log) for _ in range(ROUNDS))
        backend = "a device" if StepMarks().read() else "no device"
        print(f"every {every:>3} steps: {1e6 * cost:6.2f} µs a step ({backend})")


if __name__ == "__main__":
    main()
