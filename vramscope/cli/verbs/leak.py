"""`vramscope leak`: device and host memory that grows without end, as a report."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ..frame.emit import complain
from ..frame.flags import between, whole
from ..frame.parse import SubParsers
from ..suite.flags import Defaults, add_watch_parser, read_watch_options

if TYPE_CHECKING:
    from vramscope.analyzers.leak_source import LeakSource, SourceSearch
    from vramscope.engine.model import RankSample, Sample
    from vramscope.exporters.reports.leak import TrackedSource, Tracking
    from vramscope.exporters.reports.log import RunLog
    from vramscope.exporters.reports.text import Report
    from vramscope.memory.streams import AgentStream, SampleStream
    from vramscope.memory.watch import Watch


DESCRIPTION = "Watch memory for a while, and report each leak with the line of code that keeps the memory."
EXAMPLES = """\
vramscope leak --threshold 10 --enable-tracking --duration 600
vramscope leak --output leak_report.json --duration 300
vramscope leak --input series.csv --fail-on medium"""
DEFAULTS = Defaults(duration_s=600, interval_s=5)
MOST_MIB_PER_MIN = 1e9


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_watch_parser(
        subparsers, common, "leak", DEFAULTS, description=DESCRIPTION, examples=EXAMPLES
    )
    parser.add_argument(
        "--threshold",
        metavar="MIB",
        type=between(0.0, MOST_MIB_PER_MIN),
        help="growth in MiB a minute from which `leak_risk` is high (default 10); if given, --fail-on counts "
        "that risk too; does not change findings",
    )
    parser.add_argument(
        "--window",
        metavar="N",
        type=whole(2, 1_000_000),
        default=100,
        help="newest snapshots that growth is fitted to, where the analyzers have no rate yet (default 100)",
    )
    parser.add_argument(
        "--enable-tracking",
        action="store_true",
        help="let jobs under the probe record their allocations for a while, to find the line of code",
    )


def run(arguments: Namespace) -> int:
    from vramscope.exporters.reports.leak import LeakRule, build_leak

    from ..suite.running import SuiteRun, open_stream

    rule = LeakRule(window=arguments.window)
    if arguments.threshold is not None:
        rule = LeakRule(arguments.threshold, arguments.window, is_given=True)
    options = read_watch_options(arguments, "leak", DEFAULTS)
    options = options._replace(max_snapshots=max(options.max_snapshots, rule.window))
    stream = open_stream(options)
    tracker = AllocationTracker(stream) if arguments.enable_tracking else None

    def build(watch: "Watch", log: "RunLog") -> "Report":
        return build_leak(log, watch.provenance, rule, None if tracker is None else tracker.describe())

    companions = () if tracker is None else (tracker,)
    return SuiteRun(options, build, stream=stream, companions=companions).run()


NO_AGENT = (
    "allocations were not recorded: no agent runs that could ask a job; start the job with `vramscope run`"
)
FROM_FILE = "allocations were not recorded: --input reads a file, and only a running job can record them"
NO_JOB = "allocations were not recorded: no job runs under the probe; start it with `vramscope run`"
NOTHING_GREW = (
    "jobs recorded their allocations for a while, and kept none of them so far; slow leaks need a longer "
    "--duration"
)
RECORDED = "jobs recorded their allocations for a while; the report names the stacks whose memory grew"


class AllocationTracker:
    """Searches each reporting process for what keeps memory, where there is an agent to ask it."""

    def __init__(self, stream: "SampleStream") -> None:
        self._stream = stream
        self._searches: dict[int, SourceSearch] = {}
        self._printed: set[str] = set()

    def observe(self, sample: "Sample") -> None:
        agent = self._stream.agent
        if agent is None:
            self._print_once(FROM_FILE if self._stream.provenance.source == "input" else NO_AGENT)
            return
        self._take_maps(agent, sample.time_s)
        for rank in sample.ranks:
            if rank.state == "ok" and rank.allocator is not None:
                self._follow(agent, rank, sample.time_s)

    def describe(self) -> "Tracking":
        from vramscope.exporters.reports.leak import Tracking

        if not self._searches:
            return Tracking(requested=True, active=False, reason=self._explain())
        sources = [_describe(pid, it) for pid, search in self._searches.items() for it in search.sources]
        return Tracking(
            requested=True,
            active=True,
            reason=RECORDED if sources else NOTHING_GREW,
            pids=tuple(self._searches),
            sources=tuple(sources),
        )

    def _follow(self, agent: "AgentStream", rank: "RankSample", time_s: float) -> None:
        from vramscope.analyzers.leak_source import SourceSearch

        search = self._searches.setdefault(rank.pid, SourceSearch())
        for inquiry in search.follow(rank, time_s):
            if inquiry.verb == "segments":
                agent.client.ask_segments(inquiry.pid, step_end_within_s=inquiry.seconds)
            else:
                agent.client.record_history(inquiry.pid, is_on=inquiry.is_on, seconds=inquiry.seconds)

    def _take_maps(self, agent: "AgentStream", time_s: float) -> None:
        for found in agent.client.snapshot(timeout_s=0.0).segment_maps:
            search = self._searches.get(found.pid)
            if search is not None and search.take_map(found, time_s):
                self._print_once(
                    f"process {found.pid}: most of the growth is kept by {search.sources[0].words}"
                )

    def _explain(self) -> str:
        if self._stream.provenance.source == "input":
            return FROM_FILE
        reason = NO_AGENT if self._stream.agent is None else NO_JOB
        self._print_once(reason)
        return reason

    def _print_once(self, reason: str) -> None:
        if reason not in self._printed:
            complain(reason)
            self._printed.add(reason)


def _describe(pid: int, source: "LeakSource") -> "TrackedSource":
    from vramscope.exporters.reports.leak import TrackedSource

    frame = source.frame
    return TrackedSource(
        pid=pid,
        place=source.words,
        file=None if frame is None else frame.filename,
        line=None if frame is None else frame.line,
        function=None if frame is None else frame.name,
        grown_bytes=source.size_bytes,
        blocks=source.blocks,
        share=source.share,
    )
