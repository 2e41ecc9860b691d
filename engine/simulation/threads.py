"""The accounting goes wherever Python goes: into new threads, and out of forked children."""

from __future__ import annotations

import os
import threading
from typing import Any

import torch

from .patching import replace
from .simulation import Simulation


def install(simulation: Simulation, mode: Any) -> None:
    """Account in this thread and in every thread that starts; stop accounting in forked children."""
    _enter(mode)
    replace(threading.Thread, "_bootstrap_inner", lambda original: _make_bootstrap(original, mode))
    os.register_at_fork(after_in_child=lambda: _leave_card(simulation))


def _enter(mode: Any) -> None:
    # Not `with mode`: it is never left, and torch shall not think that a user's mode is active.
    torch._C._push_on_torch_dispatch_stack(mode)


def _make_bootstrap(original: Any, mode: Any) -> Any:
    def bootstrap(thread: threading.Thread) -> None:
        _enter(mode)
        original(thread)

    return bootstrap


def _leave_card(simulation: Simulation) -> None:
    """In a forked child: the blocks stay the parent's, and a device that was in use cannot be used here."""
    simulation.registry.is_closed = True
    simulation.devices.is_foreign = torch.cuda._initialized
    if not torch.cuda._initialized:
        simulation.registry.is_closed = False
