"""`vramscope run --profiling`: the profile of a training whose code knows nothing of it."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from ..foreign import Foreign, Module, Optimizer
from ..guard import Guard
from .profiler import ModuleMemoryProfiler
from .rank_folders import describe_rank, is_traced, name_memory_folder, name_trace_folder
from .torch_trace import STEPS_TO_TRACE, NoProfile, make_profile


class UnattendedProfile:
    """Waits for the first step of an optimizer, and profiles the steps after it.

    By then it is known which modules were called from outside of others; the one with most parameters among
    those is the model.

    Args:
        folder: Where the folders `memory_trace` and `traces` go.
        total_steps: Steps to follow.
    """

    def __init__(self, folder: str, total_steps: int = 5) -> None:
        self._folder, self._total_steps = folder, total_steps
        self._profiler: ModuleMemoryProfiler | None = None
        self._trace: Any = NoProfile()
        self._steps_to_trace = STEPS_TO_TRACE
        self._candidates: list[weakref.ref[Any]] = []
        self._known: set[int] = set()
        self._handles: list[Any] = []
        self._guard = Guard("the profile by module")

    def install(self, torch: Module) -> None:
        """Begin to look for a model that trains.

        Args:
            torch: The module.
        """
        modules = torch.nn.modules.module
        self._handles.append(modules.register_module_forward_pre_hook(self._meet_module))
        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(self._meet_step)

    def _meet_module(self, module: Module, arguments: Foreign) -> None:
        """Keep a module that no other has called; its children are known with it."""
        if id(module) in self._known or _is_compiling():
            return
        self._known.update(id(child) for child in module.modules())
        if any(parameter.requires_grad for parameter in module.parameters()):
            self._candidates.append(weakref.ref(module))

    def _meet_step(self, optimizer: Optimizer, arguments: Foreign, named: Foreign) -> None:
        if self._guard.is_shut:
            return
        try:
            if self._profiler is None:
                self._begin(optimizer)
            elif self._profiler.optimizer is optimizer:
                self._end_step(self._profiler)
        except OSError as error:
            self._guard.is_shut = True
            sys.stderr.write(f"vramscope profiling: no more is written: {error}\n")
        except Exception as error:  # noqa: BLE001 - the training goes on
            self._guard.count(error)

    # As the probe's own hook: a compiler that traces an optimizer's step ends its graph here.
    _meet_step._torchdynamo_disable = True  # type: ignore[attr-defined]

    def _begin(self, optimizer: Optimizer) -> None:
        model = self._find_model(optimizer)
        if model is None:
            return
        for handle in self._handles:
            handle.remove()
        self._known.clear()
        header = describe_rank()
        folder = name_memory_folder(self._folder)
        self._profiler = ModuleMemoryProfiler(
            model, optimizer, folder, self._total_steps, header=header, tag="after the first step"
        )
        if is_traced():
            self._trace = make_profile(name_trace_folder(self._folder))
            self._trace.start()

    def _end_step(self, profiler: ModuleMemoryProfiler) -> None:
        if self._steps_to_trace:
            self._steps_to_trace -= 1
            self._trace.step()
            if not self._steps_to_trace:
                self._trace.stop()
        profiler.end_step()
        if profiler.error is not None:
            error, profiler.error = profiler.error, None
            raise error

    def _find_model(self, optimizer: Optimizer) -> Module | None:
        """Return the largest module that was called from outside and has a parameter of the optimizer."""
        stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        found = [module for module in (reference() for reference in self._candidates) if module is not None]
        sized = [(sum(p.numel() for p in module.parameters()), module) for module in found]
        # Copies in fp32 are not the model's own: then nothing tells but the size.
        own = [each for each in sized if any(id(p) in stepped for p in each[1].parameters())]
        return max(own or sized, key=lambda each: each[0], default=(0, None))[1]


def _is_compiling() -> bool:
    ask = getattr(getattr(sys.modules["torch"], "compiler", None), "is_compiling", None)
    return ask is not None and bool(ask())


_profiles: list[UnattendedProfile] = []


def profile_unattended(torch: Module, folder: str) -> None:
    """Profile the training of this process, once.

    Args:
        torch: The module.
        folder: Where the folders `memory_trace` and `traces` go.
    """
    if not _profiles:
        _profiles.append(UnattendedProfile(folder))
        _profiles[0].install(torch)
