"""`vramscope fragment`: what the allocator of each job holds and the job cannot have, as a report."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ..frame.registry import SubParsers
from ..suite.flags import Defaults, add_watch_parser, read_count, read_watch_options

if TYPE_CHECKING:
    from vramscope.exporters.reports.log import RunLog
    from vramscope.exporters.reports.text import Report
    from vramscope.memory.watch import Watch

SUMMARY = "watch memory for a while and report how fragmented it is, where an allocator tells"
EPILOG = """\
examples:
  vramscope fragment --duration 120 --figure plots/ -o fragment.json
  vramscope fragment --duration 300 --interval 5.0

exit codes: 0 done, 3 a finding reached --fail-on, 2 usage or bad input, 4 no device,
5 the driver is not loaded or does not answer"""
DEFAULTS = Defaults(duration="120", interval="2")


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = add_watch_parser(subparsers, common, "fragment", DEFAULTS, summary=SUMMARY, epilog=EPILOG)
    parser.add_argument(
        "--max-history", metavar="N", default="1000", help="snapshots kept of each device (default 1000)"
    )


def run(arguments: Namespace) -> int:
    """Watch and report; return the exit code."""
    from vramscope.exporters.reports.fragment import build_fragment

    from ..suite.mapping import SegmentMapper
    from ..suite.running import SuiteRun, open_stream

    options = read_watch_options(arguments, "fragment", DEFAULTS)._replace(
        max_snapshots=read_count("--max-history", arguments.max_history, 1, 10_000_000)
    )
    stream = open_stream(options)
    mapper = SegmentMapper(stream)

    def build(watch: "Watch", log: "RunLog") -> "Report":
        return build_fragment(log, watch.provenance, mapper.measure(watch))

    suite = SuiteRun(options, build, stream=stream, companions=(mapper,))
    mapper.conclusions = suite.watch.conclusions
    return suite.run()
