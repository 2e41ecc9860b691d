"""A made-up training job, and the plan of what it keeps and uses at each of its steps."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rng = np.random.Generator

MIB, GIB = 1 << 20, 1 << 30
CONTEXT_BYTES = 450 * MIB
"""What a process takes from the device outside of its allocator."""
LEAST_BLOCK_BYTES = 512


@dataclass(frozen=True)
class Job:
    """The sizes of a job: what it always holds, what a step takes on top, on which card."""

    capacity_bytes: int
    state_bytes: int
    """Parameters, gradients that stay and optimizer state; a third is there before the first step."""
    activation_bytes: int
    """Most that a usual step takes on top."""
    step_s: float

    @property
    def limit_bytes(self) -> int:
        """Most that its allocator can take from an otherwise empty card."""
        return self.capacity_bytes - CONTEXT_BYTES

    @property
    def headroom_bytes(self) -> int:
        """What is left at the height of a usual step."""
        return self.limit_bytes - self.state_bytes - self.activation_bytes


def draw_job(rng: Rng, step_s: tuple[float, float] = (0.3, 3.0)) -> Job:
    """Return a job of common sizes on a card of 24, 40 or 80 GiB; step times are log-uniform."""
    capacity = int(rng.choice([24, 40, 80])) * GIB
    state = round_block(capacity * rng.uniform(0.2, 0.45))
    activation = round_block(capacity * rng.uniform(0.12, 0.3))
    return Job(capacity, state, activation, draw_log(rng, *step_s))


def draw_log(rng: Rng, low: float, high: float) -> float:
    """Return a number whose logarithm is uniform between those of two bounds."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def round_block(size: float) -> int:
    """Return a size as the allocator rounds it: up to 512 bytes."""
    return -(-int(size) // LEAST_BLOCK_BYTES) * LEAST_BLOCK_BYTES


@dataclass(frozen=True)
class Plan:
    """What one process does, step by step; arrays of one length."""

    job: Job
    durations_s: Floats
    activation_bytes: Ints
    """What the step takes above its floor at its height."""
    kept_bytes: Ints
    """What is held in addition to the state once the step has ended."""
    start_s: float = 0.0
    """When its first step begins, in seconds from the start of the run."""

    @property
    def ends_s(self) -> Floats:
        """When each step ends, in seconds from the start of the run."""
        return np.asarray(self.start_s + np.cumsum(self.durations_s), dtype=np.float64)


def plan_steps(
    job: Job,
    rng: Rng,
    span_s: float,
    *,
    shares: Floats | None = None,
    start_s: float = 0.0,
    jitter: float = 0.02,
) -> Plan:
    """Return a plan of steps that keep nothing.

    Args:
        job: Whose steps.
        rng: For the times of steps.
        span_s: Seconds that the steps shall fill.
        shares: Share of the usual activations that a step takes; its time goes with it. Cycled through where
            it is shorter than the run. None makes all steps alike.
        start_s: When the first step begins.
        jitter: Relative spread of step times.
    """
    count = max(8, int(span_s / job.step_s))
    taken = np.ones(count) if shares is None else np.resize(shares, count)
    durations = job.step_s * (0.35 + 0.65 * taken / float(np.mean(taken))) * rng.lognormal(0.0, jitter, count)
    activations = np.ceil(taken * job.activation_bytes).astype(np.int64)
    return Plan(job, durations, activations, np.zeros(count, dtype=np.int64), start_s)
