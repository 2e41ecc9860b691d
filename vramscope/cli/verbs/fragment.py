"""`vramscope fragment`: memory that each allocator holds and its job cannot use, as a report."""

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


DESCRIPTION = "Watch the allocators of jobs for a while, and report how fragmented their memory is."
EXAMPLES = """\
vramscope fragment --duration 120 --figure plots/ -o fragment.json
vramscope fragment --duration 300 --interval 5.0"""
NOTES = "Only jobs under the probe report their allocator: see `vramscope run` and `vramscope attach`."
DEFAULTS = Defaults(duration_s=120, interval_s=2)


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_watch_parser(
        subparsers, common, "fragment", DEFAULTS, description=DESCRIPTION, examples=EXAMPLES, notes=NOTES
    )
    parser.add_argument(
        "--max-history",
        metavar="N",
        type=whole(1, 10_000_000),
        default=1000,
        help="most snapshots kept for each device (default 1000)",
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


# Not more often, since a map stops the threads of its job while it copies the list of blocks.
MAP_EVERY_S = 30.0


class SegmentMapper:
    """Asks each reporting process for its segments, where there is an agent to ask it."""

    def __init__(self, stream: "SampleStream") -> None:
        self._stream = stream
        self._asked_s: dict[int, float] = {}
        self._maps: dict[int, SegmentMap] = {}
        # Those of the watch, which read each map as it comes, for the trend.
        self.conclusions: Conclusions | None = None

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
        """Return the fragmentation of each allocator by now, with the pattern in its newest map."""
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
