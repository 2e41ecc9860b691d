"""What a program of JAX has on its devices: asked by attribute, and never before the program has used them.

To ask JAX for its devices would make it take most of each card, so nothing is asked until its runtime is up.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import time
from types import SimpleNamespace
from typing import Any

from .backends import NOTHING, Backend, Reading
from .base.foreign import Foreign, Module
from .flight_record import MOST_FRAMES, MOST_STACKS, Frames

# Between two walks through all arrays, where a device has no statistics.
_WALK_S = 1.0
_MOST_DEVICES = 64
# A larger profile is not read: it would hold the interpreter's lock for long.
_MOST_PROFILE_BYTES = 32 << 20
_MOST_FILE_BYTES = 4 << 20


def find_jax() -> Module:
    """Return JAX if the program has loaded it and its runtime is up, else None."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    ask = getattr(bridge, "backends_are_initialized", None)
    is_up = bool(getattr(bridge, "_backends", None)) if ask is None else bool(ask())
    return sys.modules.get("jax") if is_up else None


def preallocates(environ: dict[str, str]) -> bool:
    """Return whether JAX takes a share of each GPU when it first uses it."""
    is_off = environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "").lower() in ("false", "0")
    return not is_off and environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "").lower() != "platform"


def describe_preallocation(environ: dict[str, str]) -> str:
    """Say how JAX takes the memory of a GPU, by the variables that it reads when it starts.

    Source: docs.jax.dev/en/latest/gpu_memory_allocation.html.
    """
    if environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "").lower() == "platform":
        return "JAX takes and frees each array at the driver (XLA_PYTHON_CLIENT_ALLOCATOR=platform)"
    if not preallocates(environ):
        return "JAX takes device memory when it needs it, and keeps it (XLA_PYTHON_CLIENT_PREALLOCATE=false)"
    share = read_fraction(environ)
    return (
        f"JAX preallocated {100 * share:.0f} % of the device: how full it looks says nothing of what lives "
        "in it; XLA_PYTHON_CLIENT_PREALLOCATE=false takes memory when it is needed"
    )


def read_fraction(environ: dict[str, str]) -> float:
    """Return the share of each GPU that JAX takes."""
    for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        try:
            share = float(environ.get(name, ""))
        except ValueError:
            continue
        if share > 0:
            return share
    return 0.75


class JaxBackend(Backend):
    """Reads `memory_stats` of the devices, or where they have none, as on the host, adds up all arrays."""

    def __init__(self, jax: Module) -> None:
        self._jax = jax
        self._devices: list[Foreign] = list(jax.local_devices())[:_MOST_DEVICES]
        self._walked: dict[int, tuple[float, int]] = {}
        platform = str(self._devices[0].platform) if self._devices else "cpu"
        self.is_gpu = platform in ("gpu", "cuda", "rocm")
        if self.is_gpu:
            client = getattr(self._devices[0], "client", None)
            is_rocm = "rocm" in f"{platform} {getattr(client, 'platform_version', '')}".lower()
            self.name = "rocm" if is_rocm else "cuda"
        else:
            self.name = "cpu" if platform == "cpu" else None
        self.platform = platform
        self.device_type = "cuda" if self.is_gpu else f"jax {platform}"
        # It answers for a device itself.
        self.module = self

    def is_in_use(self) -> bool:
        return self.find_device() is not None

    def find_device(self) -> int | None:
        held = self.find_held()
        return max(held, key=lambda index: (held[index], -index)) if held else None

    def find_held(self) -> dict[int, int]:
        held = {index: reading.allocated_bytes or 0 for index, reading in enumerate(self.read_all())}
        return {index: size for index, size in held.items() if size}

    def read(self, device: int | None) -> Reading:
        if device is None or device >= len(self._devices):
            return NOTHING
        stats = self.read_statistics(device)
        if not stats:
            return Reading(allocated_bytes=self._add_up_arrays(device))
        return Reading(
            allocated_bytes=stats.get("bytes_in_use"),
            reserved_bytes=stats.get("pool_bytes"),
            peak_bytes=stats.get("peak_bytes_in_use"),
            allocations=stats.get("num_allocs"),
        )

    def read_all(self) -> list[Reading]:
        return [self.read(index) for index in range(len(self._devices))]

    def read_statistics(self, device: int | None) -> dict[str, Any]:
        if device is None:
            return {}
        try:
            return self._devices[device].memory_stats() or {}
        except (RuntimeError, NotImplementedError, AttributeError):
            return {}

    def read_limit(self, device: int | None) -> int | None:
        limit = self.read_statistics(device).get("bytes_limit")
        return int(limit) if limit else None

    def note(self) -> str | None:
        return describe_preallocation(dict(os.environ)) if self.is_gpu else None

    def get_device_properties(self, index: int) -> Foreign:
        """Return what JAX knows of a device; it does not say how much memory it has in all."""
        return SimpleNamespace(name=str(getattr(self._devices[index], "device_kind", "")) or None)

    def find_live_stacks(self, device: int | None) -> list[tuple[int, int, Frames]] | None:
        """Return bytes, number and frames of the arrays on a device by the lines that made them."""
        if device is None:
            return None
        found = read_profile(self._jax.profiler.device_memory_profile(), int(self._devices[device].id))
        return None if found is None else [(size, count, _skip_jax(frames)) for size, count, frames in found]

    def _add_up_arrays(self, device: int) -> int:
        """Return the bytes of all arrays that have a part on a device."""
        now_s = time.monotonic()
        walked_s, size = self._walked.get(device, (float("-inf"), 0))
        if now_s - walked_s < _WALK_S:
            return size
        size = 0
        for array in self._jax.live_arrays():
            try:
                if self._devices[device] in array.devices():
                    shape = array.sharding.shard_shape(array.shape)
                    part = array.dtype.itemsize
                    for length in shape:
                        part *= int(length)
                    size += part
            except (RuntimeError, AttributeError):
                continue  # it was deleted meanwhile
        self._walked[device] = now_s, size
        return size


def _skip_jax(frames: Frames) -> Frames:
    """Return a stack from the innermost frame on that is not JAX's own; all of it if there is none."""
    own = (f"{os.sep}site-packages{os.sep}jax{os.sep}", f"{os.sep}site-packages{os.sep}jaxlib{os.sep}")
    first = next((at for at, frame in enumerate(frames) if not any(it in frame[0] for it in own)), 0)
    return frames[first:]


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10
_NUMBER = re.compile(r"[0-9]{1,9}$")


def read_profile(packed: bytes, device: int) -> list[tuple[int, int, Frames]] | None:
    """Return the arrays of one device of JAX's profile, a pprof file; None where it is too large.

    Format: github.com/google/pprof, proto/profile.proto.

    Args:
        device: Its number, with which the name in the profile ends: `TFRT_CPU_0`, `cuda:0`.
    """
    if len(packed) > _MOST_FILE_BYTES:
        return None
    data = gzip.decompress(packed)
    if len(data) > _MOST_PROFILE_BYTES:
        return None
    fields: dict[int, list[Any]] = {}
    for number, value in _read_fields(data):
        fields.setdefault(number, []).append(value)
    texts = [bytes(it).decode("utf-8", "replace")[:300] for it in fields.get(6, ())]
    functions = {}
    for function in fields.get(5, ()):
        found = dict(_read_fields(function))
        functions[found.get(1, 0)] = texts[found.get(4, 0)], texts[found.get(2, 0)]
    places = {}
    for location in fields.get(4, ()):
        found = dict(_read_fields(location))
        line = dict(_read_fields(found.get(4, b"")))
        file, name = functions.get(line.get(1, 0), ("", ""))
        places[found.get(1, 0)] = file, int(line.get(2, 0)), name
    sums: dict[Frames, list[int]] = {}
    for sample in fields.get(2, ()):
        _add_sample(sums, sample, texts, places, device)
    largest = sorted(sums.items(), key=lambda it: -it[1][0])[:MOST_STACKS]
    return [(size, count, frames) for frames, (size, count) in largest]


def _add_sample(
    sums: dict[Frames, list[int]],
    sample: bytes,
    texts: list[str],
    places: dict[int, tuple[str, int, str]],
    device: int,
) -> None:
    """Add a sample, which has a count and bytes, if it is of an array on the device."""
    locations: list[int] = []
    values: list[int] = []
    labels: dict[str, str] = {}
    for field, value in _read_fields(sample):
        if field == 3:
            label = dict(_read_fields(value))
            labels[texts[label.get(1, 0)]] = texts[label.get(2, 0)]
        elif field in (1, 2):
            (locations if field == 1 else values).extend(
                _read_numbers(value) if isinstance(value, bytes) else [value]
            )
    number = _NUMBER.search(labels.get("device", ""))
    if labels.get("kind") != "buffer" or number is None or int(number[0]) != device or len(values) < 2:
        return
    frames = tuple(places[it] for it in locations[:MOST_FRAMES] if it in places)
    if frames:
        entry = sums.setdefault(frames, [0, 0])
        entry[0] += values[1]
        entry[1] += values[0]


def _read_fields(data: bytes) -> list[tuple[int, Any]]:
    """Return the fields of a message; a ValueError where it is damaged."""
    found: list[tuple[int, Any]] = []
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        kind = key & 7
        value: Any
        if kind == _VARINT:
            value, at = _read_varint(data, at)
        elif kind == _BYTES:
            length, at = _read_varint(data, at)
            value = data[at : at + length]
            at += length
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
            value = data[at : at + length]
            at += length
        else:
            raise ValueError(f"a field of an unknown kind, {kind}")
        found.append((key >> 3, value))
    return found


def _read_numbers(data: bytes) -> list[int]:
    found = []
    at = 0
    while at < len(data):
        number, at = _read_varint(data, at)
        found.append(number)
    return found


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_MOST_VARINT_BYTES):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at
    raise ValueError("a number is cut short")
