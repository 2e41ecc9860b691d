"""The probe: reports what only the training process knows, without ever disturbing it.

Pure standard library for Python 3.9 and newer, loaded by path into the interpreter that trains, under the
name `vramscope_probe`; vramscope itself need not be installed there. Nothing here raises into the training,
prints, draws random numbers, creates a device context or resets a counter of the user.

This file imports nothing but light modules: the launcher loads it into every Python process of a job, and
those that never import torch shall not pay for the rest.
"""

from __future__ import annotations

from .base import current
from .imports import after_torch_import, forget_imports, is_importing, watch_jax, watch_torch
from .phases import phase

TYPE_CHECKING = False
if TYPE_CHECKING:
    # What type checkers read costs every process of a job its import.
    from typing import Callable

    from .base.foreign import Foreign, Module

__all__ = [
    "after_torch_import",
    "expect_marks",
    "is_importing",
    "is_running",
    "on_advice",
    "phase",
    "profile_modules",
    "record_out_of_memory",
    "start",
    "step",
    "stop",
    "watch_imports",
]


def start(runtime_dir: str, *, job: str | None = None, is_explicit: bool = False) -> None:
    """Start to report in this process, or once torch or JAX is imported. Idempotent.

    Args:
        runtime_dir: Folder of the hub's socket.
        job: Name of the `vramscope run` of this process.
        is_explicit: Somebody asked for this very process: it reports before it has made a step.
    """

    def start_with(torch: Module) -> None:
        from .session import start_session

        start_session(torch, runtime_dir, job, is_explicit)

    def start_with_jax(jax: Module) -> None:
        # A program that has loaded torch as well is followed already, and its arrays are found there.
        if current.session is None:
            start_with(jax)

    _try(watch_torch, start_with)
    _try(watch_jax, start_with_jax)


def watch_imports(runtime_dir: str, job: str | None = None) -> None:
    """Start to report once torch or JAX has been imported; without them nothing is ever started.

    Args:
        runtime_dir: Folder of the hub's socket.
        job: Name of the `vramscope run` of this process.
    """
    start(runtime_dir, job=job)


def stop(reason: str = "detached") -> None:
    """Send a goodbye and stop reporting; `start` may be called again.

    Args:
        reason: `detached` or `exit`.
    """
    forget_imports()
    current.dormant = None
    session = current.session
    if session is not None:
        _try(session.end, reason)


def is_running() -> bool:
    """Return whether a probe runs in this very process."""
    session = current.session
    return session is not None and bool(session.is_alive())


def step(tokens: object = None, batch: object = None) -> None:
    """Mark the end of a training step; from the first call on only such marks count, not the optimizers'.

    Args:
        tokens: Tokens of the largest micro-batch of the step, a whole number.
        batch: Samples of it.
    """
    session = current.session
    if session is not None:
        session.end_explicit_step(tokens, batch)


def expect_marks() -> None:
    """Leave the end of every step to `step`, from now on: optimizers end none."""
    session = current.session
    if session is not None:
        session.expect_marks()


def on_advice(callback: Callable[[str, str], object] | None) -> None:
    """Set the function that answers advice from outside, at the end of a step.

    Args:
        callback: Called with the action and the reason. Returns True or a sentence if it did what was asked,
            False if it will not, None to leave it to the probe. None for no callback.
    """
    current.on_advice = callback


def profile_modules(torch: Module, config: dict[str, Foreign]) -> None:
    """Profile the first model that trains in this process, by module, over some steps, and have it drawn.

    Args:
        torch: The module.
        config: `folder`, the parent of the folders `memory_trace` and `traces`; `draw_command`, the command
            line that draws a folder of `memory_trace`; `draw_python_path`, its PYTHONPATH or None.
    """
    from .module_memory.unattended import profile_unattended

    profile_unattended(torch, config)


def record_out_of_memory(
    size_bytes: int | None,
    message: str,
    device_free_bytes: int | None = None,
    *,
    device_index: int | None = None,
    device_total_bytes: int | None = None,
) -> str | None:
    """Write a flight record of an out-of-memory error that is about to be raised, and report it to the hub.

    Never raises; returns the path of the record, or None if none was written.

    Args:
        size_bytes: Bytes of the request that failed.
        message: Text of the error.
        device_free_bytes: Free bytes of the device.
        device_index: Ordinal of the device; None for the one that is reported on.
        device_total_bytes: Bytes of the device, or of what this process may use of it.
    """
    current.call_takers(size_bytes, message, device_free_bytes, device_index, device_total_bytes)
    session = current.session
    if session is None:
        return None
    found: str | None = session.record_out_of_memory(
        size_bytes, message, device_free_bytes, device_index, device_total_bytes
    )
    return found


def _try(action: Callable[..., None], *arguments: Foreign) -> None:
    """A failure to start or end the probe must not reach the program."""
    try:
        action(*arguments)
    except Exception as error:  # noqa: BLE001 - the training goes on whatever fails here
        current.note_failure("the probe", error)
