"""`vramscope fragment`: what the allocator of each job holds and the job cannot have, as a report."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from vramscope.engine.model import Sample, SegmentMap

from ..frame.flags import whole
from ..frame.parse import SubParsers
from ..suite.flags import Defaults, add_watch_parser, read_watch_options

if TYPE_CHECKING:
    from vramscope.exporters.reports.fragment import FragmentationFigures
    from vramscope.exporters.reports.log import RunLog
    from vramscope.exporters.reports.text import Report
    from vramscope.memory.streams import SampleStream
    from vramscope.memory.watch import Conclusions, Watch


SUMMARY = "watch memory for a while and report how fragmented it is, where an allocator tells"
EPILOG = """\
examples:
  vramscope fragment --duration 120 --figure plots/ -o fragment.json
  vramscope fragment --duration 300 --interval 5.0

exit codes: 0 done, 3 a finding reached --fail-on, 2 usage or bad input, 4 no device,
5 the driver is not loaded or does not answer"""
DEFAULTS = Defaults(duration_s=120, interval_s=2)


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_watch_parser(subparsers, common, "fragment", DEFAULTS, summary=SUMMARY, epilog=EPILOG)
    parser.add_argument(
        "--max-history",
        metavar="N",
        type=whole(1, 10_000_000),
        default=1000,
        help="snapshots kept of each device (default 1000)",
    )


def run(arguments: Namespace) -> int:
    from vramscope.exporters.reports.fragment import build_fragment

    from ..suite.running import SuiteRun, open_stream

    options = read_watch_options(arguments, "fragment", DEFAULTS)._replace(
        max_snapshots=arguments.max_history
    )
    stream = open_stream(options)
    mapper = SegmentMapper(stream)

    def build(watch: "Watch", log: "RunLog") -> "Report":
        return build_fragment(log, watch.provenance, mapper.measure(watch))

    suite = SuiteRun(options, build, stream=stream, companions=(mapper,))
    mapper.conclusions = suite.watch.conclusions
    return suite.run()


MAP_EVERY_S = 30.0
"""A map stops the threads of its job for as long as it takes to copy the list of blocks."""


class SegmentMapper:
    """Asks each process that reports for its segments, where an agent can."""

    def __init__(self, stream: "SampleStream") -> None:
        self._stream = stream
        self._asked_s: dict[int, float] = {}
        self._maps: dict[int, SegmentMap] = {}
        self.conclusions: Conclusions | None = None
        """Those of the watch, which read each map as it comes, so that the trend is known."""

    def observe(self, sample: Sample) -> None:
        from vramscope.analyzers.fragmentation import FragmentationAnalyzer

        agent = self._stream.agent
        if agent is None:
            return
        for found in agent.client.snapshot(timeout_s=0.0).segment_maps:
            if found.pid in self._asked_s and found != self._maps.get(found.pid):
                self._maps[found.pid] = found
                analyzer = None if self.conclusions is None else self.conclusions.find(FragmentationAnalyzer)
                if analyzer is not None:
                    analyzer.take_map(found)
        for rank in sample.ranks:
            asked_s = self._asked_s.get(rank.pid)
            is_due = asked_s is None or sample.time_s - asked_s >= MAP_EVERY_S
            if rank.state == "ok" and rank.allocator is not None and is_due:
                agent.client.ask_segments(rank.pid)
                self._asked_s[rank.pid] = sample.time_s

    def measure(self, watch: "Watch") -> "list[FragmentationFigures]":
        """Return what the analyzer says of each allocator by now, with what the newest maps tell."""
        from vramscope.analyzers.fragmentation import FragmentationAnalyzer, describe_pattern
        from vramscope.exporters.reports.fragment import FragmentationFigures

        analyzer = watch.conclusions.find(FragmentationAnalyzer)
        if analyzer is None:
            return []
        figures = []
        for reading in analyzer.readings():
            known = self._maps.get(reading.pid or 0)
            pattern = None if known is None else describe_pattern(known)
            figures.append(FragmentationFigures(reading, analyzer.trend(reading.key), pattern))
        return figures
