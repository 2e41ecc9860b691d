"""`MemoryProfiler`: current, peak and average memory of each device, from inside a program."""

from pathlib import Path
from typing import Literal, TypedDict

from vramscope.engine.model import HeadroomEstimate
from vramscope.exporters.reports.device_log import DeviceLog
from vramscope.exporters.reports.profile import build_profile
from vramscope.exporters.reports.snapshot_export import ProcessInfo, build_export

from .monitor import MemoryMonitor, publish
from .plotting import plot_device


class DeviceStatus(TypedDict):
    """One device now, in bytes and percent; None is unmeasured."""

    memory_measure: Literal["used", "reserved", "allocated"] | None
    """What `current_used` and `peak_memory` both are: device used where it is known, else the next best."""
    current_used: int | None
    current_free: int | None
    total: int | None
    utilization: float | None
    fragmentation: float | None
    peak_memory: int | None
    """Most of the same measure as `current_used`."""
    current_allocated: int | None
    """Live bytes of the caching allocator."""
    peak_allocated: int | None


class MemoryProfiler(MemoryMonitor):
    """Watches memory in the background and reports what was used.

        with MemoryProfiler(sampling_interval=1.0) as profiler:
            train()
        profiler.generate_report("training_memory_report.json")

    Args:
        devices: Indices of the devices to watch; None for all.
        sampling_interval: Seconds from one snapshot to the next.
        max_snapshots: Snapshots to keep of each device; statistics and peaks are of all.
    """

    def __init__(
        self,
        devices: list[int] | None = None,
        sampling_interval: float = 0.1,
        max_snapshots: int = 10_000,
    ) -> None:
        super().__init__(devices, sampling_interval, max_snapshots)

    def get_current_status(self) -> dict[int, DeviceStatus]:
        """Return each device by its index, as last seen."""
        with self._lock:
            return {device.index: _describe(device) for device in self._log.devices.values()}

    def get_headroom(self) -> dict[int, tuple[HeadroomEstimate, ...]]:
        """Return estimates of the largest step that would fit, in tokens and in samples, by device index.

        They rest on the sizes that the program tells `vramscope.step`. A device of which none are known
        is left out, and an estimate that cannot be made says why in its `reason`.
        """
        with self._lock:
            devices, words = self._log.devices, self._log.assessments.values()
            told = {word.device_uuid: word.headroom for word in words if word.headroom}
            return {it.index: told[it.uuid] for it in devices.values() if it.uuid in told}

    def generate_report(self, output_file: str | Path | None = None) -> dict[str, object]:
        """Return the report of everything seen so far, as `vramscope profile` prints it.

        Args:
            output_file: File to write it to as JSON.

        Raises:
            OutputFileError: It cannot be written.
        """
        with self._lock:
            report = build_profile(self._log, self._provenance)
        return publish(report, output_file)

    def plot_memory_usage(self, device_id: int, output_file: str | Path | None = None) -> list[Path]:
        """Draw the memory of one device over time; return the files.

        Args:
            device_id: Index of the device.
            output_file: File to write; by default `gpu_{id}_memory_usage.png` and `.pdf` here.

        Raises:
            UsageError: The device was not seen.
            OutputFileError: It cannot be written.
        """
        with self._lock:
            device = self._require(device_id)
            snapshots, clock = (
                list(device.snapshots),
                "wall" if self._log.last is None else self._log.last.clock,
            )
        return plot_device(snapshots, str(device_id), clock, output_file, what="memory_usage")

    def export_snapshots(self, output_file: str | Path, device_id: int | None = None) -> None:
        """Write the snapshots that are kept, as JSON that `--input` reads back.

        Args:
            output_file: File to write.
            device_id: Index of the only device to export; None for all.

        Raises:
            OutputFileError: It cannot be written.
        """
        with self._lock:
            export = build_export(
                self._log,
                interval_s=self.sampling_interval,
                device_id=device_id,
                process=_describe_process(),
            )
        publish(export, output_file)


def _describe(device: DeviceLog) -> DeviceStatus:
    last = device.last
    return {
        "memory_measure": device.load_measure,
        "current_used": None if last is None else last.load_bytes,
        "current_free": None if last is None else last.free_bytes,
        "total": None if last is None else last.total_bytes,
        "utilization": None if last is None else last.utilization_percent,
        "fragmentation": None if last is None else last.fragmentation,
        "peak_memory": device.peak_load_bytes,
        "current_allocated": None if last is None else last.allocated_bytes,
        "peak_allocated": device.peak_allocated_bytes,
    }


def _describe_process() -> ProcessInfo:
    import psutil

    process = psutil.Process()
    return ProcessInfo(
        pid=process.pid,
        memory_percent=process.memory_percent(),
        cpu_percent=process.cpu_percent(),
        num_threads=process.num_threads(),
    )
