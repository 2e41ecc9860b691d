"""`vramscope leak`: growth of device and host memory that does not end, as a report."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ..frame.registry import SubParsers
from ..suite.flags import Defaults, add_watch_parser, read_count, read_number, read_watch_options

if TYPE_CHECKING:
    from vramscope.exporters.reports.log import RunLog
    from vramscope.exporters.reports.text import Report
    from vramscope.memory.watch import Watch

SUMMARY = "watch memory for a while and report leaks, each once, with the line that keeps the memory"
EPILOG = """\
examples:
  vramscope leak --threshold 10 --enable-tracking --duration 600
  vramscope leak --output leak_report.json --duration 300
  vramscope leak --input series.csv --fail-on medium

exit codes: 0 done, 3 a finding reached --fail-on, 2 usage or bad input, 4 no device,
5 the driver is not loaded or does not answer"""
DEFAULTS = Defaults(duration="600", interval="5")
MOST_MIB_PER_MIN = 1e9


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = add_watch_parser(subparsers, common, "leak", DEFAULTS, summary=SUMMARY, epilog=EPILOG)
    parser.add_argument(
        "--threshold",
        metavar="MIB",
        help="growth a minute above which `leak_risk` is high (default 10); where given, --fail-on counts "
        "that risk; decides about no finding",
    )
    parser.add_argument(
        "--window", metavar="N", default="100", help="snapshots that the growth is fitted to (default 100)"
    )
    parser.add_argument(
        "--enable-tracking",
        action="store_true",
        help="let jobs under the probe record allocations for a while, to name the line that keeps them",
    )


def run(arguments: Namespace) -> int:
    """Watch and report; return the exit code."""
    from vramscope.exporters.reports.leak import LeakRule, build_leak

    from ..suite.running import SuiteRun, open_stream
    from ..suite.tracking import AllocationTracker

    window = read_count("--window", arguments.window, 2, 1_000_000)
    rule = LeakRule(window=window)
    if arguments.threshold is not None:
        rule = LeakRule(
            read_number("--threshold", arguments.threshold, 0.0, MOST_MIB_PER_MIN), window, is_given=True
        )
    options = read_watch_options(arguments, "leak", DEFAULTS)
    options = options._replace(max_snapshots=max(options.max_snapshots, rule.window))
    stream = open_stream(options)
    tracker = AllocationTracker(stream) if arguments.enable_tracking else None

    def build(watch: "Watch", log: "RunLog") -> "Report":
        return build_leak(log, watch.provenance, rule, None if tracker is None else tracker.describe())

    companions = () if tracker is None else (tracker,)
    return SuiteRun(options, build, stream=stream, companions=companions).run()
