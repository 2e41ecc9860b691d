"""Which backend a process uses: asked only of parts of torch that the program itself has initialised."""

from __future__ import annotations

from collections.abc import Iterator

from ..base.foreign import Module
from .accelerators import AcceleratorBackend, MetalBackend
from .allocator import AllocatorBackend
from .backend import Backend, HostBackend
from .reading import Reading


def find_backend(torch: Module, parameters_on: str | None) -> Backend | None:
    """Return the backend where the tensors live, or None while nothing tells.

    Args:
        torch: The module.
        parameters_on: Device type of the parameters that an optimizer has stepped; None before that.
    """
    found = list(_initialised(torch, parameters_on))
    for backend in found:
        if backend.device_type == parameters_on:
            return backend
    # Optimizers that are offloaded step parameters on the host while the model lives on the device.
    for backend in found:
        if backend.is_in_use():
            return backend
    return HostBackend() if parameters_on == "cpu" else None


def read_before_use(torch: Module) -> Reading:
    """Return what is held while no device is in use: nothing live, and the most that any device ever held.

    Args:
        torch: The module.
    """
    readings = [reading for backend in _initialised(torch, None) for reading in backend.read_all()]
    cached = max((it.reserved_bytes or 0 for it in readings), default=0)
    peak = max((it.peak_bytes or 0 for it in readings), default=0)
    return Reading(allocated_bytes=0, reserved_bytes=None if cached else 0, peak_bytes=peak)


def _initialised(torch: Module, parameters_on: str | None) -> Iterator[Backend]:
    cuda = getattr(torch, "cuda", None)
    xpu = getattr(torch, "xpu", None)
    if _is_initialised(cuda):
        is_rocm = getattr(getattr(torch, "version", None), "hip", None) is not None
        yield AllocatorBackend(cuda, "rocm" if is_rocm else "cuda", "cuda")
    if _is_initialised(xpu) and hasattr(xpu, "memory_stats"):
        yield AllocatorBackend(xpu, "xpu", "xpu")
    if parameters_on not in {None, "cpu", "cuda"}:
        yield from _others(torch, str(parameters_on))


def _others(torch: Module, device_type: str) -> Iterator[Backend]:
    """Yield what may answer for parameters on another device: they are there, so it is initialised."""
    accelerator = getattr(torch, "accelerator", None)
    module = getattr(torch, device_type, None)
    if accelerator is not None and hasattr(accelerator, "memory_stats") and device_type != "mps":
        current = accelerator.current_accelerator()
        if current is not None and current.type == device_type:
            yield AcceleratorBackend(accelerator, module, device_type)
    if device_type == "mps" and hasattr(module, "current_allocated_memory"):
        yield MetalBackend(module)


def _is_initialised(module: Module) -> bool:
    ask = getattr(module, "is_initialized", None)
    return ask is not None and bool(ask())
