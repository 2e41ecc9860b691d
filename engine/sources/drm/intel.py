"""Intel GPUs through the kernel drivers i915 and xe: clocks and limits by files, size of memory by a query.

Every program on such a GPU makes that query (DRM_IOCTL_…_QUERY). Layouts: the kernel's
`include/uapi/drm/i915_drm.h` (`drm_i915_query_memory_regions`) and `xe_drm.h` (`drm_xe_query_mem_regions`).
Without CAP_PERFMON nobody learns how much is used, so it is not asked.
"""

import ctypes
import os
import struct
from pathlib import Path

from ...model import DeviceActivity, DeviceHardware, ThrottleReason
from ..kernel_files import NumberFile, list_names, parse_number, read_bytes
from ..source import HardwareReading
from .reader import DrmReader

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


# Limits of the drivers' files `throttle/reason_…` (xe) and `throttle_reason_…` (i915).
_REASONS: dict[str, ThrottleReason] = {
    **dict.fromkeys(("pl1", "pl2", "psys_pl1", "psys_pl2"), "power cap"),
    **dict.fromkeys(("pl4", "iccmax", "vr_tdc", "fastvmode", "psys_crit"), "hardware slowdown"),
    **dict.fromkeys(("thermal", "ratl", "soc_thermal", "soc_avg_thermal", "mem_thermal"), "thermal slowdown"),
    **dict.fromkeys(("prochot", "vr_thermalert", "vr_thermal"), "hardware thermal slowdown"),
}
_XE_PART = "tile0/gt0/freq0"


class IntelReader(DrmReader):
    """Reads one GPU."""

    # Whether the driver was asked for the size of memory.
    _is_asked = False
    _total_bytes: int | None = None

    def find_total(self) -> int | None:
        if not self._is_asked:
            self._is_asked = True
            node = self._card.find_render_node()
            if node is not None:
                self._total_bytes = ask_size(self._card.driver, self._shared.root / "dev/dri" / node)
            if self._total_bytes is None and self._card.driver == "xe":
                self._total_bytes = self._read_physical_bytes()
        return self._total_bytes

    def _read_physical_bytes(self) -> int | None:
        """Return the size of the memory chips, a little more than what programs may use."""
        tiles = (name for name in list_names(self._folder) if name.startswith("tile"))
        sizes = [NumberFile(self._folder / tile / "physical_vram_size_bytes").read() for tile in tiles]
        return sum(size for size in sizes if size is not None) or None

    def read_hardware_now(self) -> HardwareReading:
        if self._card.driver == "xe":
            folder = self._folder / _XE_PART
            clock = "act_freq"
            clock_max = "max_freq"
            prefix = "throttle/reason_"
        else:
            names = sorted(name for name in list_names(self._folder / "drm") if name.startswith("card"))
            folder = self._folder / "drm" / (names[0] if names else "") / "gt/gt0"
            clock = "rps_act_freq_mhz"
            clock_max = "rps_max_freq_mhz"
            prefix = "throttle_reason_"
        reasons: list[ThrottleReason] = []
        is_known = False
        for name, reason in _REASONS.items():
            flag = read_bytes(folder / f"{prefix}{name}", 16)
            is_known |= flag is not None
            if parse_number(flag) and reason not in reasons:
                reasons.append(reason)
        return HardwareReading(
            DeviceActivity(
                sm_clock_mhz=NumberFile(folder / clock).read(),
                throttle_reasons=tuple(reasons) if is_known else None,
            ),
            DeviceHardware(
                driver_version=self.driver_version,
                power_limit_w=self.read_power_limit_w(),
                sm_clock_max_mhz=NumberFile(folder / clock_max).read(),
                fan_percent=self.read_fan_percent(),
            ),
        )
