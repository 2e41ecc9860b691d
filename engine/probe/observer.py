"""The hook that CUDA's allocator calls before it raises an out-of-memory error.

It stands on a private name of PyTorch (`torch._C._cuda_attach_out_of_memory_observer`), which builds for the
CPU lack; it has not been run on a GPU yet. On a simulated device the simulation calls the same entry itself.
"""

from __future__ import annotations

import _thread
import sys
import threading
import time
from itertools import repeat

from .base import current
from .base.foreign import Foreign, Module
from .recorder import find_recorder

_judged: list[tuple[Module, bool]] = []
"""Modules torch, and whether the observer stands there."""
_LOOK_EVERY_S = 0.01
_MOST_LOOKS = 500
_REFUSAL = (
    "out-of-memory errors leave no record: this build of PyTorch has none of the recorder's newer arguments, "
    "and such an allocator calls its observer with its own lock held"
)


def attach_observer(torch: Module) -> bool:
    """Attach the one observer of this process, and tell whether it stands.

    Only after the runtime was initialised: before that the call crashes the process. There is no way to
    detach it, so it is a function that does nothing where no session runs. Where the allocator holds its lock
    as it calls (PyTorch 2.0, known by its recorder) another thread that allocates with the GIL held would
    lock up the process with ours: there is no observer then, and a note says so.

    Args:
        torch: The module.
    """
    for known, stands in _judged:
        if known is torch:
            return stands
    attach = getattr(getattr(torch, "_C", None), "_cuda_attach_out_of_memory_observer", None)
    if attach is None or not torch.cuda.is_initialized():
        return False
    refusal = _REFUSAL if find_recorder(torch) is None else _try_to_attach(attach)
    _judged.append((torch, refusal is None))
    if refusal is not None:
        current.failures.append(refusal)
    return refusal is None


def is_observer_settled(torch: Module) -> bool:
    """Tell whether nothing is left to attach: the observer stands, was refused, or this build knows none.

    Args:
        torch: The module.
    """
    has_none = getattr(getattr(torch, "_C", None), "_cuda_attach_out_of_memory_observer", None) is None
    return has_none or any(known is torch for known, _ in _judged)


def _try_to_attach(attach: Foreign) -> str | None:
    """Attach, and return why that was refused: an allocator that is plugged in takes no observer."""
    try:
        attach(tell_out_of_memory)
    except RuntimeError as error:
        return f"out-of-memory errors leave no record: the allocator takes no observer ({error})"[:300]
    return None


def tell_out_of_memory(device: int, size_bytes: int, total_bytes: int, free_bytes: int) -> None:
    """Write the record of an error that the allocator is about to raise.

    Whatever it raised would be thrown into the allocator, so nothing leaves it. A Ctrl-C that falls into it
    is meant for the program, which gets it as soon as the observer is left.

    Args:
        device: Ordinal of the device.
        size_bytes: Bytes that the allocator asked the device for.
        total_bytes: Bytes that the process may use of the device.
        free_bytes: Bytes that the device has free.
    """
    session = current.session
    if session is None and not current.oom_takers:
        return
    message = f"CUDA out of memory: {size_bytes} bytes were asked for, {free_bytes} are free"
    try:
        current.tell_takers(size_bytes, message, free_bytes, device, total_bytes)
        if session is not None:
            session.record_out_of_memory(size_bytes, message, free_bytes, device, total_bytes)
    except KeyboardInterrupt as error:
        current.note_failure("the record of an out-of-memory error", error)
        _interrupt_afterwards()
    except BaseException as error:  # noqa: BLE001 - an exception here would end in C++
        current.note_failure("the record of an out-of-memory error", error)


def _interrupt_afterwards() -> None:
    """Let another thread interrupt the main one: from here the interrupt would be raised right here."""
    try:
        _thread.start_new_thread(_interrupt_once_left, ())
    except RuntimeError as error:
        current.note_failure("giving a Ctrl-C back to the program", error)


def _interrupt_once_left() -> None:
    for _ in repeat(None, _MOST_LOOKS):
        time.sleep(_LOOK_EVERY_S)
        if not _is_telling():
            break
    _thread.interrupt_main()


def _is_telling() -> bool:
    """Tell whether the main thread is inside the observer."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code is not tell_out_of_memory.__code__:
        frame = frame.f_back
    return frame is not None
