"""The accounting goes wherever Python goes: into new threads, and out of forked children."""

from __future__ import annotations

import os
import threading
from typing import Any

import torch
from torch.utils._python_dispatch import _pop_mode

from .patching import replace
from .simulation import Simulation

OWN_THREADS = "vramscope-"
"""How the names of the probe's threads begin: they watch, and make no tensors."""


def install(simulation: Simulation, mode: Any) -> None:
    """Account in this thread and in every thread that starts; stop accounting in forked children."""
    _enter(mode)
    replace(threading.Thread, "_bootstrap_inner", lambda original: _make_bootstrap(original, mode))
    os.register_at_fork(after_in_child=lambda: _leave_card(simulation))


def _enter(mode: Any) -> None:
    # Not `with mode`: torch shall not think that a user's mode is active.
    torch._C._push_on_torch_dispatch_stack(mode)


def _leave() -> None:
    """Let the thread hold no mode, whoever entered it.

    A mode that is still there when the thread ends is released by the thread's destructors in C++, which ask
    for the GIL; where the interpreter is about to end, that ends the process with an abort.
    """
    while torch._C._len_torch_dispatch_stack():
        _pop_mode()


def _make_bootstrap(original: Any, mode: Any) -> Any:
    def bootstrap(thread: threading.Thread) -> None:
        if thread.name.startswith(OWN_THREADS):
            original(thread)
            return
        _enter(mode)
        try:
            original(thread)
        finally:
            _leave()

    return bootstrap


def _leave_card(simulation: Simulation) -> None:
    """In a forked child: the blocks stay the parent's, and a device that was in use cannot be used here."""
    simulation.registry.is_closed = True
    simulation.devices.is_foreign = torch.cuda._initialized
    if not torch.cuda._initialized:
        simulation.registry.is_closed = False
