"""Figures of a recording: each device's memory over time, all devices as a heat map, and the peaks of all."""

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

from ...engine.model import Finding
from ...engine.units import GIB, format_bytes
from ..figures import (
    Curve,
    CurveRecorder,
    DeviceFigure,
    Peaks,
    make_devices_over_time,
    plot_devices_over_time,
    plot_memory_usage,
    plot_peaks,
)
from ..figures.charts import make_marker
from .rows import DeviceRow

MOST_DEVICES = 256
"""Devices that get a figure of their own; the heat map has as many rows."""
_Clock = Literal["wall", "trace"]
_Key = tuple[str, str]


class _Peak(NamedTuple):
    """The highest memory value and when it was read."""

    size_bytes: int
    time_s: float
    of: str


class _Device:
    def __init__(self, row: DeviceRow, gap_s: float) -> None:
        self.label = row.label
        self.node = row.node
        self.used, self.allocated, self.reserved, self.capacity, self.share, self.load = (
            CurveRecorder(gap_s) for _ in range(6)
        )
        self.peak: _Peak | None = None

    def add(self, row: DeviceRow) -> None:
        memory = row.memory
        allocator = row.allocator
        time_s = row.time_s
        self.used.add(time_s, memory.used_bytes, memory.used_min_bytes, memory.used_max_bytes)
        self.allocated.add(time_s, allocator.allocated_bytes, None, allocator.allocated_max_bytes)
        self.reserved.add(time_s, allocator.reserved_bytes)
        self.capacity.add(time_s, memory.total_bytes)
        load = _find_load(row)
        self.load.add(time_s, None if load is None else load.size_bytes / GIB)
        if load is not None and memory.total_bytes:
            self.share.add(time_s, 100.0 * load.size_bytes / memory.total_bytes)
        else:
            self.share.add(time_s, None)
        if load is not None and (self.peak is None or load.size_bytes > self.peak.size_bytes):
            self.peak = load


class FigureRecorder:
    """Takes the rows of a recording and draws them, in bounded memory however long it is.

    Args:
        gap_s: A longer silence is a break in a line.
    """

    def __init__(self, clock: _Clock, gap_s: float) -> None:
        self._clock = clock
        self._gap_s = gap_s
        self._devices: dict[_Key, _Device] = {}
        self.left_out = 0
        """Readings of devices beyond the most that are drawn."""

    def record(self, rows: Iterable[DeviceRow]) -> None:
        """Take rows, of each device in order of time."""
        for row in rows:
            device = self._devices.get((row.node, row.uuid))
            if device is None:
                if len(self._devices) >= MOST_DEVICES:
                    self.left_out += 1
                    continue
                device = self._devices[row.node, row.uuid] = _Device(row, self._gap_s)
            device.add(row)

    def write(
        self,
        findings: Sequence[Finding],
        folder: Path,
        *,
        subtitle: str,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[Path]:
        """Draw every device, the heat map and the peaks; return the files.

        Args:
            subtitle: Origin of the values.
            on_progress: Called before each figure with how many are drawn, and of how many.

        Raises:
            OutputFileError: The folder is missing or cannot be written to.
        """
        names = self._name_devices()
        written: list[Path] = []
        for done, key in enumerate(self._devices):
            if on_progress is not None:
                on_progress(done, len(self._devices))
            written += plot_memory_usage(self._make_figure(key, names, findings, subtitle), folder)
        return [
            *written,
            *self._draw_heat_map(names, folder, subtitle),
            *self._draw_peaks(names, folder, subtitle),
        ]

    def write_main(self, findings: Sequence[Finding], file: Path, *, subtitle: str) -> list[Path]:
        """Draw the main figure: memory of a single device, or the heat map of several.

        Args:
            file: The file, whose name ends in `.pdf`, `.png` or `.svg`.

        Raises:
            OutputFileError: The file cannot be written.
        """
        names = self._name_devices()
        if len(self._devices) != 1:
            return self._draw_heat_map(names, file.parent, subtitle, file=file)
        figure = self._make_figure(next(iter(self._devices)), names, findings, subtitle)
        return plot_memory_usage(figure, file.parent, file=file)

    def _make_figure(
        self, key: _Key, names: dict[_Key, str], findings: Sequence[Finding], subtitle: str
    ) -> DeviceFigure:
        device = self._devices[key]
        return DeviceFigure(
            device=names[key],
            clock=self._clock,
            allocated=device.allocated.curve(),
            reserved=device.reserved.curve(),
            used=device.used.curve(),
            capacity=device.capacity.curve(),
            markers=tuple(make_marker(it) for it in findings if (it.node, it.device_uuid) == key),
            subtitle=self._describe_peak(device.peak, subtitle),
        )

    def _draw_peaks(self, names: dict[_Key, str], folder: Path, subtitle: str) -> list[Path]:
        if not self._devices:
            return []
        devices = self._devices.values()
        peaks = Peaks(
            devices=tuple(names[key] for key in self._devices),
            allocated=tuple(_find_most(device.allocated.curve()) for device in devices),
            reserved=tuple(_find_most(device.reserved.curve()) for device in devices),
            used=tuple(_find_most(device.used.curve()) for device in devices),
            capacity=tuple(_find_most(device.capacity.curve()) for device in devices),
            subtitle=subtitle,
        )
        return plot_peaks(peaks, folder)

    def _draw_heat_map(
        self, names: dict[_Key, str], folder: Path, subtitle: str, *, file: Path | None = None
    ) -> list[Path]:
        shares: dict[str, Curve] = {names[key]: it.share.curve() for key, it in self._devices.items()}
        is_known = any(curve.is_measured for curve in shares.values())
        curves = shares if is_known else {names[key]: it.load.curve() for key, it in self._devices.items()}
        if not curves:
            return []
        unit: Literal["%", "GiB"] = "%" if is_known else "GiB"
        heat_map = make_devices_over_time(curves, unit=unit, clock=self._clock, subtitle=subtitle)
        return plot_devices_over_time(heat_map, folder, file=file)

    def _name_devices(self) -> dict[_Key, str]:
        """Return a name for each device: its label, with as much before it as makes it unique."""
        names = {key: device.label for key, device in self._devices.items()}
        if len({node for node, _ in names}) > 1:
            names = {key: f"{key[0]}/{name}" for key, name in names.items()}
        taken = list(names.values())
        return {key: name if taken.count(name) == 1 else f"{name} {key[1]}" for key, name in names.items()}

    def _describe_peak(self, peak: _Peak | None, subtitle: str) -> str:
        if peak is None:
            return subtitle
        moment = datetime.fromtimestamp(peak.time_s).astimezone() if self._clock == "wall" else None
        at = f"{peak.time_s:,.6g} s" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"
        return f"peak {peak.of} {format_bytes(peak.size_bytes)} at {at}; {subtitle}"


def _find_most(curve: Curve) -> int | None:
    return max((round(value) for value in curve.high if not math.isnan(value)), default=None)


def _find_load(row: DeviceRow) -> _Peak | None:
    """Return the most that is known of the device's memory: device used, else reserved, else allocated."""
    memory = row.memory
    allocator = row.allocator
    figures = (
        ("used", memory.used_max_bytes if memory.used_max_bytes is not None else memory.used_bytes),
        ("reserved", allocator.reserved_bytes),
        ("allocated", allocator.allocated_max_bytes or allocator.allocated_bytes),
    )
    return next((_Peak(size, row.time_s, of) for of, size in figures if size is not None), None)
