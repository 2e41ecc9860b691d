"""One reading of a caching allocator, from the statistics of PyTorch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from .base.foreign import Foreign, Module


class Reading(NamedTuple):
    """Counters at one moment; None if this allocator does not have one."""

    allocated_bytes: int | None = None
    requested_bytes: int | None = None
    active_bytes: int | None = None
    reserved_bytes: int | None = None
    inactive_split_bytes: int | None = None
    retries: int | None = None
    ooms: int | None = None
    # Most allocated bytes since the start, or since the program reset its peak.
    peak_bytes: int | None = None
    # Since the start, as `frees`.
    allocations: int | None = None
    frees: int | None = None


NOTHING = Reading()
# Makes a reading of a tuple without the function that a named tuple has for it.
_make = tuple.__new__


def read_nested(stats: dict[str, Any]) -> Reading:
    """Read the result of `memory_stats_as_nested_dict()`; NOTHING if it is empty."""
    try:
        # What most statistics have, looked up at once.
        allocated = stats["allocated_bytes"]["all"]
        allocation = stats["allocation"]["all"]
        figures = (
            allocated["current"],
            stats["requested_bytes"]["all"]["current"],
            stats["active_bytes"]["all"]["current"],
            stats["reserved_bytes"]["all"]["current"],
            stats["inactive_split_bytes"]["all"]["current"],
            stats["num_alloc_retries"],
            stats["num_ooms"],
            allocated["peak"],
            allocation["allocated"],
            allocation["freed"],
        )
    except (KeyError, TypeError):
        # Older PyTorch, or before the first allocation.
        return _read_part(stats)
    return _make(Reading, figures)


def _read_part(stats: dict[str, Any]) -> Reading:
    if not stats:
        return NOTHING
    allocated = _of_all_pools(stats, "allocated_bytes")
    allocation = _of_all_pools(stats, "allocation")
    return Reading(
        allocated.get("current"),
        _of_all_pools(stats, "requested_bytes").get("current"),
        _of_all_pools(stats, "active_bytes").get("current"),
        _of_all_pools(stats, "reserved_bytes").get("current"),
        _of_all_pools(stats, "inactive_split_bytes").get("current"),
        stats.get("num_alloc_retries"),
        stats.get("num_ooms"),
        allocated.get("peak"),
        allocation.get("allocated"),
        allocation.get("freed"),
    )


def read_flat(stats: dict[str, Any]) -> Reading:
    """Read the result of `memory_stats()`; NOTHING if it is empty."""
    return Reading(
        stats.get("allocated_bytes.all.current"),
        stats.get("requested_bytes.all.current"),
        stats.get("active_bytes.all.current"),
        stats.get("reserved_bytes.all.current"),
        stats.get("inactive_split_bytes.all.current"),
        stats.get("num_alloc_retries"),
        stats.get("num_ooms"),
        stats.get("allocated_bytes.all.peak"),
        stats.get("allocation.all.allocated"),
        stats.get("allocation.all.freed"),
    )


def flatten(stats: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested statistics to dotted names, as in `memory_stats()`."""
    flat: dict[str, Any] = {}
    for name, value in stats.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _of_all_pools(stats: dict[str, Any], name: str) -> dict[str, Any]:
    group = stats.get(name)
    found = group.get("all") if group else None
    return found if found is not None else {}


class Backend:
    """Answers about one kind of device. No call may create a context or wait for the device."""

    # In the protocol: `cuda`, `rocm`, `xpu`, `mps` or `cpu`; None for another accelerator.
    name: str | None = None
    # `torch.device.type`
    device_type: str = "cpu"
    # The part of torch that answers for it (`torch.cuda`), or None.
    module: Module = None

    def is_in_use(self) -> bool:
        return False

    def find_device(self) -> int | None:
        """Return the ordinal of the device with most bytes of this process."""
        return None

    def find_held(self) -> dict[int, int]:
        """Return bytes of the allocator by ordinal, where it has any."""
        return {}

    def read(self, device: int | None) -> Reading:
        return NOTHING

    def read_all(self) -> list[Reading]:
        return []

    def read_pinned(self) -> int | None:
        """Bytes of pinned host memory."""
        return None

    def read_statistics(self, device: int | None) -> dict[str, Any]:
        """Every statistic of the allocator, flat."""
        return {}

    def read_limit(self, device: int | None) -> int | None:
        """Most bytes that the allocator will take, where it says so itself."""
        return None

    def find_live_stacks(self, device: int | None) -> list[tuple[int, int, Foreign]] | None:
        """Bytes, number and frames of what lives, by stack, where the framework lists it by itself."""
        return None

    def note(self) -> str | None:
        """What a reader of the values should know, in one sentence."""
        return None


class HostBackend(Backend):
    """A process that trains on the host: only its resident memory is known."""

    name = "cpu"


_MOST_DEVICES = 64
_EXPANDABLE = "expandable_segments:true"
# After so many in a row the allocator is not asked again: it has no statistics, and each refusal is dear.
_MOST_REFUSALS = 3


class AllocatorBackend(Backend):
    """Reads `torch.cuda`, or a module with the same names, once the program has initialised the runtime.

    It reads the nested statistics if there are any: to make the flat ones PyTorch sorts 120 texts while it
    holds the interpreter's lock.

    Args:
        module: `torch.cuda` or `torch.xpu`.
    """

    def __init__(self, module: Module, name: str, device_type: str) -> None:
        self.module = module
        self.name = name
        self.device_type = device_type
        nested = getattr(module, "memory_stats_as_nested_dict", None)
        self._ask: Foreign = getattr(module, "memory_stats", _say_nothing) if nested is None else nested
        self._understand = read_flat if nested is None else read_nested
        self._refusals = 0
        nested = getattr(module, "host_memory_stats_as_nested_dict", None)
        self._pinned = getattr(module, "host_memory_stats", None) if nested is None else nested
        self._is_asynchronous = _is_asynchronous(module)
        self._is_expandable = _EXPANDABLE in allocator_settings().lower().replace(" ", "")
        self._is_partial = self._is_asynchronous or self._is_expandable

    def is_in_use(self) -> bool:
        """True also if the allocator refuses to answer."""
        return self.find_device() is not None or bool(self._refusals)

    def find_device(self) -> int | None:
        """Return the ordinal of the device with most allocated bytes, of those that have any.

        If the allocator does not answer, the only device there is.
        """
        readings = self.read_all()
        held = [(reading.allocated_bytes or 0, -index) for index, reading in enumerate(readings)]
        most, negative = max(held, default=(0, 0))
        if self._refusals and len(readings) == 1:
            return 0
        return -negative if most else None

    def find_held(self) -> dict[int, int]:
        held = {
            index: it.reserved_bytes or it.allocated_bytes or 0 for index, it in enumerate(self.read_all())
        }
        return {index: bytes_ for index, bytes_ in held.items() if bytes_}

    def read(self, device: int | None) -> Reading:
        """Read the values; those that nobody counts are left out.

        They are read at once, while the dicts that PyTorch made are in the caches: to keep those and free
        them later costs as much again as to make them.
        """
        if device is None:
            return NOTHING
        try:
            reading = self._understand(self._ask(device))
        except RuntimeError:
            self._note_refusal()
            return NOTHING
        if self._refusals and self._ask is not _say_nothing:
            self._refusals = 0
        return self._correct(reading) if self._is_partial else reading

    def read_all(self) -> list[Reading]:
        count = min(int(self.module.device_count()), _MOST_DEVICES)
        return [self.read(index) for index in range(count)]

    def read_pinned(self) -> int | None:
        """Return bytes of pinned host memory of the caching host allocator, in use or cached.

        PyTorch has used one name for two things: with `active_bytes` next to it, `allocated_bytes` is all
        memory; without it `allocated_bytes` is memory in use, and `reserved_bytes` all.
        """
        if self._pinned is None:
            return None
        try:
            stats = self._pinned()
        except RuntimeError:
            return None
        has_active = "active_bytes" in stats or "active_bytes.current" in stats
        name = "allocated_bytes" if has_active else "reserved_bytes"
        held = stats.get(name)
        if isinstance(held, dict):
            held = held.get("all", held).get("current")
        found: int | None = held if held is not None else stats.get(f"{name}.current")
        return found

    def read_statistics(self, device: int | None) -> dict[str, Any]:
        try:
            return {} if device is None else flatten(self._ask(device))
        except RuntimeError:
            self._note_refusal()
            return {}

    def note(self) -> str | None:
        """Which values the allocator leaves out."""
        if self._refusals:
            return "the allocator of this process reports no sizes"
        if self._is_asynchronous:
            return "the allocator is cudaMallocAsync, which reports only allocated and reserved bytes"
        return None

    def _note_refusal(self) -> None:
        """Count a RuntimeError, as raised by a plugged-in allocator.

        For example RMM's, by `torch.cuda.memory.CUDAPluggableAllocator`.
        """
        self._refusals += 1
        if self._refusals >= _MOST_REFUSALS:
            self._ask = _say_nothing

    def _correct(self, reading: Reading) -> Reading:
        """Drop values that are 0 because nobody counts them."""
        if self._is_asynchronous:
            return Reading(
                allocated_bytes=reading.allocated_bytes,
                reserved_bytes=reading.reserved_bytes,
                peak_bytes=reading.peak_bytes,
            )
        if self._is_expandable and reading.inactive_split_bytes == 0:
            return reading._replace(inactive_split_bytes=None)
        return reading


def allocator_settings() -> str:
    """The settings of PyTorch's allocator in the environment, or ""."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _say_nothing(_device: int) -> dict[str, Any]:
    return {}


def _is_asynchronous(module: Module) -> bool:
    ask = getattr(module, "get_allocator_backend", None)
    try:
        return ask is not None and ask() == "cudaMallocAsync"
    except (AttributeError, RuntimeError):
        # A CPU build has the name and nothing behind it.
        return False


class AcceleratorBackend(Backend):
    """Reads `torch.accelerator`, the one accelerator of this build of torch."""

    def __init__(self, accelerator: Module, module: Module, device_type: str) -> None:
        self.module = module
        self.device_type = device_type
        self.name = device_type if device_type in {"xpu", "mps"} else None
        self._accelerator = accelerator

    def is_in_use(self) -> bool:
        return self.find_device() is not None

    def find_device(self) -> int | None:
        """Return the ordinal of the first device with bytes of this process."""
        for index in range(int(self._accelerator.device_count())):
            if self.read(index).allocated_bytes:
                return index
        return None

    def read(self, device: int | None) -> Reading:
        """`torch.accelerator.memory_stats`; NOTHING before the first allocation."""
        return NOTHING if device is None else read_flat(self._accelerator.memory_stats(device))

    def read_statistics(self, device: int | None) -> dict[str, Any]:
        return {} if device is None else dict(self._accelerator.memory_stats(device))

    def note(self) -> str | None:
        """Name an accelerator that has no name in the protocol."""
        return None if self.name else f"the tensors are on the accelerator {self.device_type}"


class MetalBackend(Backend):
    """Reads `torch.mps`: allocated bytes, and the driver's for them; it has no peak."""

    name = "mps"
    device_type = "mps"

    def __init__(self, module: Module) -> None:
        self.module = module

    def is_in_use(self) -> bool:
        """Asked only once parameters were seen there."""
        return bool(self.module.current_allocated_memory())

    def find_device(self) -> int | None:
        return 0

    def read(self, device: int | None) -> Reading:
        """Return allocated bytes, and the driver's, which include the cache."""
        allocated = self.module.current_allocated_memory()
        held = self.module.driver_allocated_memory()
        return Reading(allocated_bytes=int(allocated), reserved_bytes=int(held))


def find_backend(torch: Module, parameters_on: str | None) -> Backend | None:
    """Return the backend of the tensors, or None while it is unknown.

    Args:
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


def find_used(torch: Module) -> tuple[Backend, int] | None:
    """Return the device that had most bytes at any time, else one that refused some.

    For a process that has freed them all, or whose first request of all has failed.
    """
    for backend in _initialised(torch, None):
        peaks = [reading.peak_bytes or reading.ooms or 0 for reading in backend.read_all()]
        if any(peaks):
            return backend, peaks.index(max(peaks))
    return None


def read_before_use(torch: Module) -> Reading:
    """Before any device is in use: nothing live, and the most that any device ever had."""
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
    if "jax" in sys.modules:
        from .jax_backend import JaxBackend, find_jax

        jax = find_jax()
        if jax is not None:
            backend = JaxBackend(jax)
            # A program that trains with torch on the host is one of torch.
            if backend.name != "cpu" or parameters_on != "cpu":
                yield backend


def _others(torch: Module, device_type: str) -> Iterator[Backend]:
    """Yield what may answer for parameters on another device: they exist, so it is initialised."""
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
