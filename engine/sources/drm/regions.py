"""The size of an Intel GPU's memory, by the query that every program on it makes (DRM_IOCTL_…_QUERY).

Layouts: the kernel's `include/uapi/drm/i915_drm.h` (`drm_i915_query_memory_regions`) and `xe_drm.h`
(`drm_xe_query_mem_regions`). How much is used is told to nobody without CAP_PERFMON, so it is not asked.
"""

import ctypes
import os
import struct
from pathlib import Path

_MOST_BYTES = 1 << 16
_MOST_REGIONS = 64
# _IOWR('d', 0x40 + 0x39, 16) and _IOWR('d', 0x40 + 0x00, 40).
_I915_QUERY = 0xC0106479
_XE_QUERY = 0xC0286440
_I915_MEMORY_REGIONS = 4
_XE_MEMORY_REGIONS = 1
_I915_HEAD = struct.Struct("<I12x")
# Class, instance, reserved, bytes; then the rest of 88.
_I915_REGION = struct.Struct("<HHIQ72x")
_XE_HEAD = struct.Struct("<I4x")
_XE_REGION = struct.Struct("<HHIQ72x")
# Memory of the device, in both drivers; 0 is the host's.
_OF_DEVICE = 1


def parse_regions(driver: str, data: bytes) -> int | None:
    """Return the bytes of the device's own memories; None if it has none, or the answer is cut short."""
    head, region = (_I915_HEAD, _I915_REGION) if driver == "i915" else (_XE_HEAD, _XE_REGION)
    if len(data) < head.size:
        return None
    (count,) = head.unpack_from(data)
    if count > _MOST_REGIONS or len(data) < head.size + count * region.size:
        return None
    found = (region.unpack_from(data, head.size + number * region.size) for number in range(count))
    return sum(size for kind, _, _, size in found if kind == _OF_DEVICE) or None


def ask_size(driver: str, node: Path) -> int | None:
    """Ask the driver through a render node; None if this user may not open it, or it does not answer.

    Call it only while the GPU is awake.
    """
    import fcntl

    try:
        descriptor = os.open(node, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        size = 0
        for _ in range(2):  # the first answer is the size of the second
            answer = ctypes.create_string_buffer(size or 1)
            address = ctypes.addressof(answer) if size else 0
            if driver == "i915":
                item = ctypes.create_string_buffer(
                    struct.pack("<QiIQ", _I915_MEMORY_REGIONS, size, 0, address), 24
                )
                query = bytearray(struct.pack("<IIQ", 1, 0, ctypes.addressof(item)))
                fcntl.ioctl(descriptor, _I915_QUERY, query)
                (size,) = struct.unpack_from("<i", item.raw, 8)
            else:
                query = bytearray(struct.pack("<QIIQQQ", 0, _XE_MEMORY_REGIONS, size, address, 0, 0))
                fcntl.ioctl(descriptor, _XE_QUERY, query)
                (size,) = struct.unpack_from("<I", query, 12)
            if not 0 < size <= _MOST_BYTES:
                return None
        return parse_regions(driver, answer.raw[:size])
    except OSError:
        return None
    finally:
        os.close(descriptor)
