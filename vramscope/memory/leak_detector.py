"""`MemoryLeakDetector`: growth that does not end, from inside a program, with the objects behind it."""

import gc
import time
from pathlib import Path

import msgspec

from vramscope.engine.errors import UsageError
from vramscope.engine.units import MIB
from vramscope.exporters.reports.frame import KINDS, describe_findings
from vramscope.exporters.reports.leak import (
    LeakRule,
    TrackedSource,
    Tracking,
    build_leak,
    describe_seen_growth,
    summarize_leaks,
)
from vramscope.exporters.reports.leak_growth import measure_growth

from .monitor import MemoryMonitor, publish
from .references import GrownType, ReferenceTracker

NOT_STARTED = "Monitoring not started"
LOOK_EVERY_S = 60.0
"""The Python objects are counted no more often by themselves."""
COUNTED = (
    "Python objects were counted against the baseline; tensors that came since were followed to their holders"
)
NOTHING_FOUND = "Nothing grows without end in what was seen"


class MemoryLeakDetector(MemoryMonitor):
    """Watches memory in the background and reports leaks, each once.

    Args:
        devices: Indices of the devices to watch; None for all.
        sampling_interval: Seconds from one sample to the next.
        leak_threshold: Bytes a minute above which `leak_risk` is high; decides about no finding.
        history_window: Snapshots that growth is fitted to.
        enable_reference_tracking: Count Python objects against a baseline, and name who holds new tensors.
    """

    def __init__(
        self,
        devices: list[int] | None = None,
        sampling_interval: float = 5.0,
        leak_threshold: float = 10 * MIB,
        history_window: int = 100,
        enable_reference_tracking: bool = True,
    ) -> None:
        if leak_threshold < 0 or history_window < 2:
            raise UsageError(
                f"leak_threshold {leak_threshold}, history_window {history_window}: expected bytes a minute "
                "from 0, and at least 2 snapshots"
            )
        super().__init__(devices, sampling_interval)
        self._rule = LeakRule(leak_threshold / MIB, history_window)
        self._tracker = ReferenceTracker() if enable_reference_tracking else None
        self._grown: list[GrownType] = []
        self._looked_s: float | None = None
        self._baseline_s: float | None = None

    def start_monitoring(self) -> None:
        """Begin to watch in the background, with a baseline of this moment where there is none."""
        if self._tracker is not None and not self._tracker.has_baseline:
            self._tracker.set_baseline()
        super().start_monitoring()

    def set_baseline(self) -> None:
        """Count growth of memory and of Python objects from this moment on."""
        with self._lock:
            last = self._log.last
            self._baseline_s = None if last is None else last.time_s
            self._grown = []
        if self._tracker is not None:
            self._tracker.set_baseline()

    def force_garbage_collection(self) -> int:
        """Collect unreachable Python objects now; return how many there were.

        Cached device memory stays with PyTorch: `torch.cuda.empty_cache()` gives that back.
        """
        return gc.collect()

    def get_leak_summary(self) -> dict[str, object]:
        """Return all leaks found so far together; `error` where monitoring was never started."""
        with self._lock:
            if self._watch is None:
                return {"error": NOT_STARTED}
            summary = summarize_leaks(self._log, self._rule)
        built: dict[str, object] = msgspec.to_builtins(summary)
        return built

    def get_memory_growth_trend(self, device_id: int, duration_minutes: float = 30) -> dict[str, object]:
        """Return how device and host memory have grown lately; empty where nothing was seen."""
        with self._lock:
            device = self._find(device_id)
            if device is None or device.last_s is None:
                return {}
            since_s = max(device.last_s - 60.0 * duration_minutes, self._baseline_s or 0.0)
            times = [it.time_s for it in device.snapshots if it.time_s >= since_s]
            window = self._rule.window
            gpu = measure_growth(device, window, device.memory_source, since_s=since_s)
            host = measure_growth(device, window, "resident", since_s=since_s)
        return {
            "device_id": device_id,
            "duration_minutes": (times[-1] - times[0]) / 60.0 if times else 0.0,
            "data_points": len(times),
            "gpu_memory": msgspec.to_builtins(gpu),
            "python_memory": msgspec.to_builtins(host),
        }

    def generate_leak_report(self, output_file: str | Path | None = None) -> dict[str, object]:
        """Return the report of everything seen so far, as `vramscope leak` prints it.

        Args:
            output_file: File to write it to as JSON.

        Raises:
            OutputFileError: It cannot be written.
        """
        self._look()
        with self._lock:
            report = build_leak(self._log, self._provenance, self._rule, self._describe_tracking())
        return publish(report, output_file)

    def suggest_fixes(self, device_id: int) -> list[str]:
        """Return what to do about the leaks of a device and of the host.

        Growth above the threshold that is no leak by now is said with its rate and what is not known of it.
        """
        self._look()
        with self._lock:
            findings = describe_findings(self._log, self._provenance, KINDS["leak"])
            said = [it.advice for it in findings if it.device in (device_id, None) and it.advice]
            if findings:
                said += [f"Look at {grown.words}" for grown in self._grown]
            device = self._find(device_id)
            if device is not None:
                said += describe_seen_growth(self._log, device, self._rule)
        return list(dict.fromkeys(said)) or [NOTHING_FOUND]

    def _react(self) -> None:
        with self._lock:
            is_leaking = any(
                trail.finding.is_open and trail.finding.kind in (KINDS["leak"] or ())
                for trail in self._log.findings.values()
            )
            now_s = time.monotonic()
            is_due = self._looked_s is None or now_s - self._looked_s >= LOOK_EVERY_S
        if is_leaking and is_due:
            self._look()

    def _look(self) -> None:
        """Count Python objects against the baseline; holds the interpreter for tens of milliseconds."""
        if self._tracker is None:
            return
        grown = self._tracker.find_growth()
        with self._lock:
            self._grown, self._looked_s = grown, time.monotonic()

    def _describe_tracking(self) -> Tracking:
        if self._tracker is None:
            return Tracking()
        return Tracking(
            requested=True,
            active=self._tracker.has_baseline,
            reason=COUNTED,
            sources=tuple(_describe(grown) for grown in self._grown),
        )


def _describe(grown: GrownType) -> TrackedSource:
    return TrackedSource(
        place=grown.words,
        file=None,
        line=None,
        function=None,
        grown_bytes=grown.size_bytes,
        blocks=grown.more,
        share=None,
    )
