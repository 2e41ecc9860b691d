"""`MemoryProfiler`: current, peak and average memory of each device, from inside a program."""

from pathlib import Path
from typing import Literal, TypedDict

from vramscope.engine.model import HeadroomEstimate
from vramscope.exporters.phase_original import SummaryStage, describe_stage, summarize_stages
from vramscope.exporters.reports.device_log import DeviceLog
from vramscope.exporters.reports.profile import ProfilePhase, build_profile
from vramscope.exporters.reports.snapshot_export import ProcessInfo, build_export

from .monitor import MemoryMonitor, publish
from .own_phases import OwnPhases, PhaseUsage
from .own_process import find_reader
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
        reset_peaks: Reset the allocator's peaks at each `vramscope.phase`, so that the peak of every phase is
            exact. `torch.cuda.max_memory_allocated` then tells of the newest phase only. Without it a phase
            whose peak is no new record has the most that was read at its ends, a lower bound.
    """

    def __init__(
        self,
        devices: list[int] | None = None,
        sampling_interval: float = 0.1,
        max_snapshots: int = 10_000,
        *,
        reset_peaks: bool = False,
    ) -> None:
        super().__init__(devices, sampling_interval, max_snapshots)
        self._phases = OwnPhases(find_reader, resets_peaks=reset_peaks)

    def start_monitoring(self) -> None:
        """Begin to watch in the background, and to take the phases that the program names."""
        self._phases.start()
        super().start_monitoring()

    def stop_monitoring(self) -> None:
        """End the watch; does nothing where none is on. What was seen stays."""
        self._phases.stop()
        super().stop_monitoring()

    def get_phases(self) -> list[ProfilePhase]:
        """Return memory before, after and at the peak of each `vramscope.phase` of this program.

        One entry for each name and device, in the order in which they first ended: before and after are of
        the newest call, the peak is the most of all calls.
        """
        return [_describe_phase(it) for it in self._phases.usages]

    def describe_phases(self) -> str:
        """Return the phases as text: before, after, peak and difference of each, as `vramscope phases` does.

        A numbered summary follows: the most of all calls, and what the newest changed. MB are MiB there. A
        peak that is a lower bound says so.
        """
        usages = self._phases.usages
        if not usages:
            return ""
        parts = []
        for usage in usages:
            note = "" if usage.is_peak_exact else "  (peak: at least; reset_peaks=True makes it exact)"
            lines = [line for line in describe_stage(usage.newest) if line]
            parts.append("\n".join([*lines, note] if note else lines))
        summed = [
            SummaryStage(
                it.newest.phase,
                it.peak_allocated_bytes,
                it.newest.allocated_difference_bytes,
                is_peak_exact=it.is_peak_exact,
            )
            for it in usages
        ]
        parts.append("\n".join(summarize_stages(summed)))
        return "\n\n".join(parts) + "\n"

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
            report = build_profile(self._log, self._provenance, self.get_phases())
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


def _describe_phase(usage: PhaseUsage) -> ProfilePhase:
    phase = usage.newest
    return ProfilePhase(
        phase=phase.phase,
        device_id=usage.ordinal,
        calls=usage.calls,
        before_allocated=phase.before.allocated_bytes,
        before_reserved=phase.before.reserved_bytes,
        after_allocated=phase.after.allocated_bytes,
        after_reserved=phase.after.reserved_bytes,
        difference_allocated=phase.allocated_difference_bytes,
        difference_reserved=phase.reserved_difference_bytes,
        peak_allocated=usage.peak_allocated_bytes,
        is_peak_exact=usage.is_peak_exact,
        seconds=phase.seconds,
    )


def _describe_process() -> ProcessInfo:
    import psutil

    process = psutil.Process()
    return ProcessInfo(
        pid=process.pid,
        memory_percent=process.memory_percent(),
        cpu_percent=process.cpu_percent(),
        num_threads=process.num_threads(),
    )
