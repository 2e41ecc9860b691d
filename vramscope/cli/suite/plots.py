"""Curves of a watch, and the figures made of them at its end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from vramscope.engine.model import AllocatorReading, DeviceSample, Sample
from vramscope.exporters.figures import (
    CurveRecorder,
    DeviceFigure,
    FragmentationFigure,
    Marker,
    make_devices_over_time,
    plot_devices_over_time,
    plot_fragmentation,
    plot_memory_usage,
)
from vramscope.exporters.figures.charts import make_marker
from vramscope.exporters.reports.log import RunLog, Snapshot, measure_fragmentation

from ..frame.flags import FigureTarget

GAP_TICKS = 3.5
Clock = Literal["wall", "trace"]
NO_ALLOCATOR = "no allocator data for this device"
NO_STRANDED = "stranded bytes (inactive split) are not known"
NO_SHARE = "the capacity is unknown; give --capacity SIZE"
_NOTHING = AllocatorReading()


class _Curves(NamedTuple):
    used: CurveRecorder
    allocated: CurveRecorder
    reserved: CurveRecorder
    capacity: CurveRecorder
    fragmentation: CurveRecorder
    share: CurveRecorder


class PlotRecorder:
    """Records curves along with the analyzers, bounded however long the watch is."""

    def __init__(self) -> None:
        self._curves: dict[str, _Curves] = {}
        self._devices: dict[str, DeviceSample] = {}
        # Figures that were not drawn, and why.
        self.left_out: list[str] = []

    def observe(self, sample: Sample) -> None:
        for device in sample.devices:
            curves = self._curves.get(device.uuid)
            if curves is None:
                gap_s = GAP_TICKS * sample.interval_s
                curves = self._curves[device.uuid] = _Curves(*(CurveRecorder(gap_s) for _ in _Curves._fields))
            self._devices[device.uuid] = device
            if device.state == "ok":
                _record(curves, device, sample.time_s)

    def write(self, log: RunLog, target: FigureTarget, *, subtitle: str) -> list[Path]:
        """Write the figures of all devices and the heat map into a folder, or the main one into a file.

        The main figure is the memory of a single device, or the heat map of several.
        """
        file = target.file
        folder = target.make() if file is None else file.parent
        clock = "wall" if log.last is None else log.last.clock
        written: list[Path] = []
        shares = {}
        for uuid, curves in self._curves.items():
            device = log.devices.get(uuid)
            key = self._devices[uuid].label if device is None else log.key_of(device)
            reason = NO_ALLOCATOR if device is None or device.memory_source == "device" else NO_STRANDED
            figures = _make_figures(
                curves, key, clock, tuple(map(make_marker, log.findings_of(uuid))), subtitle, reason
            )
            is_read = _is_measured(curves.used, curves.allocated, curves.reserved)
            if not is_read:
                self.left_out.append(f"device {key}: no figure of memory: it was not measured")
            elif file is None:
                written += plot_memory_usage(figures[0], folder)
            elif len(self._curves) == 1:
                return plot_memory_usage(figures[0], folder, file=file)
            if file is None and _is_measured(curves.fragmentation):
                written += plot_fragmentation(figures[1], folder)
            elif file is None:
                self.left_out.append(f"device {key}: no figure of fragmentation: {reason}")
            shares[key] = curves.share.curve()
        if any(curve.is_measured for curve in shares.values()):
            heat_map = make_devices_over_time(shares, unit="%", clock=clock, subtitle=subtitle)
            written += plot_devices_over_time(heat_map, folder, file=file)
        else:
            self.left_out.append(f"no heat map: {NO_SHARE if shares else 'no device was seen'}")
        return written


def _make_figures(
    curves: _Curves, device: str, clock: Clock, markers: tuple[Marker, ...], subtitle: str, reason: str
) -> tuple[DeviceFigure, FragmentationFigure]:
    memory = DeviceFigure(
        device=device,
        clock=clock,
        allocated=curves.allocated.curve(),
        reserved=curves.reserved.curve(),
        used=curves.used.curve(),
        capacity=curves.capacity.curve(),
        markers=markers,
        subtitle=subtitle,
    )
    fragmentation = FragmentationFigure(
        device=device,
        clock=clock,
        fragmentation=curves.fragmentation.curve(),
        markers=tuple(it for it in markers if it.label == "fragmentation"),
        subtitle=subtitle,
        reason=reason,
    )
    return memory, fragmentation


def _is_measured(*recorders: CurveRecorder) -> bool:
    return any(recorder.curve().is_measured for recorder in recorders)


def _record(curves: _Curves, device: DeviceSample, time_s: float) -> None:
    memory = device.memory
    allocator = device.allocator or _NOTHING
    curves.used.add(time_s, memory.used_bytes, memory.used_min_bytes, memory.used_max_bytes)
    curves.allocated.add(time_s, allocator.allocated_bytes, None, allocator.allocated_max_bytes)
    curves.reserved.add(time_s, allocator.reserved_bytes)
    curves.capacity.add(time_s, memory.total_bytes)
    curves.fragmentation.add(time_s, measure_fragmentation(allocator))
    snapshot = Snapshot(
        time_s,
        memory.used_bytes,
        memory.free_bytes,
        memory.total_bytes,
        allocator.allocated_bytes,
        allocator.reserved_bytes,
        None,
        None,
    )
    curves.share.add(time_s, snapshot.utilization_percent)


def describe_files(paths: Sequence[Path]) -> str:
    if not paths:
        return "no figure was written"
    folders = sorted({str(path.parent) for path in paths})
    if len(paths) == 1:
        return f"wrote the figure {paths[0]}"
    return f"wrote {len(paths)} figures to {', '.join(folders)}"
