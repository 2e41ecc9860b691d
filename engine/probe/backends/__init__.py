"""Where the tensors of a process live, found by the attributes that torch has and never by its version."""

from __future__ import annotations

from .backend import Backend, HostBackend
from .reading import NOTHING, Reading
from .selection import find_backend, read_before_use

__all__ = ["NOTHING", "Backend", "HostBackend", "Reading", "find_backend", "read_before_use"]
