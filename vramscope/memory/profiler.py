"""`MemoryProfiler`: current, peak and average memory of each device, from inside a program."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

from vramscope.engine.jobs.in_code import phase_takers
from vramscope.engine.model import HeadroomEstimate
from vramscope.engine.model.phase_memory import MemoryLevels, PhaseMemory
from vramscope.engine.probe.backends import Backend as Reader
from vramscope.engine.probe.backends import Reading
from vramscope.exporters.phases.report import SummaryStage, describe_stage, summarize_stages
from vramscope.exporters.reports.log import DeviceLog
from vramscope.exporters.reports.profile import ProcessInfo, ProfilePhase, build_export, build_profile

from .monitor import MemoryMonitor, plot_device, publish
from .own_process import find_reader

# Most phases to keep, over all devices; further ones are left out.
MOST_NAMES = 256


class PhaseUsage(NamedTuple):
    """One phase of the program on one device."""

    # Number of the device in torch.
    ordinal: int
    calls: int
    # The newest call; its peak may be a lower bound.
    newest: PhaseMemory
    # Highest of all calls.
    peak_allocated_bytes: int
    # Whether the allocator's own peak covers every call; if not, the real peak may be higher.
    is_peak_exact: bool


class _Open:
    def __init__(self, name: str, readings: dict[int, Reading]) -> None:
        self.name = name
        self.before = readings
        self.thread = threading.get_ident()
        self.began_s = time.perf_counter()
        self.most: dict[int, int] = {}
        self.exact: set[int] = set()


class OwnPhases:
    """Reads the allocator where a phase begins and ends, in the thread of the program.

    A reading is a look at counters: nothing waits for the device. The peak in between is exact if the
    allocator's own peak rose within the phase, or if it is reset where a phase begins.

    Args:
        find_reader: Returns the reader of the allocator; None before the program has used a device.
        resets_peaks: Whether to reset the allocator's peak where a phase begins.
    """

    def __init__(self, find_reader: Callable[[], Reader | None], *, resets_peaks: bool) -> None:
        self._find_reader = find_reader
        self._resets_peaks = resets_peaks
        self._lock = threading.RLock()
        self._open: list[_Open] = []
        self._known: dict[tuple[str, int], PhaseUsage] = {}

    @property
    def usages(self) -> tuple[PhaseUsage, ...]:
        """Every phase that has ended, in the order of their first ends."""
        with self._lock:
            return tuple(self._known.values())

    def start(self) -> None:
        """Start to follow `vramscope.phase`."""
        if self._take not in phase_takers:
            phase_takers.append(self._take)

    def stop(self) -> None:
        """Stop following."""
        if self._take in phase_takers:
            phase_takers.remove(self._take)

    def _take(self, name: str, is_begin: bool) -> None:
        """Note the begin or the end of a phase; never raises."""
        try:
            with self._lock:
                readings = self._read()
                if is_begin:
                    self._begin(name, readings)
                else:
                    self._end(name, readings)
        except Exception:  # noqa: BLE001 - whatever the allocator does, the training goes on, without this phase
            return

    def _read(self) -> dict[int, Reading]:
        """Return the newest readings, and note them in the phases in progress."""
        reader = self._find_reader()
        readings = {} if reader is None else {it: reader.read(it) for it in sorted(reader.find_held())}
        for part in self._open:
            for ordinal, reading in readings.items():
                _note(part, ordinal, reading, is_since_begin=self._resets_peaks)
        return readings

    def _begin(self, name: str, readings: dict[int, Reading]) -> None:
        reader = self._find_reader() if self._resets_peaks else None
        if reader is not None:
            for ordinal in readings:
                reader.module.reset_peak_memory_stats(ordinal)
        self._open.append(_Open(name, readings))

    def _end(self, name: str, readings: dict[int, Reading]) -> None:
        thread = threading.get_ident()
        part = next((it for it in reversed(self._open) if (it.name, it.thread) == (name, thread)), None)
        if part is None:
            return
        self._open.remove(part)
        for ordinal, reading in readings.items():
            self._fold(part, ordinal, reading)

    def _fold(self, part: _Open, ordinal: int, after: Reading) -> None:
        key = part.name, ordinal
        known = self._known.get(key)
        if after.allocated_bytes is None or (known is None and len(self._known) >= MOST_NAMES):
            return
        before = part.before.get(ordinal)
        # A device without memory of this process is not among the readings.
        start = _levels(before) if before is not None else MemoryLevels(allocated_bytes=0, reserved_bytes=0)
        peak = max(part.most.get(ordinal, 0), start.allocated_bytes or 0)
        newest = PhaseMemory(
            phase=part.name,
            before=start,
            after=_levels(after),
            peak=MemoryLevels(allocated_bytes=peak, reserved_bytes=None),
            seconds=time.perf_counter() - part.began_s,
        )
        is_exact = ordinal in part.exact
        self._known[key] = PhaseUsage(
            ordinal,
            1 if known is None else known.calls + 1,
            newest,
            peak if known is None else max(known.peak_allocated_bytes, peak),
            is_exact and (known is None or known.is_peak_exact),
        )


def _levels(reading: Reading) -> MemoryLevels:
    return MemoryLevels(allocated_bytes=reading.allocated_bytes, reserved_bytes=reading.reserved_bytes)


def _note(part: _Open, ordinal: int, reading: Reading, *, is_since_begin: bool) -> None:
    """Note a reading in a phase in progress, with the allocator's peak if it rose within the phase."""
    before = part.before.get(ordinal)
    base = 0 if before is None or before.peak_bytes is None else before.peak_bytes
    peak = reading.peak_bytes
    is_own = peak is not None and (is_since_begin or peak > base)
    part.most[ordinal] = max(
        part.most.get(ordinal, 0), reading.allocated_bytes or 0, peak if peak is not None and is_own else 0
    )
    if is_own:
        part.exact.add(ordinal)


class DeviceStatus(TypedDict):
    """One device now, in bytes and percent; None is unmeasured."""

    memory_measure: Literal["used", "reserved", "allocated"] | None
    """Measure of `current_used` and `peak_memory`: used memory of the device if known, else the next best."""
    current_used: int | None
    current_free: int | None
    total: int | None
    utilization: float | None
    fragmentation: float | None
    peak_memory: int | None
    """Highest value of the same measure as `current_used`."""
    current_allocated: int | None
    """Live bytes of the caching allocator."""
    peak_allocated: int | None


class MemoryProfiler(MemoryMonitor):
    """Watches memory in the background and reports current, peak and average memory.

        with MemoryProfiler(sampling_interval=1.0) as profiler:
            train()
        profiler.generate_report("training_memory_report.json")

    Args:
        devices: Indices of the devices to watch; None for all.
        sampling_interval: Seconds between snapshots.
        max_snapshots: Most snapshots to keep for each device; statistics and peaks cover all.
        reset_peaks: Reset the allocator's peaks at each `vramscope.phase`, so that the peak of every phase is
            exact; `torch.cuda.max_memory_allocated` then covers only the newest phase. Without it, the peak
            of a phase that is not a new record is a lower bound, read at its ends.
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
        """Start to watch in the background, and to follow the phases of the program."""
        self._phases.start()
        super().start_monitoring()

    def stop_monitoring(self) -> None:
        """Stop the watch; does nothing if it does not run. Samples stay."""
        self._phases.stop()
        super().stop_monitoring()

    def get_phases(self) -> list[ProfilePhase]:
        """Return memory before, after and at the peak of each `vramscope.phase` of this program.

        One entry for each name and device, in the order of their first ends. Before and after are of the
        newest call, the peak is the highest of all calls.
        """
        return [_describe_phase(it) for it in self._phases.usages]

    def describe_phases(self) -> str:
        """Return the phases as text: before, after, peak and difference of each, as `vramscope phases` does.

        A numbered summary follows: the highest peak of all calls, and the difference of the newest. MB means
        MiB there. A peak that is a lower bound says so.
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

        They need the sizes that the program passes to `vramscope.step`. A device without such sizes is left
        out, and an estimate that cannot be made says why in its `reason`.
        """
        with self._lock:
            devices = self._log.devices
            words = self._log.assessments.values()
            headrooms = {word.device_uuid: word.headroom for word in words if word.headroom}
            return {it.index: headrooms[it.uuid] for it in devices.values() if it.uuid in headrooms}

    def generate_report(self, output_file: str | Path | None = None) -> dict[str, object]:
        """Return the report so far, as `vramscope profile` prints it.

        Args:
            output_file: File to write it to as JSON.

        Raises:
            OutputFileError: The file cannot be written.
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
            OutputFileError: The file cannot be written.
        """
        with self._lock:
            device = self._require(device_id)
            snapshots = list(device.snapshots)
            clock = "wall" if self._log.last is None else self._log.last.clock
        return plot_device(snapshots, str(device_id), clock, output_file, what="memory_usage")

    def export_snapshots(self, output_file: str | Path, device_id: int | None = None) -> None:
        """Write the kept snapshots as JSON, which `--input` reads.

        Args:
            output_file: File to write.
            device_id: Index of the only device to export; None for all.

        Raises:
            OutputFileError: The file cannot be written.
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
