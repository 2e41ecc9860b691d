"""Which device a process uses, spelled as NVML spells it, so that the hub can match the two."""

from __future__ import annotations

import os
from typing import Any

from .backends import Backend
from .base.foreign import Module, Properties


def identify_device(backend: Backend, index: int | None) -> dict[str, Any] | None:
    """Return the fields of a `ProbedDevice`, or None for a process without one.

    Only to be asked once the program has initialised the device.

    Args:
        backend: Where the tensors live.
        index: Ordinal within the process.
    """
    if index is None or backend.module is None:
        return None
    simulated = find_simulation(backend.module)
    if simulated is not None:
        return {
            "index": index,
            "uuid": f"sim-{simulated.get('job')}-{simulated.get('index', index)}",
            "name": _text(simulated.get("name")) or "simulated device",
            "total_bytes": simulated.get("total_bytes"),
        }
    ask = getattr(backend.module, "get_device_properties", None)
    properties = ask(index) if ask is not None else None
    return {
        "index": index,
        "uuid": _find_uuid(properties, index) if backend.device_type == "cuda" else None,
        "name": _text(getattr(properties, "name", None)),
        "total_bytes": getattr(properties, "total_memory", None),
        "pci_bus_id": _spell_bus(properties),
    }


def find_simulation(module: Module) -> dict[str, Any] | None:
    """Return what the simulated device says of itself, or None where the device is real."""
    found = getattr(module, "_vramscope_simulated", None)
    return found if isinstance(found, dict) else None


def find_capacity(backend: Backend, index: int | None, total_bytes: int | None) -> int | None:
    """Return the bytes that the allocator may reserve, where it was limited below the device's total."""
    ask = getattr(backend.module, "get_per_process_memory_fraction", None)
    if ask is None or index is None or not total_bytes:
        return None
    try:
        fraction = float(ask(index))
    except RuntimeError:
        # An allocator that is plugged in keeps no such limit.
        return None
    return int(fraction * total_bytes) if 0 < fraction < 1 else None


def _find_uuid(properties: Properties, index: int) -> str | None:
    """Return the UUID as NVML spells it; what CUDA_VISIBLE_DEVICES names outright is taken from there."""
    named = _named_device(index)
    if named.startswith("MIG-"):
        return named
    uuid = _text(getattr(properties, "uuid", None))
    if uuid:
        return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    return named if named.startswith("GPU-") and len(named) == len("GPU-") + 36 else None


def _named_device(index: int) -> str:
    entries = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return entries[index].strip() if index < len(entries) else ""


def _spell_bus(properties: Properties) -> str | None:
    bus = getattr(properties, "pci_bus_id", None)
    device = getattr(properties, "pci_device_id", None)
    if not isinstance(bus, int) or not isinstance(device, int):
        return None
    domain = getattr(properties, "pci_domain_id", 0)
    return f"{domain:08X}:{bus:02X}:{device:02X}.0"


def _text(value: object) -> str | None:
    return None if value is None else str(value)
