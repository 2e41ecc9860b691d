"""`FragmentationAnalyzer`: how fragmented the allocator's memory is, from inside a program."""

import time
from enum import Enum
from pathlib import Path

import msgspec

from vramscope.analyzers.fragmentation import AllocationPattern, describe_pattern
from vramscope.analyzers.fragmentation import FragmentationAnalyzer as Analyzer
from vramscope.analyzers.fragmentation.track import describe_points
from vramscope.engine.model import SegmentMap
from vramscope.engine.units import MIB
from vramscope.exporters.reports.fragment import (
    FragmentationFigures,
    FragmentMetrics,
    build_fragment,
    describe_fragmentation,
    find_worst,
)
from vramscope.exporters.reports.frame import KINDS, describe_findings
from vramscope.exporters.reports.log import DeviceLog

from .monitor import MemoryMonitor, plot_device, publish
from .own_process import ProcessStream

# Seconds between maps of the segments of this process.
MAP_S = 30.0


class FragmentationLevel(Enum):
    """How fragmented an allocator is; `unknown` where it was not measured."""

    UNKNOWN = "unknown"
    LOW = "low"
    MODERATE = "moderate"
    HIGH = "high"
    SEVERE = "severe"


class FragmentationMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One device now, in bytes and shares from 0 to 1; None is unmeasured."""

    device_id: int
    timestamp: float | None
    total_memory: int | None
    allocated_memory: int | None
    free_memory: int | None
    largest_free_block: int | None
    num_free_blocks: int | None
    fragmentation_ratio: float | None
    fragmentation_level: FragmentationLevel
    allocation_efficiency: float | None
    defrag_benefit: float | None
    measure: str | None = None
    """Kind of the ratio: `external` from a segment map, `stranded` from the allocator's counters."""


class FragmentationAnalyzer(MemoryMonitor):
    """Watches memory in the background and reports how fragmented the allocator of this process is.

    It reads the blocks of this process's allocator every 30 s and at each query. Other processes, and device
    memory without an allocator, stay unmeasured.

    Args:
        devices: Indices of the devices to watch; None for all.
        sampling_interval: Seconds between samples.
        max_history: Most snapshots to keep for each device.
    """

    def __init__(
        self,
        devices: list[int] | None = None,
        sampling_interval: float = 1.0,
        max_history: int = 1000,
    ) -> None:
        super().__init__(devices, sampling_interval, max_history)
        self._next_map_s = 0.0

    def get_current_fragmentation(self) -> dict[int, FragmentationMetrics]:
        """Return the fragmentation of each device, by its index."""
        figures = self._measure()
        with self._lock:
            return {
                device.index: _describe(
                    device, describe_fragmentation(device, self._provenance, figures).current_metrics
                )
                for device in self._log.devices.values()
            }

    def get_fragmentation_trend(self, device_id: int, duration_minutes: float = 30) -> dict[str, object]:
        """Return the recent fragmentation of a device; empty where it was not measured.

        The ratios are those of `get_current_fragmentation`: `external` from segment maps, or `stranded` from
        the allocator's counters where there is no map. A map is read every 30 s and at each query.

        Args:
            device_id: Index of the device.
            duration_minutes: How far to look back.
        """
        figures = self._measure()
        with self._lock:
            device = self._find(device_id)
            analyzer = self._analyzer
            worst = None if device is None else find_worst(device, figures)
            if device is None or device.last_s is None or worst is None or analyzer is None:
                return {}
            measure = worst.reading.measure
            trend = None if measure is None else analyzer.trend(worst.reading.key, measure)
            since_s = device.last_s - 60.0 * duration_minutes
        points = [] if trend is None else [it for it in trend.points if it[0] >= since_s]
        if trend is None or not points:
            return {}
        values = [value for _, value in points]
        slope, description = describe_points(points)
        return {
            "device_id": device_id,
            "duration_minutes": duration_minutes,
            "data_points": len(points),
            "measure": trend.measure,
            "current_fragmentation": trend.current,
            "min_fragmentation": min(values),
            "max_fragmentation": max(values),
            "avg_fragmentation": sum(values) / len(values),
            "trend_slope": slope,
            "trend_description": description,
        }

    def suggest_defragmentation(self, device_id: int) -> dict[str, object]:
        """Return advice about the fragmentation of a device, with its priority.

        Raises:
            UsageError: The device was not seen.
        """
        figures = self._measure()
        with self._lock:
            device = self._require(device_id)
            findings = describe_findings(self._log, self._provenance, KINDS["fragment"])
            advice = describe_fragmentation(device, self._provenance, figures, findings).recommendations
        built: dict[str, object] = msgspec.to_builtins(advice)
        return built

    def plot_fragmentation_timeline(
        self, device_id: int, output_file: str | Path | None = None
    ) -> list[Path]:
        """Draw the fragmentation of one device over time; return the files.

        Args:
            device_id: Index of the device.
            output_file: File to write; by default `gpu_{id}_fragmentation.png` and `.pdf` here.

        Raises:
            UsageError: The device was not seen.
            OutputFileError: The file cannot be written.
        """
        with self._lock:
            device = self._require(device_id)
            snapshots = list(device.snapshots)
        return plot_device(snapshots, str(device_id), "wall", output_file, what="fragmentation")

    def generate_fragmentation_report(self, output_file: str | Path | None = None) -> dict[str, object]:
        """Return the report so far, as `vramscope fragment` prints it.

        Args:
            output_file: File to write it to as JSON.

        Raises:
            OutputFileError: The file cannot be written.
        """
        figures = self._measure()
        with self._lock:
            report = build_fragment(self._log, self._provenance, figures)
        return publish(report, output_file)

    def _tend(self) -> None:
        if time.monotonic() >= self._next_map_s:
            self._measure()

    @property
    def _analyzer(self) -> Analyzer | None:
        return None if self._watch is None else self._watch.conclusions.find(Analyzer)

    def _measure(self) -> list[FragmentationFigures]:
        """Return the analyzer's readings, with the blocks of this process as they are now."""
        watch = self._watch
        if watch is None:
            return []
        self._next_map_s = time.monotonic() + MAP_S
        maps = watch.stream.map_segments() if isinstance(watch.stream, ProcessStream) else []
        with self._lock:
            analyzer = self._analyzer
            if analyzer is None:
                return []
            for segment_map in maps:
                analyzer.take_map(segment_map)
            return [
                FragmentationFigures(it, analyzer.trend(it.key), _find_pattern(maps, it.device_uuid))
                for it in analyzer.readings()
            ]


def _find_pattern(maps: list[SegmentMap], device_uuid: str | None) -> AllocationPattern | None:
    found = next((it for it in maps if it.device_uuid == device_uuid), None)
    return None if found is None else describe_pattern(found)


def _describe(device: DeviceLog, metrics: FragmentMetrics) -> FragmentationMetrics:
    last = device.last
    largest = metrics.largest_free_block_mb
    return FragmentationMetrics(
        device_id=device.index,
        timestamp=device.last_s,
        total_memory=None if last is None else last.total_bytes,
        allocated_memory=None if last is None else last.taken_bytes(device.memory_source),
        free_memory=None if last is None else last.free_bytes,
        largest_free_block=None if largest is None else round(largest * MIB),
        num_free_blocks=metrics.num_free_blocks,
        fragmentation_ratio=metrics.fragmentation_ratio,
        fragmentation_level=FragmentationLevel(metrics.fragmentation_level or "unknown"),
        allocation_efficiency=metrics.allocation_efficiency,
        defrag_benefit=metrics.defrag_benefit,
        measure=metrics.measure,
    )
