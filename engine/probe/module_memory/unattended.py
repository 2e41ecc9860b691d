"""`vramscope run --profiling`: profiles a training without changes to its code."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from ..base.current import Guard
from ..base.foreign import Foreign, Module, Optimizer
from .memory_log import ProfileFiles
from .module_watch import ModelSearch
from .profiler import ModuleMemoryProfiler
from .torch_trace import STEPS_TO_TRACE, NoProfile, RankPlace, make_profile

# Variables of the job that a process of ours must not have: it would be profiled itself.
_OURS = ("PYTHONPATH", "VRAMSCOPE_PROBE", "VRAMSCOPE_PROFILING", "VRAMSCOPE_SIMULATE", "VRAMSCOPE_JOB")


class UnattendedProfile:
    """Waits for the first step of an optimizer, and profiles the steps after it.

    By then it is known which modules were called from outside of others; the one with most parameters among
    those is the model.
    """

    def __init__(self, config: dict[str, Any], total_steps: int = 5) -> None:
        self._config = config
        self._folder = config["folder"]
        self._total_steps = total_steps
        self._memory_folder = ""
        self._profiler: ModuleMemoryProfiler | None = None
        self._trace: Any = NoProfile()
        self._steps_to_trace = STEPS_TO_TRACE
        self._search = ModelSearch()
        self._guard = Guard("the profile by module")

    def install(self, torch: Module) -> None:
        """Start to look for a model that trains."""
        self._search.begin(torch)
        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(self._note_step)

    def _note_step(self, optimizer: Optimizer, arguments: Foreign, named: Foreign) -> None:
        if self._guard.is_shut:
            return
        try:
            if self._profiler is None:
                self._begin(optimizer)
            elif self._profiler.optimizer is optimizer:
                self._end_step(self._profiler)
        except OSError as error:
            self._guard.is_shut = True
            sys.stderr.write(f"vramscope profiling: stopped writing: {error}\n")
        except Exception as error:  # noqa: BLE001 - the training goes on
            self._guard.count(error)

    # As the probe's own hook: a compiler that traces an optimizer's step ends its graph here.
    _note_step._torchdynamo_disable = True  # type: ignore[attr-defined]

    def _begin(self, optimizer: Optimizer) -> None:
        model = self._search.find(optimizer)
        if model is None:
            return
        self._search.end()
        place = RankPlace(model.parameters())
        self._memory_folder = place.memory_folder(self._folder)
        files = ProfileFiles(self._memory_folder)
        self._profiler = ModuleMemoryProfiler(
            model, optimizer, files, self._total_steps, header=place.header, tag="after the first step"
        )
        if place.is_traced:
            self._trace = make_profile(place.trace_folder(self._folder))
            self._trace.start()

    def _end_step(self, profiler: ModuleMemoryProfiler) -> None:
        if self._steps_to_trace:
            self._steps_to_trace -= 1
            self._trace.step()
            if not self._steps_to_trace:
                self._trace.stop()
        profiler.end_step()
        if profiler.error is not None:
            error = profiler.error
            profiler.error = None
            raise error
        if not profiler.is_running:
            # Start the drawing of charts in a process that is nobody's child: a job may wait for its own.
            environment = {name: value for name, value in os.environ.items() if name not in _OURS}
            if self._config["draw_python_path"]:
                environment["PYTHONPATH"] = self._config["draw_python_path"]
            words = [*self._config["draw_command"], self._memory_folder, "--output", self._memory_folder]
            detached = ["/bin/sh", "-c", '"$@" >/dev/null 2>&1 </dev/null &', "sh", *words]
            subprocess.run(detached, env=environment, check=False)


_profiles: list[UnattendedProfile] = []


def profile_unattended(torch: Module, config: dict[str, Any]) -> None:
    """Profile the training of this process, once; `config` as for `profile_modules`."""
    if not _profiles:
        _profiles.append(UnattendedProfile(config))
        _profiles[0].install(torch)
