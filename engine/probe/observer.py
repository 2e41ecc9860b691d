"""The hook that CUDA's allocator calls before it raises an out-of-memory error.

It stands on a private name of PyTorch (`torch._C._cuda_attach_out_of_memory_observer`), which builds for the
CPU lack; it has not been run on a GPU yet. On a simulated device the simulation calls the same entry itself.
"""

from __future__ import annotations

from . import current
from .foreign import Module

_attached: set[int] = set()


def attach_observer(torch: Module) -> bool:
    """Attach the one observer of this process, and tell whether it stands.

    Only after the runtime was initialised: before that the call crashes the process. There is no way to
    detach it, so it is a function that does nothing where no session runs.

    Args:
        torch: The module.
    """
    attach = getattr(getattr(torch, "_C", None), "_cuda_attach_out_of_memory_observer", None)
    if attach is None or not torch.cuda.is_initialized():
        return False
    if id(torch) not in _attached:
        _attached.add(id(torch))
        attach(tell_out_of_memory)
    return True


def tell_out_of_memory(device: int, size_bytes: int, total_bytes: int, free_bytes: int) -> None:
    """Write the record of an error that the allocator is about to raise.

    Whatever it raised would be thrown into the allocator, so nothing leaves it.

    Args:
        device: Ordinal of the device.
        size_bytes: Bytes that the allocator asked the device for.
        total_bytes: Bytes that the process may use of the device.
        free_bytes: Bytes that the device has free.
    """
    session = current.session
    if session is None:
        return
    message = f"CUDA out of memory: {size_bytes} bytes were asked for, {free_bytes} are free"
    try:
        session.record_out_of_memory(size_bytes, message, free_bytes, device, total_bytes)
    except BaseException as error:  # noqa: BLE001 - an exception here would end in C++
        current.note_failure("the record of an out-of-memory error", error)
