"""`OOMDetector`: the risk of running out of memory, from inside a program, with callbacks that can act."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import msgspec

from vramscope.analyzers.out_of_memory import OOM_MET, SIZE
from vramscope.analyzers.usage_threshold import KIND as THRESHOLD
from vramscope.analyzers.usage_threshold import UsageThresholdAnalyzer
from vramscope.engine.errors import UsageError
from vramscope.engine.model import AllocatorReading, DeviceSample, Finding, MemoryReading, RiskLevel, Sample
from vramscope.engine.units import MIB
from vramscope.exporters.reports.growth import WINDOW
from vramscope.exporters.reports.log import DeviceLog, RunLog, Snapshot
from vramscope.exporters.reports.oom import (
    Basis,
    DeviceRisk,
    Thresholds,
    build_oom,
    describe_trend,
    judge_device,
)

from .monitor import MemoryMonitor, publish
from .own_process import OwnError, ProcessStream
from .watch import Conclusions


class OOMRiskLevel(Enum):
    """Risk of running out of memory; `unknown` where it cannot be judged."""

    UNKNOWN = "unknown"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class OOMPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """The risk of one device; None is unknown."""

    device_id: int
    risk_level: OOMRiskLevel
    predicted_oom_time: float | None
    """Median seconds until the error, from now; None if none is forecast."""
    confidence: float | None
    current_usage: float | None
    """Share of the device's memory in use, 0 to 1."""
    growth_rate: float | None
    """MiB a second, of what stays between steps."""
    recommendation: str
    basis: Basis
    """A forecast from the allocator's data, a finding that says more, or the thresholds on usage alone."""
    reason: str
    predicted_oom_time_low: float | None = None
    """Lower end of the 80 % interval."""
    predicted_oom_time_high: float | None = None
    probability: float | None = None
    """Probability of an error within `horizon` seconds."""
    horizon: float | None = None
    is_simulated: bool = False
    """Whether it is of `simulate_oom_scenario`."""


class OOMEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An out-of-memory error that a process met; None is unknown."""

    timestamp: float
    device_id: int
    requested_memory: int | None
    available_memory: int | None
    total_memory: int | None
    stack_trace: str | None = None
    context_info: dict[str, object] | None = None


LEVELS: dict[RiskLevel, OOMRiskLevel] = {
    "unknown": OOMRiskLevel.UNKNOWN,
    "low": OOMRiskLevel.LOW,
    "medium": OOMRiskLevel.MEDIUM,
    "high": OOMRiskLevel.HIGH,
    "critical": OOMRiskLevel.CRITICAL,
}


def make_prediction(device: DeviceLog, risk: DeviceRisk, *, is_simulated: bool = False) -> OOMPrediction:
    """Return the risk of a device as callbacks see it."""
    usage = None if device.last is None else device.last.utilization_percent
    forecast = None if risk.forecast == "unknown" else risk.assessment
    return OOMPrediction(
        device_id=device.index,
        risk_level=LEVELS[risk.level],
        predicted_oom_time=None if forecast is None else forecast.oom_in_s,
        confidence=risk.confidence,
        current_usage=None if usage is None else usage / 100.0,
        growth_rate=risk.growth_mib_per_s,
        recommendation=risk.recommendation,
        basis=risk.basis,
        reason=risk.reason,
        predicted_oom_time_low=None if forecast is None else forecast.oom_in_low_s,
        predicted_oom_time_high=None if forecast is None else forecast.oom_in_high_s,
        probability=None if forecast is None else forecast.probability,
        horizon=None if forecast is None else forecast.horizon_s,
        is_simulated=is_simulated,
    )


WarningCallback = Callable[[int, OOMPrediction], object]
OOMCallback = Callable[[OOMEvent], object]

# A rise of the error count this close to an error is the same error.
SAME_ERROR_S = 60.0
# The allocator counts an error before raising it; its size and stack come within this time.
ERROR_COMES_WITHIN_S = 2.0
# Least seconds until a risk that stays high is reported again.
REPEAT_S = 30.0
_ORDER = tuple(OOMRiskLevel)
_ALARMING = (OOMRiskLevel.HIGH, OOMRiskLevel.CRITICAL)


class OOMDetector(MemoryMonitor):
    """Watches memory in the background and calls back when an error is near.

        def act(device_id, prediction):
            if prediction.risk_level.value == "critical":
                reduce_batch_size()

        detector = OOMDetector()
        detector.add_warning_callback(act)
        detector.start_monitoring()

    Args:
        devices: Indices of the devices to watch; None for all.
        warning_threshold: Share of the device, 0 to 1, from which usage alone is a warning; None for 0.85. If
            it is given, crossing it calls the callbacks, whatever the forecast is.
        critical_threshold: Share from which usage is critical, in the same way; None for 0.95.
        prediction_window: Newest snapshots that growth is fitted to, where the analyzers have no rate yet.
        sampling_interval: Seconds between samples.
    """

    def __init__(
        self,
        devices: list[int] | None = None,
        warning_threshold: float | None = None,
        critical_threshold: float | None = None,
        prediction_window: int = WINDOW,
        sampling_interval: float = 1.0,
    ) -> None:
        super().__init__(devices, sampling_interval)
        if prediction_window < 2:
            raise UsageError(f"prediction_window {prediction_window}: expected 2 or more")
        self._thresholds = _read_thresholds(warning_threshold, critical_threshold, prediction_window)
        if self._thresholds.is_given:
            self._rules = (UsageThresholdAnalyzer(*self._thresholds[:2]),)
        self._warnings: list[WarningCallback] = []
        self._ooms: list[OOMCallback] = []
        self._said: dict[int, tuple[OOMRiskLevel, float]] = {}
        self._met: list[Finding] = []
        # Errors known only by their count, and until when the error itself may still come.
        self._counted: list[tuple[float, Finding]] = []
        # Wall clock of the newest error that was passed to callbacks.
        self._raised_s: float | None = None
        # Devices that have crossed a threshold since callbacks were last called, by UUID.
        self._crossed: dict[str | None, OOMRiskLevel] = {}

    def add_warning_callback(self, callback: WarningCallback) -> None:
        """Call a function with the device's index and the prediction when a risk becomes high or critical.

        It is called once for each rise, and every 30 s while the risk stays; also once for each crossing of a
        threshold that was given to this object. It runs on the monitoring thread, and may free memory or
        change the batch size. Its errors are printed once on stderr and end nothing.
        """
        self._warnings.append(callback)

    def add_oom_callback(self, callback: OOMCallback) -> None:
        """Call a function with an `OOMEvent` after each out-of-memory error of this process.

        The event has the size and the stack of the request where the allocator reports them, as CUDA's and
        the simulated one do.
        """
        self._ooms.append(callback)

    def get_risk_assessment(self) -> dict[int, OOMPrediction]:
        """Return the risk of each device by its index."""
        with self._lock:
            log = self._log
            return {
                device.index: make_prediction(device, judge_device(log, device, self._thresholds))
                for device in log.devices.values()
            }

    def get_memory_trends(self, device_id: int, duration_minutes: float = 10) -> dict[str, object]:
        """Return the memory of a device in the last minutes; empty if it was not seen."""
        with self._lock:
            device = self._find(device_id)
            if device is None:
                return {}
            trend = describe_trend(
                self._log, device, span_s=60.0 * duration_minutes, window=self._thresholds.window
            )
        built: dict[str, object] = msgspec.to_builtins(trend)
        return built

    def generate_oom_report(self, output_file: str | Path | None = None) -> dict[str, object]:
        """Return the report so far, as `vramscope oom` prints it.

        Args:
            output_file: File to write it to as JSON.

        Raises:
            OutputFileError: The file cannot be written.
        """
        with self._lock:
            report = build_oom(self._log, self._provenance, self._thresholds)
        return publish(report, output_file)

    def simulate_oom_scenario(
        self, device_id: int, memory_increase_mb: float = 100, steps: int = 10
    ) -> OOMPrediction | None:
        """Return the risk if a device's memory went on to grow: its real samples, then invented ones.

        Nothing is allocated, and the log stays as it is; the result has `is_simulated`.

        Args:
            device_id: Index of the device.
            memory_increase_mb: Growth from one invented sample to the next, in MiB.
            steps: Number of invented samples, one sampling interval apart.

        Returns:
            The prediction after the last of them; None for a device that was not seen.
        """
        with self._lock:
            device = self._find(device_id)
            if device is None or device.last is None:
                return None
            played = play_scenario(
                device, self.sampling_interval, increase_mib=memory_increase_mb, steps=steps
            )
        return make_prediction(
            played.device, judge_device(played.log, played.device, self._thresholds), is_simulated=True
        )

    def _take_finding(self, finding: Finding) -> None:
        if finding.kind == OOM_MET and finding.is_open:
            self._met.append(finding)
        elif finding.kind == THRESHOLD and finding.is_open:
            self._crossed[finding.device_uuid] = LEVELS[finding.severity]

    def _react(self) -> None:
        with self._lock:
            crossed = self._crossed
            self._crossed = {}
            crossing = {it.index: crossed[it.uuid] for it in self._log.devices.values() if it.uuid in crossed}
        for device_id, prediction in self.get_risk_assessment().items():
            level = crossing.get(device_id)
            if level is not None and _ORDER.index(level) > _ORDER.index(prediction.risk_level):
                # A spike between two samples crosses the threshold too, and is over by now.
                prediction = msgspec.structs.replace(prediction, risk_level=level)  # noqa: PLW2901
            if self._is_news(device_id, prediction.risk_level) or level is not None:
                self._call_all(self._warnings, device_id, prediction)

    def _tend(self) -> None:
        self._call_about_errors(time.monotonic())

    def _end(self) -> None:
        self._call_about_errors(math.inf)

    def _call_about_errors(self, now_s: float) -> None:
        """Call back for each error that was raised, and for rises of the count without one."""
        with self._lock:
            met = self._met
            self._met = []
        self._counted += [(now_s + ERROR_COMES_WITHIN_S, finding) for finding in met]
        watch = self._watch
        stream = None if watch is None else watch.stream
        for error in stream.take_errors() if isinstance(stream, ProcessStream) else ():
            self._raised_s = error.time_s
            self._call_all(self._ooms, self._describe_error(error))
        waiting = []
        for until_s, finding in self._counted:
            if self._raised_s is not None and abs(finding.opened_s - self._raised_s) <= SAME_ERROR_S:
                continue
            if now_s < until_s:
                waiting.append((until_s, finding))
            else:
                self._call_all(self._ooms, self._describe(finding))
        self._counted = waiting

    def _is_news(self, device_id: int, level: OOMRiskLevel) -> bool:
        """Return whether to report a risk: it rose, or it stays high and was last reported long ago."""
        known, reported_s = self._said.get(device_id, (OOMRiskLevel.UNKNOWN, 0.0))
        if level not in _ALARMING:
            self._said.pop(device_id, None)
            return False
        now_s = time.monotonic()
        is_rise = known not in _ALARMING or (level, known) == _ALARMING[::-1]
        if is_rise or now_s - reported_s >= REPEAT_S:
            self._said[device_id] = level, now_s
            return True
        self._said[device_id] = level, reported_s
        return False

    def _call_all(self, callbacks: Sequence[Callable[..., object]], *arguments: object) -> None:
        for callback in tuple(callbacks):
            try:
                callback(*arguments)
            except Exception as error:  # noqa: BLE001 - a callback's bug must not end the monitoring
                self._print_once(f"a callback raised {type(error).__name__}: {error}; monitoring goes on")

    def _describe_error(self, error: OwnError) -> OOMEvent:
        with self._lock:
            device = self._log.devices.get(error.device_uuid or "")
            known = [it for it in self._log.devices.values() if it.index == error.ordinal]
            device = known[0] if device is None and len(known) == 1 else device
            last = None if device is None else device.last
        total_bytes = None if last is None else last.total_bytes
        return OOMEvent(
            timestamp=error.time_s,
            device_id=-1 if device is None else device.index,
            requested_memory=error.size_bytes,
            available_memory=error.free_bytes,
            total_memory=error.total_bytes if total_bytes is None else total_bytes,
            stack_trace="\n".join(
                f'File "{file}", line {line}, in {name}' for file, line, name in error.stack
            ),
            context_info={"message": error.message},
        )

    def _describe(self, finding: Finding) -> OOMEvent:
        with self._lock:
            device = self._log.devices.get(finding.device_uuid or "")
            last = None if device is None else device.last
        values = {it.name: it.value for it in finding.evidence}
        request = values.get(SIZE.name)
        return OOMEvent(
            timestamp=finding.opened_s,
            device_id=-1 if device is None else device.index,
            requested_memory=request if isinstance(request, int) else None,
            available_memory=None if last is None else last.free_bytes,
            total_memory=None if last is None else last.total_bytes,
            context_info={"title": finding.title, **values},
        )


def _read_thresholds(warning: float | None, critical: float | None, window: int) -> Thresholds:
    """Return the thresholds in percent."""
    known = Thresholds()
    low = known.warning_percent / 100 if warning is None else warning
    high = known.critical_percent / 100 if critical is None else critical
    if critical is None:
        high = max(low, high)
    elif warning is None:
        low = min(low, high)
    if not 0 <= low <= high <= 1:
        raise UsageError(
            f"warning_threshold {low}, critical_threshold {high}: expected shares from 0 to 1, the first not "
            "above the second"
        )
    is_given = warning is not None or critical is not None
    return Thresholds(100 * low, 100 * high, window, is_given)


# Number of real snapshots that a scenario starts with.
MOST_SNAPSHOTS = 1000
NODE = "scenario"


class PlayedScenario(NamedTuple):
    """The state after a scenario."""

    log: RunLog
    device: DeviceLog


def play_scenario(device: DeviceLog, interval_s: float, *, increase_mib: float, steps: int) -> PlayedScenario:
    """Feed new analyzers with the samples of a device, and then with invented growth.

    Args:
        interval_s: Seconds between invented samples.
        increase_mib: Growth from one of them to the next.
    """
    conclusions = Conclusions()
    log = RunLog()
    for number, snapshot in enumerate(_continue(device, interval_s, increase_mib, steps)):
        sample = Sample(NODE, number, snapshot.time_s, interval_s, (_make_device(device, snapshot),))
        log.observe(sample)
        log.take(conclusions.observe(sample))
    log.take((), conclusions.assess())
    return PlayedScenario(log, log.devices[device.uuid])


def _continue(device: DeviceLog, interval_s: float, increase_mib: float, steps: int) -> Iterator[Snapshot]:
    seen = list(device.snapshots)[-MOST_SNAPSHOTS:]
    yield from seen
    last = seen[-1]
    for step in range(1, steps + 1):
        more = round(step * increase_mib * MIB)
        used = _add(last.used_bytes, more)
        if used is not None and last.total_bytes is not None:
            used = min(used, last.total_bytes)
        yield last._replace(
            time_s=last.time_s + step * interval_s,
            used_bytes=used,
            free_bytes=None if last.free_bytes is None else max(0, last.free_bytes - more),
            allocated_bytes=_add(last.allocated_bytes, more),
            reserved_bytes=_add(last.reserved_bytes, more),
        )


def _add(figure: int | None, more: int) -> int | None:
    return None if figure is None else max(0, figure + more)


def _make_device(device: DeviceLog, snapshot: Snapshot) -> DeviceSample:
    allocator = None
    if snapshot.allocated_bytes is not None:
        allocator = AllocatorReading(
            allocated_bytes=snapshot.allocated_bytes, reserved_bytes=snapshot.reserved_bytes
        )
    used = snapshot.used_bytes
    return DeviceSample(
        uuid=device.uuid,
        index=device.index,
        name=device.name,
        kind=device.kind,
        memory=MemoryReading(snapshot.total_bytes, used, snapshot.free_bytes, used, used),
        allocator=allocator,
    )
