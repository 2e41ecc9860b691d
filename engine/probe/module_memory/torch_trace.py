"""The torch profiler over one step of a training, as InternLM sets it up, for TensorBoard."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from ..base.coordinates import find_coordinates, find_meshes
from ..base.foreign import Foreign, Tensor


class RankPlace:
    """The place of this process in the parallel layout, read once.

    Args:
        parameters: Of the model; those laid out on a device mesh say where this rank is.
    """

    def __init__(self, parameters: Iterable[Tensor] = ()) -> None:
        known = find_coordinates(find_meshes(parameters)) or {}
        # For the head of a file: `rank`, `world_size`, `dp`, `tp`, `pp`, ...
        self.header: dict[str, Any] = dict(known)
        self._rank, self._tp, self._pp = (_number(known.get(name)) for name in ("rank", "tp", "pp"))
        # A program without groups has data parallelism only.
        has_groups = any(known.get(name) is not None for name in ("tp", "pp", "dp"))
        self._dp = _number(known.get("dp")) if has_groups else self._rank

    @property
    def is_traced(self) -> bool:
        """Whether the torch profiler runs on this rank: the first of its data and tensor parallel groups."""
        return self._dp == self._tp == 0

    def memory_folder(self, base: str = "") -> str:
        """`memory_trace/rank{}_dp{}_tp{}` below a folder."""
        return os.path.join(base, "memory_trace", f"rank{self._rank}_dp{self._dp}_tp{self._tp}")  # noqa: PTH118

    def trace_folder(self, base: str) -> str:
        """`traces/rank{}_dp{}_tp{}_pp{}` below a folder."""
        name = f"rank{self._rank}_dp{self._dp}_tp{self._tp}_pp{self._pp}"
        return os.path.join(base, "traces", name)  # noqa: PTH118


def _number(value: int | str | None) -> int:
    return value if isinstance(value, int) else 0


JOB_VARIABLES = ("JOB_NAME", "SLURM_JOB_NAME", "VRAMSCOPE_JOB")
_SKIPPED = 3
_WAITED = 1
_WARMED_UP = 1
_TRACED = 1
# Steps that a training must make until its trace is written.
STEPS_TO_TRACE = _SKIPPED + _WAITED + _WARMED_UP + _TRACED


class NoProfile:
    """Does nothing, in the place of a profiler."""

    def __enter__(self) -> NoProfile:
        return self

    def __exit__(self, *error: object) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def step(self) -> None: ...


def initialize_llm_profile(
    profiling: bool = False, start_time: str | None = None, *, job_name: str | None = None
) -> Foreign:
    """Return a context manager whose `step()` is called once a training step.

    Of the first steps three are skipped, one is waited for, one warms up, and one is traced, into
    `{job_name}/{start_time}/traces/rank{}_dp{}_tp{}_pp{}`. Only the first rank of its data and tensor
    parallel groups is traced; elsewhere, and without `profiling`, nothing is done.

    Args:
        start_time: Name of the run's folder; by default the time now, as `Sep08_11-00-51`.
        job_name: Name of the job's folder; by default that of the environment, else `train`.
    """
    place = RankPlace()
    if not profiling or not place.is_traced:
        return NoProfile()
    return make_profile(place.trace_folder(name_run(start_time, job_name)))


def make_profile(folder: str) -> Foreign:
    """Return the torch profiler that writes its trace into a folder."""
    profiler = import_module("torch.profiler")
    return profiler.profile(
        activities=profiler.supported_activities(),
        schedule=profiler.schedule(
            skip_first=_SKIPPED, wait=_WAITED, warmup=_WARMED_UP, active=_TRACED, repeat=1
        ),
        on_trace_ready=profiler.tensorboard_trace_handler(folder),
        profile_memory=True,
        with_stack=True,
        with_modules=True,
    )


def name_run(start_time: str | None = None, job_name: str | None = None) -> str:
    """Folder of a run: its job's name, and when it began."""
    named = next((os.environ[name] for name in JOB_VARIABLES if os.environ.get(name)), "train")
    began = time.strftime("%b%d_%H-%M-%S") if start_time is None else start_time
    return os.path.join(job_name or named, began)  # noqa: PTH118
