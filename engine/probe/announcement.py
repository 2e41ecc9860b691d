"""Who reports: the content of the hello, put together anew whenever any of it may have changed."""

from __future__ import annotations

import os
import platform
from typing import Any

from .backends.allocator import allocator_settings
from .base import current
from .base.coordinates import Coordinates, find_coordinates
from .base.foreign import Module
from .device_identity import find_capacity, find_simulation, identify_device
from .process import read_command, read_started_s
from .training_device import TrainingDevice
from .wire import DEMANDS

_EVERY_S = 5.0
_OFTEN_S = 60.0
_SELDOM_S = 30.0
"""The layout of ranks and the device settle in the first minute; later little changes."""


class Announcement:
    """Facts about the process and its device.

    Args:
        device: Where it trains.
        job: Which `vramscope run` it belongs to.
    """

    def __init__(self, device: TrainingDevice, job: str | None) -> None:
        self.job = job
        self.notes: list[str] = []
        """Sentences of other parts of the probe that stay true."""
        self.total_bytes: int | None = None
        self.capacity_bytes: int | None = None
        self.coordinates: Coordinates | None = None
        self._device = device
        self._argv = read_command()
        self._fixed = {
            "pid": os.getpid(),
            "started_s": read_started_s(),
            "command": " ".join(self._argv),
            "python": platform.python_version(),
            "torch": _version_of(device.torch),
        }
        self._first_s: float | None = None
        self._next_s = float("-inf")

    def is_due(self, now_s: float) -> bool:
        """Tell whether to look again: every 5 s in the first minute, every 30 s later."""
        if now_s < self._next_s:
            return False
        self._first_s = now_s if self._first_s is None else self._first_s
        self._next_s = now_s + (_EVERY_S if now_s - self._first_s < _OFTEN_S else _SELDOM_S)
        return True

    def compose(self, passing_notes: tuple[str | None, ...] = ()) -> dict[str, Any]:
        """Return the fields of a `Hello`."""
        device = self._device
        backend = device.backend
        identity = identify_device(backend, device.index) if backend is not None else None
        self.total_bytes = identity.get("total_bytes") if identity else None
        self.capacity_bytes = find_capacity(backend, device.index, self.total_bytes) if backend else None
        self.coordinates = find_coordinates(device.meshes)
        simulated = find_simulation(device.module) or {}
        notes = [*self.notes, *passing_notes, backend.note() if backend else None, *current.failures]
        return {
            **self._fixed,
            "job": simulated.get("job") or self.job,
            "backend": backend.name if backend is not None else None,
            "is_simulated": bool(simulated),
            "device": identity,
            "coordinates": self.coordinates,
            "capacity_bytes": self.capacity_bytes,
            "context_bytes": simulated.get("context_bytes"),
            "allocator_settings": allocator_settings() or None,
            "demands": DEMANDS,
            "notes": [str(note) for note in (*notes, *(simulated.get("notes") or ())) if note],
        }

    def describe_for_record(self) -> dict[str, Any]:
        """Return the process as it stands in a flight record."""
        hello = self.compose()
        return {
            "pid": hello["pid"],
            "started_s": hello["started_s"],
            "argv": self._argv,
            "python": hello["python"],
            "torch": hello["torch"],
            "backend": hello["backend"],
            "is_simulated": hello["is_simulated"],
            "rank": hello["coordinates"],
        }


def _version_of(torch: Module) -> str | None:
    version = getattr(torch, "__version__", None)
    return None if version is None else str(version)
