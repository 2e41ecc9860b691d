"""`vramscope oom`: the risk of running out of memory of each device, as a report."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError

from ..frame.flags import between, whole
from ..frame.parse import SubParsers
from ..suite.flags import EXIT_CODES as SUITE_EXIT_CODES
from ..suite.flags import Defaults, add_watch_parser, read_watch_options

if TYPE_CHECKING:
    from vramscope.engine.model import Analyzer
    from vramscope.exporters.reports.log import RunLog
    from vramscope.exporters.reports.oom import Thresholds
    from vramscope.exporters.reports.text import Report
    from vramscope.memory.watch import Watch

DESCRIPTION = "Watch memory for a while, and report the risk of running out of it, with the evidence."
EXAMPLES = """\
vramscope oom --threshold 85 --monitor
vramscope oom --threshold 80 --duration 300 --output oom_report.json
vramscope oom --input gpu.csv --fail-on high"""
NOTES = """\
Where a job reports through the probe, or a file has allocator data, the risk comes from a forecast. Device
memory alone allows no forecast: then --threshold and --critical decide. A threshold that you give also opens
a finding as soon as memory crosses it, whatever the forecast is."""
EXIT_CODES = {**SUITE_EXIT_CODES, 3: "a finding or the risk of a device reached --fail-on"}
DEFAULTS = Defaults(duration_s=300, interval_s=2)


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_watch_parser(
        subparsers,
        common,
        "oom",
        DEFAULTS,
        description=DESCRIPTION,
        examples=EXAMPLES,
        notes=NOTES,
        exit_codes=EXIT_CODES,
    )
    rule = parser.add_argument_group("thresholds of used memory")
    rule.add_argument(
        "--threshold",
        metavar="PERCENT",
        type=between(0.0, 100.0),
        help="medium risk from here (default 85); if given, crossing it opens a finding",
    )
    rule.add_argument(
        "--critical",
        metavar="PERCENT",
        type=between(0.0, 100.0),
        help="critical risk from here (default 95); if given, crossing it opens a finding",
    )
    rule.add_argument(
        "--window",
        metavar="N",
        type=whole(2, 100_000),
        default=100,
        help="newest snapshots that growth is fitted to, where the analyzers have no rate yet (default 100)",
    )
    parser.add_argument(
        "--monitor",
        action="store_true",
        help="print each finding as it opens; watch until Ctrl-C, or for --duration",
    )


def run(arguments: Namespace) -> int:
    from vramscope.exporters.reports.oom import build_oom

    from ..suite.running import SuiteRun

    thresholds = _read_thresholds(arguments)
    options = read_watch_options(arguments, "oom", DEFAULTS)
    if arguments.monitor:
        duration_s = None if arguments.watch_duration is None else options.duration_s
        options = options._replace(duration_s=duration_s, prints_findings=True)

    def build(watch: "Watch", log: "RunLog") -> "Report":
        return build_oom(log, watch.provenance, thresholds)

    rules: tuple[Analyzer, ...] = ()
    if thresholds.is_given:
        from vramscope.analyzers.usage_threshold import UsageThresholdAnalyzer

        rules = (UsageThresholdAnalyzer(thresholds.warning_percent, thresholds.critical_percent),)
    return SuiteRun(options, build, rules=rules).run()


def _read_thresholds(arguments: Namespace) -> "Thresholds":
    """Return the thresholds for device memory alone; one that is given moves the other's default."""
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
            f"--critical {critical:g} is below --threshold {warning:g}: expected the same or more"
        )
    is_given = arguments.threshold is not None or arguments.critical is not None
    return Thresholds(warning, critical, arguments.window, is_given)
