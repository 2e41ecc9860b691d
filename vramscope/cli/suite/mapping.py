"""Segment maps of the jobs that are watched, asked for now and then; they tell what counters do not."""

from vramscope.analyzers.fragmentation import FragmentationAnalyzer, describe_pattern
from vramscope.engine.model import Sample, SegmentMap
from vramscope.exporters.reports.fragment import FragmentationFigures
from vramscope.memory.conclusions import Conclusions
from vramscope.memory.stream import SampleStream
from vramscope.memory.watch import Watch

MAP_EVERY_S = 30.0
"""A map stops the threads of its job for as long as it takes to copy the list of blocks."""


class SegmentMapper:
    """Asks each process that reports for its segments, where an agent can.

    Args:
        stream: What is watched.
    """

    def __init__(self, stream: SampleStream) -> None:
        self._stream = stream
        self._asked_s: dict[int, float] = {}
        self._maps: dict[int, SegmentMap] = {}
        self.conclusions: Conclusions | None = None
        """Of the watch: its analyzer takes each map as it comes, so that their trend is known."""

    def observe(self, sample: Sample) -> None:
        """Take one sample, and ask when that is due."""
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

    def measure(self, watch: Watch) -> list[FragmentationFigures]:
        """Return what the analyzer says of each allocator by now, with what the newest maps tell."""
        analyzer = watch.conclusions.find(FragmentationAnalyzer)
        if analyzer is None:
            return []
        figures = []
        for reading in analyzer.readings():
            known = self._maps.get(reading.pid or 0)
            pattern = None if known is None else describe_pattern(known)
            figures.append(FragmentationFigures(reading, analyzer.trend(reading.key), pattern))
        return figures
