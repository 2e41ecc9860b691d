"""A watch in the background of a program; its errors never reach the training."""

import sys
import tempfile
import threading
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, get_args

import msgspec

from vramscope.engine.errors import OutputFileError, UsageError
from vramscope.engine.files.base.output_file import write_whole
from vramscope.engine.model import Analyzer, Finding
from vramscope.engine.text import fit_to_reader, make_printable
from vramscope.exporters.json_lines import encode_report
from vramscope.exporters.reports.frame import Provenance
from vramscope.exporters.reports.log import DeviceLog, RunLog, Snapshot
from vramscope.exporters.reports.text import Report, describe_report
from vramscope.exporters.text import NOTEBOOK_WIDTH, format_html

from .own_process import ProcessStream
from .streams import SampleStream
from .watch import Selection, Watch

# Longest time until the thread notices that it should end.
STEP_S = 0.2
STOPS_WITHIN_S = 2.0


class MemoryMonitor:
    """Watches this node and this process from a daemon thread.

    Args:
        devices: Indices of the devices to watch; None for all.
        sampling_interval: Seconds between samples.
        max_snapshots: Most snapshots to keep for each device.
        stream: Source of samples; by default this process.

    Raises:
        UsageError: An argument is invalid.
    """

    def __init__(
        self,
        devices: Sequence[int] | None = None,
        sampling_interval: float = 1.0,
        max_snapshots: int = 10_000,
        *,
        stream: SampleStream | None = None,
    ) -> None:
        if not 0.02 <= sampling_interval <= 3600:
            raise UsageError(f"sampling_interval {sampling_interval}: expected 0.02 to 3,600 seconds")
        if max_snapshots < 1:
            raise UsageError(f"max_snapshots {max_snapshots}: expected 1 or more")
        self.sampling_interval = sampling_interval
        self._selection = Selection(None if devices is None else tuple(str(index) for index in devices))
        self._max_snapshots = max_snapshots
        self._given = stream
        self._lock = threading.RLock()
        self._watch: Watch | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._printed: set[str] = set()
        # Analyzers for thresholds of the user, which run along with the others.
        self._rules: tuple[Analyzer, ...] = ()

    @property
    def is_monitoring(self) -> bool:
        """Whether the watch runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def devices(self) -> list[int]:
        """Indices of the devices that have been seen."""
        with self._lock:
            return [device.index for device in self._log.devices.values()]

    def start_monitoring(self) -> None:
        """Start to watch in the background; does nothing if it runs already.

        Earlier samples stay; a stopped watch goes on from here.
        """
        if self.is_monitoring:
            return
        self._stop = threading.Event()
        watch = self._open()
        self._thread = threading.Thread(
            target=self._follow, args=(watch, self._stop), name="vramscope-monitor", daemon=True
        )
        self._thread.start()

    def stop_monitoring(self) -> None:
        """Stop the watch; does nothing if it does not run. Samples stay."""
        thread = self._thread
        self._thread = None
        self._stop.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=STOPS_WITHIN_S)

    def __enter__(self) -> Self:
        self.start_monitoring()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_monitoring()

    @property
    def _log(self) -> RunLog:
        return RunLog() if self._watch is None else self._watch.log

    @property
    def _provenance(self) -> Provenance:
        return Provenance(source="driver") if self._watch is None else self._watch.provenance

    def _find(self, device_id: int) -> DeviceLog | None:
        return next((it for it in self._log.devices.values() if it.index == device_id), None)

    def _require(self, device_id: int) -> DeviceLog:
        """Return the log of a device.

        Raises:
            UsageError: The device was not seen.
        """
        device = self._find(device_id)
        if device is None:
            raise UsageError(
                f"device {device_id} was not seen; the devices seen are {self.devices or 'none'}"
            )
        return device

    def _open(self) -> Watch:
        """Return a watch on a new stream, which goes on with the log of the one before."""
        stream = ProcessStream(self.sampling_interval) if self._given is None else self._given
        watch = Watch(stream, self._selection, max_snapshots=self._max_snapshots)
        watch.on_finding = self._take_finding
        watch.rules = self._rules
        with self._lock:
            if self._watch is not None:
                watch.log = self._watch.log
                watch.conclusions = self._watch.conclusions
            self._watch = watch
        return watch

    def _follow(self, watch: Watch, stop: threading.Event) -> None:
        """Read samples until `stop` is set; runs on the thread."""
        try:
            watch.stream.start()
            while not stop.is_set() and not watch.is_ended:
                samples = watch.stream.take(STEP_S)
                with self._lock:
                    is_new = watch.fold(samples)
                if is_new:
                    self._react()
                self._tend()
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not reach the training
            self._print_once(f"monitoring ended: {error or type(error).__name__}")
        finally:
            watch.stream.stop()
            self._end()

    def _react(self) -> None:
        """Do what a class does after new samples, outside of the lock."""

    def _tend(self) -> None:
        """Do what a class does several times a second, new samples or not, outside of the lock."""

    def _end(self) -> None:
        """Do what a class does when a watch ends, on its thread."""

    def _take_finding(self, finding: Finding) -> None:
        """Process a finding that opened, became more severe or closed, inside of the lock."""

    def _print_once(self, sentence: str) -> None:
        """Print a sentence on stderr, once."""
        if sentence in self._printed:
            return
        self._printed.add(sentence)
        try:
            sys.stderr.write(fit_to_reader(f"vramscope: {make_printable(sentence)}\n", sys.stderr))
            sys.stderr.flush()
        except (OSError, ValueError):
            return


class ShownReport(dict[str, object]):
    """A report as its JSON reads; a notebook shows it as the text that the command prints."""

    def __init__(self, content: dict[str, object], report: Report) -> None:
        super().__init__(content)
        self._report = report

    def _repr_html_(self) -> str:
        return format_html(describe_report(self._report, NOTEBOOK_WIDTH))


def publish(report: msgspec.Struct, output_file: str | Path | None) -> dict[str, object]:
    """Return a report as its JSON reads back, and write it to a file if one is named."""
    data = encode_report(report)
    if output_file is not None:
        write_whole(data, Path(output_file))
    read: dict[str, object] = msgspec.json.decode(data)
    return ShownReport(read, report) if isinstance(report, get_args(Report)) else read


Format = Literal["png", "pdf"]
FORMATS: tuple[Format, ...] = ("png", "pdf")
_NAN = float("nan")


def plot_device(
    snapshots: Sequence[Snapshot],
    device: str,
    clock: Literal["wall", "trace"],
    output_file: str | Path | None,
    *,
    what: Literal["memory_usage", "fragmentation"],
) -> list[Path]:
    """Draw one device over time; return the files.

    Args:
        output_file: File to write, in the format of its ending; None for PNG and PDF in the current folder.
    """
    if output_file is None:
        return _draw(snapshots, device, clock, Path(), FORMATS, what)
    path = Path(output_file)
    ending = path.suffix.lower()
    kind = next((it for it in FORMATS if ending == f".{it}"), None)
    if kind is None:
        raise UsageError(f"{path}: expected a name that ends in .png or .pdf")
    with tempfile.TemporaryDirectory() as folder:
        (drawn,) = _draw(snapshots, device, clock, Path(folder), (kind,), what)
        data = drawn.read_bytes()
    if not path.parent.is_dir():
        raise OutputFileError(f"{path}: the folder {path.parent} does not exist; create it first")
    write_whole(data, path)
    return [path]


def _draw(
    snapshots: Sequence[Snapshot],
    device: str,
    clock: Literal["wall", "trace"],
    folder: Path,
    formats: tuple[Format, ...],
    what: Literal["memory_usage", "fragmentation"],
) -> list[Path]:
    from vramscope.exporters.figures import (
        Curve,
        DeviceFigure,
        FragmentationFigure,
        plot_fragmentation,
        plot_memory_usage,
    )

    times = array("d", (it.time_s for it in snapshots))
    subtitle = f"{len(snapshots):,} snapshots"

    def curve(values: Iterable[float | None]) -> Curve:
        column = array("d", (_NAN if value is None else value for value in values))
        return Curve(times, column, column, column)

    if what == "fragmentation":
        fragmentation = curve(it.fragmentation for it in snapshots)
        return plot_fragmentation(
            FragmentationFigure(device=device, clock=clock, fragmentation=fragmentation, subtitle=subtitle),
            folder,
            formats,
        )
    figure = DeviceFigure(
        device=device,
        clock=clock,
        allocated=curve(it.allocated_bytes for it in snapshots),
        reserved=curve(it.reserved_bytes for it in snapshots),
        used=curve(it.used_bytes for it in snapshots),
        capacity=curve(it.total_bytes for it in snapshots),
        subtitle=subtitle,
    )
    return plot_memory_usage(figure, folder, formats)
