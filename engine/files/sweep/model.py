"""What is known of a sweep: its configurations, what was left out, and what does not fit together."""

from pathlib import Path
from typing import Literal

import msgspec

Outcome = Literal["success", "failed", "started"]
"""As the sweep's own lists tell it, by the exit status alone; `started` stands in no other list."""


class SweepTrace(msgspec.Struct, frozen=True, gc=False):
    """The rank of a configuration that held most, and the iteration in which it did."""

    path: Path
    rank: int
    ranks: int
    """How many ranks of the configuration have a trace."""
    modified_ns: int
    peak_allocated_bytes: int | None = None
    theoretical_bytes: int | None = None
    static_bytes: int | None = None
    iteration: int = 0
    """Number of the iteration that the peak is of."""
    iterations: int = 1
    """How many iterations of its trace have a peak."""


class ConfigurationLog(msgspec.Struct, frozen=True, gc=False):
    """What a configuration's own log (`global_rank_0.log`) says; None is not told there."""

    path: Path
    is_out_of_memory: bool = False
    cause: str | None = None
    """The line by which it failed."""
    iteration_s: float | None = None
    tflops_per_gpu: float | None = None
    peak_allocated_bytes: int | None = None
    theoretical_bytes: int | None = None
    states_bytes: int | None = None
    """Weights and optimizer, as the theory has them."""
    activations_bytes: int | None = None
    """As the theory has them."""


class SweepConfiguration(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One parallel layout that was tried."""

    tp: int
    pp: int
    dp: int | None = None
    outcome: Outcome | None = None
    exit_status: int | None = None
    trace: SweepTrace | None = None
    log: ConfigurationLog | None = None
    is_simulated: bool | None = None
    """Whether one GPU played each rank; None without a trace. A real and a simulated run are two."""


class SkippedFile(msgspec.Struct, frozen=True):
    """A file that was left out, and why."""

    path: Path
    reason: str


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """All configurations of a sweep, in order of TP, PP and DP."""

    memory_dir: Path | None = None
    """Folder of the traces; None where there are logs alone."""
    log_dir: Path | None = None
    is_simulated: bool | None = None
    """Whether the names of all traces tell that one GPU played each rank; None where they do not tell."""
    modified_ns: int | None = None
    """When the newest trace, or list, was written."""
    model: str | None = None
    """The size label in the name of the log folder, such as `485`; None where the traces tell another."""
    world_size: int | None = None
    layers: int | None = None
    heads: int | None = None
    configurations: tuple[SweepConfiguration, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences about what does not fit together, and which of several files were taken."""
    skipped: tuple[SkippedFile, ...] = ()
