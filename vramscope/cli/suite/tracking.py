"""`leak --enable-tracking`: jobs record their allocations for a while, to name the line that keeps memory."""

from typing import TYPE_CHECKING

from vramscope.analyzers.leak_source import LeakSource, SourceSearch
from vramscope.engine.model import RankSample, Sample
from vramscope.engine.model.finding import Inquiry
from vramscope.exporters.reports.leak import TrackedSource, Tracking
from vramscope.memory.stream import SampleStream

from ..frame.diagnostics import complain

if TYPE_CHECKING:
    from vramscope.memory.agent_stream import AgentStream

NO_AGENT = (
    "allocations were not recorded: no agent runs, and only it can ask a job; start the job with "
    "`vramscope run`"
)
FROM_FILE = "allocations were not recorded: a file holds no job that could be asked"
NO_JOB = "allocations were not recorded: no job under the probe was seen"
NOTHING_GREW = (
    "jobs recorded their allocations for a while, and nothing of it was kept so far; what is kept now and "
    "then takes a longer watch"
)
RECORDED = "jobs recorded their allocations for a while; what grew from map to map is told by stack"


class AllocationTracker:
    """Searches each process that reports for what keeps memory, where an agent can ask it.

    Args:
        stream: What is watched.
    """

    def __init__(self, stream: SampleStream) -> None:
        self._stream = stream
        self._searches: dict[int, SourceSearch] = {}
        self._told: set[str] = set()

    def observe(self, sample: Sample) -> None:
        """Take one sample, and ask what is due."""
        agent = self._stream.agent
        if agent is None:
            self._tell(FROM_FILE if self._stream.provenance.source == "input" else NO_AGENT)
            return
        self._take_maps(agent, sample.time_s)
        for rank in sample.ranks:
            if rank.state == "ok" and rank.allocator is not None:
                self._follow(agent, rank, sample.time_s)

    def describe(self) -> Tracking:
        """Return what became of it, for the report."""
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

    def _follow(self, agent: "AgentStream", rank: RankSample, time_s: float) -> None:
        search = self._searches.setdefault(rank.pid, SourceSearch())
        for inquiry in search.follow(rank, time_s):
            _ask(agent, inquiry)

    def _take_maps(self, agent: "AgentStream", time_s: float) -> None:
        for found in agent.client.snapshot(timeout_s=0.0).segment_maps:
            search = self._searches.get(found.pid)
            if search is not None and search.take_map(found, time_s):
                self._tell(f"process {found.pid}: most that grew is kept by {search.sources[0].words}")

    def _explain(self) -> str:
        if self._stream.provenance.source == "input":
            return FROM_FILE
        reason = NO_AGENT if self._stream.agent is None else NO_JOB
        self._tell(reason)
        return reason

    def _tell(self, reason: str) -> None:
        if reason not in self._told:
            complain(reason)
            self._told.add(reason)


def _ask(agent: "AgentStream", inquiry: Inquiry) -> None:
    if inquiry.verb == "segments":
        agent.client.ask_segments(inquiry.pid, step_end_within_s=inquiry.seconds)
    else:
        agent.client.record_history(inquiry.pid, is_on=inquiry.is_on, seconds=inquiry.seconds)


def _describe(pid: int, source: LeakSource) -> TrackedSource:
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
