"""A verb that watches for a while and reports, from its options to its exit code."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from vramscope.engine.errors import (
    DriverNotLoadedError,
    HubUnreachableError,
    OutputFileError,
    SourceUnavailableError,
    UsageError,
)
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.files.base.output_file import check_writable
from vramscope.engine.files.base.output_route import make_folder
from vramscope.engine.model import SEVERITIES, Analyzer, Finding, Sample, Severity
from vramscope.engine.units import format_age, format_gib, format_seconds
from vramscope.engine.viewer.this_node import DRIVER_SILENT
from vramscope.exporters.json_lines import encode_report, write_report
from vramscope.exporters.reports.leak import LeakReport
from vramscope.exporters.reports.log import DeviceLog, RunLog
from vramscope.exporters.reports.oom import OomReport
from vramscope.exporters.reports.text import Report
from vramscope.memory.streams import SampleStream
from vramscope.memory.watch import Companion, Watch

from ..frame.emit import choose_width, complain, emit
from ..frame.errors import EXIT_FINDINGS, Interruption
from ..frame.flags import ENDINGS
from ..frame.progress import ProgressLine
from .flags import WatchOptions

if TYPE_CHECKING:
    pass


EXTENSION = ".json"


class Schedule:
    """Knows when a period is over, and names its report."""

    def __init__(self, folder: Path, verb: str, period_s: float) -> None:
        self._folder = folder
        self._verb = verb
        self._period_s = period_s
        self._end_s: float | None = None

    def is_over(self, now_s: float) -> bool:
        """Return whether the running period is over, and begin the next if it is."""
        if self._end_s is None:
            self._end_s = now_s + self._period_s
        if now_s < self._end_s:
            return False
        while self._end_s <= now_s:
            self._end_s += self._period_s
        return True

    def write(self, report: Report, newest: Sample | None) -> Path:
        """Write the report of a period under a name with its time; return the file."""
        stem = f"{self._verb}-{self._stamp(newest)}"
        path = self._folder / f"{stem}{EXTENSION}"
        number = 1
        while path.exists():
            number += 1
            path = self._folder / f"{stem}-{number}{EXTENSION}"
        write_report(report, path)
        return path

    def _stamp(self, newest: Sample | None) -> str:
        """Return the time of the newest sample: UTC, or the seconds of a file without dates."""
        if newest is not None and newest.clock == "trace":
            return f"{newest.time_s:012.3f}s"
        time_s = time.time() if newest is None else newest.time_s
        return datetime.fromtimestamp(time_s, UTC).strftime("%Y%m%dT%H%M%SZ")


# Makes the report of a period of a watch.
Build: TypeAlias = Callable[[Watch, RunLog], Report]


# Longest time until Ctrl-C is noticed.
STEP_S = 0.25
# How long a watch waits for a device: by then the agent or the driver has reported why there is none.
DEVICES_WITHIN_S = 8.0


class SuiteRun:
    """Watches for a while, delivers the report and returns the exit code.

    Args:
        stream: Source of samples; by default the one that the options name.
        turn: Called several times a second with the seconds passed; returns those that count.
        rules: Analyzers for thresholds of the user; on a live node their findings are printed as they open,
            with or without --monitor.
    """

    def __init__(
        self,
        options: WatchOptions,
        build: Build,
        *,
        companions: Sequence[Companion] = (),
        stream: SampleStream | None = None,
        turn: Callable[[float], float] | None = None,
        may_be_empty: bool = False,
        rules: Sequence[Analyzer] = (),
    ) -> None:
        self._options = options
        self._build = build
        self._turn = turn
        self._may_be_empty = may_be_empty or options.input is not None
        # Whether Ctrl-C or SIGTERM ended it.
        self.is_interrupted = False
        check_outputs(options)
        self._stream = open_stream(options) if stream is None else stream
        self.watch = Watch(
            self._stream,
            options.selection,
            max_snapshots=options.max_snapshots,
            interval_s=options.interval_s,
            until_s=options.duration_s if options.input is not None else None,
        )
        self.watch.rules = tuple(rules)
        self._spoken = frozenset(rule.name for rule in rules) if options.input is None else frozenset()
        if options.prints_findings or self._spoken:
            self.watch.on_finding = self._say
        self.watch.companions += companions
        if options.figure is None:
            self._plots = None
        else:
            from .plots import PlotRecorder

            self._plots = PlotRecorder()
        self.watch.companions += [] if self._plots is None else [self._plots]
        self._progress = ProgressLine(f"vramscope {options.verb}")
        self._schedule: Schedule | None = None
        if options.archive is not None and options.every_s is not None:
            self._schedule = Schedule(options.archive, options.verb, options.every_s)
        if options.input is not None:
            self.watch.before_sample = lambda sample: self._archive_if_over(sample.time_s)
        self._code = 0

    def run(self) -> int:
        """Watch until it is over or Ctrl-C, deliver the report, return the exit code."""
        with Interruption() as interruption:
            try:
                self._follow(interruption)
                self.is_interrupted = interruption.is_asked
            finally:
                self._progress.clear()
                self._stream.stop()
        self._check_seen()
        self._conclude()
        return self._code

    def _describe_progress(self, passed_s: float) -> str:
        """Return the time passed, the memory of devices and the number of open findings."""
        log = self.watch.log
        duration_s = self._options.duration_s
        read_share = self._stream.read_share
        if read_share is not None:
            parts = [f"{100 * read_share:.0f} % read"]
        elif duration_s is None:
            parts = [f"{format_age(passed_s)}, press Ctrl-C for the report"]
        else:
            parts = [f"{format_age(passed_s)} of {format_age(duration_s)}"]
        parts.append(f"{log.samples:,} samples")
        for device in list(log.devices.values())[:4]:
            last = device.last
            if last is not None and last.load_bytes is not None:
                parts.append(
                    f"{device.label}: {format_gib(last.load_bytes)}/{format_gib(last.total_bytes)} GiB"
                )
        found = sum(trail.finding.is_open for trail in log.findings.values())
        parts += [f"{found} open finding{'' if found == 1 else 's'}"] if found else []
        return " · ".join(parts) if sys.stderr.encoding.lower().startswith("utf") else ", ".join(parts)

    def _follow(self, interruption: Interruption) -> None:
        watch = self.watch
        options = self._options
        watch.start()
        started_s = time.monotonic()
        while not (watch.is_ended or interruption.is_asked):
            passed_s = time.monotonic() - started_s
            passed_s = passed_s if self._turn is None else self._turn(passed_s)
            left_s = self._find_left(passed_s)
            if left_s is not None and left_s <= 0:
                break
            watch.step(STEP_S if left_s is None else min(STEP_S, left_s))
            self._progress.show(partial(self._describe_progress, passed_s))
            if options.input is None:
                self._archive_if_over(time.monotonic())
            if options.input is None and passed_s > DEVICES_WITHIN_S:
                self._check_devices()
        watch.complete_findings()

    def _find_left(self, passed_s: float) -> float | None:
        """Return the seconds until the watch is over; None where it ends with its file or with Ctrl-C."""
        if self._options.input is not None or self._options.duration_s is None:
            return None
        left_s = self._options.duration_s - passed_s
        has_seen = self.watch.has_seen_any and not self._is_unmeasured
        is_too_soon = left_s <= 0 and not (self._may_be_empty or has_seen)
        return DEVICES_WITHIN_S - passed_s if is_too_soon else left_s

    def _archive_if_over(self, now_s: float) -> None:
        if self._schedule is None or not self._schedule.is_over(now_s):
            return
        self.watch.complete_findings()
        done = self.watch.begin_period()
        report = self._build(self.watch, done)
        path = self._schedule.write(report, done.last)
        self._note_findings(report)
        self._progress.clear()
        complain(f"wrote the report to {path}")

    def _conclude(self) -> None:
        report = self._build(self.watch, self.watch.log)
        self._note_findings(report)
        is_read = False
        if self._schedule is None:
            is_read = deliver(report, self._options)
        elif self.watch.log.samples:
            complain(f"wrote the report to {self._schedule.write(report, self.watch.log.last)}")
        for note in () if is_read else self.watch.provenance.notes:
            complain(note)
        for device in self._unmeasured:
            complain(f"device {device.label} was not measured: {device.reason or device.state}")
        self._draw()

    def _draw(self) -> None:
        figure = self._options.figure
        if self._plots is None or figure is None:
            return
        from .plots import describe_files

        source = "this node" if self._options.input is None else self._options.input.name
        subtitle = f"{source}, {self.watch.log.samples:,} samples"
        complain(describe_files(self._plots.write(self.watch.log, figure, subtitle=subtitle)))
        for sentence in self._plots.left_out:
            complain(sentence)

    @property
    def _unmeasured(self) -> list[DeviceLog]:
        """The devices of this node without any reading so far."""
        if self._options.input is not None:
            return []
        silent = (it for it in self.watch.log.devices.values() if it.state in ("stale", "lost"))
        return [it for it in silent if not it.count]

    @property
    def _is_unmeasured(self) -> bool:
        """Whether a report would be empty, because the driver did not answer for any device."""
        log = self.watch.log
        return 0 < len(log.devices) == len(self._unmeasured) and not log.findings

    def _note_findings(self, report: Report) -> None:
        self._code = max(self._code, choose_exit_code(report, self._options.fail_on))

    def _check_devices(self) -> None:
        """Refuse chosen devices that do not exist."""
        missing = self.watch.missing_devices
        seen = self.watch.devices_seen
        if missing and seen:
            known = ", ".join(device.label for device in seen)
            raise UsageError(f"--devices {' '.join(missing)}: no such device; the devices are {known}")

    def _check_seen(self) -> None:
        """Refuse an empty report."""
        self._check_devices()
        if not (self._may_be_empty or self.watch.has_seen_any):
            if self.watch.provenance.source == "agent":
                raise HubUnreachableError("nothing was measured: the agent sent no sample of a device")
            if self.is_interrupted:
                raise DriverNotLoadedError("nothing was measured: it was ended before the first reading")
            raise DriverNotLoadedError(DRIVER_SILENT)
        if self._is_unmeasured and self._schedule is None and not self._may_be_empty:
            silent = ", ".join(f"device {it.label}: {it.reason or it.state}" for it in self._unmeasured)
            raise DriverNotLoadedError(f"nothing was measured: {silent}; see `dmesg | grep -i nvrm`")
        chosen = self._options.selection
        if self.watch.log.devices or (chosen.pid is None and chosen.job is None):
            return
        who = f"process {chosen.pid}" if chosen.job is None else f"job {chosen.job}"
        raise SourceUnavailableError(
            f"{who} was not seen on any device: start it with `vramscope run`, or use `vramscope attach`, "
            "while an agent runs"
        )

    def _say(self, finding: Finding) -> None:
        """Print a finding on stderr as it opens, becomes more severe or closes."""
        if not self._options.prints_findings and finding.kind not in self._spoken:
            return
        state = finding.severity if finding.is_open else "closed"
        self.say(f"{state}: {finding.title}", at=self._stamp(finding))

    def _stamp(self, finding: Finding) -> str | None:
        """Return the time in the file at which a finding changed; None where this node is watched."""
        last = self.watch.log.last
        if self._options.input is None or last is None:
            return None
        time_s = finding.updated_s if finding.closed_s is None else finding.closed_s
        if last.clock == "trace":
            return format_seconds(time_s)
        return f"{datetime.fromtimestamp(time_s):%Y-%m-%d %H:%M:%S}"

    def say(self, sentence: str, *, at: str | None = None) -> None:
        """Print a sentence on stderr with its time, past the line of the progress.

        Args:
            at: The time; None for now.
        """
        self._progress.clear()
        complain(f"{at or time.strftime('%H:%M:%S')} {sentence}")


def open_stream(options: WatchOptions) -> SampleStream:
    """Return the source of samples: a file, or this node."""
    if options.input is not None:
        from vramscope.memory.streams import FileStream

        return FileStream(options.input, capacity_bytes=options.capacity_bytes)
    from vramscope.memory.streams import LiveStream

    return LiveStream(options.interval_s)


LEAST_WIDTH = 40


def check_outputs(options: WatchOptions) -> None:
    """Check before the watch that everything can be written after it."""
    output = options.output
    source = options.input
    if output is not None:
        if output.suffix.lower() in ENDINGS:
            raise UsageError(
                f"-o {show_path(output)}: the report is JSON; --figure {show_path(output)} draws a figure"
            )
        check_writable(output)
        if source is not None and output.exists() and source.exists() and output.samefile(source):
            raise OutputFileError(f"{show_path(output)}: this is the file of --input; name another")
    if options.archive is not None:
        make_archive(options.archive)
    if options.figure is not None:
        options.figure.check()


def make_archive(folder: Path) -> None:
    try:
        make_folder(folder, parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise OutputFileError(f"--archive {show_path(folder)}: cannot make this folder: {reason}") from error
    check_writable(folder / "report.json")


def deliver(report: Report, options: WatchOptions) -> bool:
    """Write or print a report; return whether its notes were printed for people."""
    if options.output is not None:
        # Write a report; if its folder has disappeared meanwhile, print it instead, so that it is not lost.
        try:
            write_report(report, options.output)
        except OutputFileError as error:
            sys.stdout.buffer.write(encode_report(report))
            raise OutputFileError(f"{error}; the report was printed on standard output instead") from error
        complain(f"wrote the report to {show_path(options.output)}")
        if options.format is None:
            return False
    if (options.format or ("text" if sys.stdout.isatty() else "json")) == "json":
        sys.stdout.buffer.write(encode_report(report))
        sys.stdout.buffer.flush()
        return False
    from vramscope.exporters.reports.text import describe_report

    emit(describe_report(report, max(LEAST_WIDTH, choose_width())))
    return True


def choose_exit_code(report: Report, fail_on: Severity | None) -> int:
    """Return 3 where a finding, or a risk that the report prints, reached the severity, else 0."""
    if fail_on is None:
        return 0
    least = SEVERITIES.index(fail_on)
    is_reached = any(SEVERITIES.index(severity) >= least for severity in _list_severities(report))
    return EXIT_FINDINGS if is_reached else 0


def _list_severities(report: Report) -> Iterator[Severity]:
    yield from (finding.gravest_severity for finding in report.findings)
    if isinstance(report, LeakReport) and report.is_threshold_given:
        for leaking in report.devices.values():
            if leaking.leak_risk == "high":
                yield "high"
    if isinstance(report, OomReport):
        for device in report.devices.values():
            level = device.risk_assessment.risk_level
            if level != "unknown" and level != "low":  # noqa: PLR1714 - a type checker narrows by this form
                yield level
