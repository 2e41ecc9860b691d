"""`vramscope oom`: the risk of running out of memory of each device, as a report."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError

from ..frame.flags import between, whole
from ..frame.parse import SubParsers
from ..suite.flags import Defaults, add_watch_parser, read_watch_options

if TYPE_CHECKING:
    from vramscope.engine.model import Analyzer
    from vramscope.exporters.reports.log import RunLog
    from vramscope.exporters.reports.oom import Thresholds
    from vramscope.exporters.reports.text import Report
    from vramscope.memory.watch import Watch

SUMMARY = "watch memory for a while and report the risk of running out of it, with what it rests on"
DESCRIPTION = """\
Watch memory for a while and report the risk of running out of it, with what it rests on.
Where a job reports through the probe (or a file has allocator data) the risk is a forecast; with device
memory alone nothing can be foretold, and the shares of --threshold and --critical decide. Thresholds that
you give always count: crossing one is said at once, whatever the forecast is."""
EPILOG = """\
examples:
  vramscope oom --threshold 85 --monitor
  vramscope oom --threshold 80 --duration 300 --output oom_report.json
  vramscope oom --input gpu.csv --fail-on high

exit codes: 0 done, 3 a finding or the risk of a device reached --fail-on,
2 usage or bad input, 4 no device, 5 the driver is not loaded or does not answer"""
DEFAULTS = Defaults(duration_s=300, interval_s=2)


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_watch_parser(
        subparsers, common, "oom", DEFAULTS, summary=SUMMARY, epilog=EPILOG, description=DESCRIPTION
    )
    rule = parser.add_argument_group("thresholds of used memory")
    rule.add_argument(
        "--threshold",
        metavar="PERCENT",
        type=between(0.0, 100.0),
        help="medium from here (default 85); where given, crossing it is said at once and is a finding",
    )
    rule.add_argument(
        "--critical",
        metavar="PERCENT",
        type=between(0.0, 100.0),
        help="critical from here (default 95); where given, crossing it is said at once and is a finding",
    )
    rule.add_argument(
        "--window",
        metavar="N",
        type=whole(2, 100_000),
        default=30,
        help="snapshots that growth is fitted to (default 30)",
    )
    parser.add_argument(
        "--monitor",
        action="store_true",
        help="watch until Ctrl-C or for --duration, and say findings as they come",
    )


def run(arguments: Namespace) -> int:
    from vramscope.exporters.reports.oom import build_oom

    from ..suite.running import SuiteRun

    thresholds = _read_thresholds(arguments)
    options = read_watch_options(arguments, "oom", DEFAULTS)
    if arguments.monitor:
        duration_s = None if arguments.watch_duration is None else options.duration_s
        options = options._replace(duration_s=duration_s, is_told=True)

    def build(watch: "Watch", log: "RunLog") -> "Report":
        return build_oom(log, watch.provenance, thresholds)

    rules: tuple[Analyzer, ...] = ()
    if thresholds.is_given:
        from vramscope.analyzers.usage_threshold import UsageThresholdAnalyzer

        rules = (UsageThresholdAnalyzer(thresholds.warning_percent, thresholds.critical_percent),)
    return SuiteRun(options, build, rules=rules).run()


def _read_thresholds(arguments: Namespace) -> "Thresholds":
    """Return the rule on device memory alone."""
    from vramscope.exporters.reports.oom import Thresholds

    warning = Thresholds().warning_percent
    critical = Thresholds().critical_percent
    if arguments.threshold is not None:
        warning = arguments.threshold
    if arguments.critical is not None:
        critical = arguments.critical
    if arguments.critical is None:
        critical = max(critical, warning)
    elif arguments.threshold is None:
        warning = min(critical, warning)
    if critical < warning:
        raise UsageError(
            f"--critical {critical:g} is below --threshold {warning:g}: expected at least as much"
        )
    is_given = arguments.threshold is not None or arguments.critical is not None
    return Thresholds(warning, critical, arguments.window, is_given)
