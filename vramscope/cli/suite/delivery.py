"""Where a report goes: a file, standard output as JSON or as text; and the exit code."""

import sys
from collections.abc import Iterator
from pathlib import Path

from vramscope.engine.errors import OutputFileError, UsageError
from vramscope.engine.model import SEVERITIES, Severity
from vramscope.engine.output_file import check_writable
from vramscope.engine.readers.input_file import show_path
from vramscope.exporters.reports.leak import LeakReport
from vramscope.exporters.reports.oom import OomReport
from vramscope.exporters.reports.report import Report
from vramscope.exporters.reports.writing import encode_report, write_report

from ..diagnostics import EXIT_FINDINGS, complain
from ..figure_flag import ENDINGS
from .options import WatchOptions

LEAST_WIDTH = 40


def check_outputs(options: WatchOptions) -> None:
    """Find out before the watch what could not be written after it.

    Raises:
        UsageError: The report would be written into a file named as a figure.
        OutputFileError: A report or the plots could not be written.
    """
    output, source = options.output, options.input
    if output is not None:
        if output.suffix.lower() in ENDINGS:
            raise UsageError(
                f"-o {show_path(output)}: the report is JSON; --figure {show_path(output)} draws a figure"
            )
        check_writable(output)
        if source is not None and output.exists() and source.exists() and output.samefile(source):
            raise OutputFileError(f"{show_path(output)}: is the file of --input; name another one")
    if options.archive is not None:
        make_archive(options.archive)
    if options.figure is not None:
        options.figure.check()


def make_archive(folder: Path) -> None:
    """Make the folder of scheduled reports where it is missing.

    Raises:
        OutputFileError: It cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise OutputFileError(f"--archive {show_path(folder)}: cannot be made: {reason}") from error
    check_writable(folder / "report.json")


def deliver(report: Report, options: WatchOptions) -> bool:
    """Put a report where it was asked for; return whether people have read its notes in it.

    Args:
        report: The report.
        options: Flags of the verb.

    Raises:
        OutputFileError: The file cannot be written.
    """
    if options.output is not None:
        _write_or_print(report, options.output)
        complain(f"the report is in {show_path(options.output)}")
        if options.format is None:
            return False
    if (options.format or ("text" if sys.stdout.isatty() else "json")) == "json":
        sys.stdout.buffer.write(encode_report(report))
        sys.stdout.buffer.flush()
        return False
    _print_text(report)
    return True


def _write_or_print(report: Report, path: Path) -> None:
    """Write a report; where its folder has gone during the watch, print it, so that it is not lost.

    Raises:
        OutputFileError: It cannot be written.
    """
    try:
        write_report(report, path)
    except OutputFileError as error:
        sys.stdout.buffer.write(encode_report(report))
        raise OutputFileError(f"{error}; the report is on standard output instead") from error


def _print_text(report: Report) -> None:
    from vramscope.exporters.reports.text import describe_report

    from ..printing import choose_width, emit

    emit(describe_report(report, max(LEAST_WIDTH, choose_width())))


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
