"""`vramscope profile`: current, peak and average memory of each device, as a report."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ..frame.flags import whole
from ..frame.parse import SubParsers
from ..suite.flags import Defaults, add_watch_parser, read_watch_options

if TYPE_CHECKING:
    from vramscope.exporters.reports.log import RunLog
    from vramscope.exporters.reports.text import Report
    from vramscope.memory.watch import Watch

DESCRIPTION = "Watch memory for a while, and report current, peak and average memory of each device."
EXAMPLES = """\
vramscope profile --duration 60 -o profile.json --figure plots/
vramscope profile --devices 0 1 --duration 120
vramscope profile --input gpu.csv --fail-on high"""
DEFAULTS = Defaults(duration_s=60, interval_s=1)
MOST_SNAPSHOTS = 10_000_000


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_watch_parser(
        subparsers, common, "profile", DEFAULTS, description=DESCRIPTION, examples=EXAMPLES
    )
    parser.add_argument(
        "--max-snapshots",
        metavar="N",
        type=whole(1, MOST_SNAPSHOTS),
        default=10_000,
        help="most snapshots kept for each device (default 10000)",
    )


def run(arguments: Namespace) -> int:
    from vramscope.exporters.reports.profile import build_profile

    from ..suite.running import SuiteRun

    options = read_watch_options(arguments, "profile", DEFAULTS)._replace(
        max_snapshots=arguments.max_snapshots
    )

    def build(watch: "Watch", log: "RunLog") -> "Report":
        return build_profile(log, watch.provenance)

    return SuiteRun(options, build).run()
