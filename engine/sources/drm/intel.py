"""Intel GPUs through the files of the kernel drivers i915 and xe: clocks, limits, and the size of memory."""

from ...model import DeviceActivity, DeviceHardware, ThrottleReason
from ..kernel_files import NumberFile, list_names, parse_number, read_bytes
from ..source import HardwareReading
from .reader import DrmReader
from .regions import ask_size

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
            clock, clock_max, prefix = "act_freq", "max_freq", "throttle/reason_"
        else:
            names = sorted(name for name in list_names(self._folder / "drm") if name.startswith("card"))
            folder = self._folder / "drm" / (names[0] if names else "") / "gt/gt0"
            clock, clock_max, prefix = "rps_act_freq_mhz", "rps_max_freq_mhz", "throttle_reason_"
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
