"""Names the line behind a leak: asks the process when a finding opens, and adds the answer to the finding."""

from collections.abc import Iterator, Sequence

import msgspec

from ...engine.model import Evidence, Finding, RankSample, Sample, SegmentMap
from ...engine.model.inquiry import Inquiry
from ..finding_evidence import read_evidence, read_process
from .growth import LeakSource
from .search import SourceSearch

SOURCE = "source"
"""Evidence of a leak: the place that keeps memory, or the size of the blocks that are kept."""
_FILE = "source file"
_LINE = "allocated at"
_KEPT = "kept while watched"
_SHARE = "share of the growth"
_OURS = (SOURCE, _FILE, _LINE, _KEPT, _SHARE)
_LEAK = "leak"
_OOM = "oom"

_Process = tuple[str, int]
"""Node and process id."""


class LeakSourceInquirer:
    """Follows each open leak of a process that reports, until its source is named."""

    name = "leak_source"

    def __init__(self) -> None:
        self._searches: dict[_Process, SourceSearch] = {}
        self._leaks: dict[_Process, str] = {}
        self._named: dict[str, tuple[Evidence, ...]] = {}
        self._abandoned: list[_Process] = []
        """Processes that record for a leak that closed."""
        self._time_s = 0.0

    def restore(self, findings: Sequence[Finding]) -> None:
        """Learn from open findings of a predecessor which line each leak comes from."""
        for finding in findings:
            told = tuple(each for each in finding.evidence if each.name in _OURS)
            if told and finding.is_open and finding.kind == _LEAK:
                self._named[finding.id] = told

    def follow(self, sample: Sample, findings: Sequence[Finding]) -> Sequence[Inquiry]:
        """Take one sample and what was found in it; return what should be asked now."""
        self._time_s = sample.time_s
        for finding in findings:
            self._note(finding)
        abandoned = self._abandoned
        self._abandoned = []
        stops = [Inquiry("history", pid, is_on=False) for _, pid in abandoned]
        if not self._searches:
            return stops
        living = {rank.pid: rank for rank in sample.ranks if rank.state == "ok"}
        return [*stops, *self._ask(sample.node, living)]

    def awaits_map(self, node: str, pid: int) -> bool:
        """Return whether a map of this process would be an answer."""
        search = self._searches.get((node, pid))
        return search is not None and search.awaits_map

    def take_map(self, segment_map: SegmentMap) -> None:
        """Take an answer."""
        process = segment_map.node, segment_map.pid
        search = self._searches.get(process)
        if search is not None and search.take_map(segment_map, self._time_s):
            self._named[self._leaks[process]] = tuple(_list_evidence(search.sources))

    def enrich(self, finding: Finding) -> Finding:
        """Return a finding with the source of its leak; the same object where none is known."""
        process = _process_of(finding)
        leak = finding.id if finding.kind == _LEAK else self._leaks.get(process) if process else None
        named = self._named.get(leak) if leak is not None else None
        if named is None or read_evidence(finding, SOURCE) is not None:
            return finding
        words = str(named[0].value)
        return msgspec.structs.replace(
            finding,
            title=f"{finding.title}, kept by {words}",
            evidence=(*finding.evidence, *named),
            advice=f"Look at {words}: what it allocates outlives its step. {finding.advice}".rstrip(),
        )

    def _note(self, finding: Finding) -> None:
        process = _process_of(finding)
        if process is None or finding.kind != _LEAK:
            return
        if finding.is_open:
            self._leaks[process] = finding.id
            if finding.id not in self._named:
                self._searches.setdefault(process, SourceSearch())
        elif self._leaks.get(process) == finding.id:
            del self._leaks[process]
            search = self._searches.pop(process, None)
            if search is not None and search.is_recording:
                self._abandoned.append(process)

    def _ask(self, node: str, living: dict[int, RankSample]) -> Iterator[Inquiry]:
        for process, search in self._searches.items():
            rank = living.get(process[1])
            if process[0] == node and rank is not None and not search.is_over:
                yield from search.follow(rank, self._time_s)


def _process_of(finding: Finding) -> _Process | None:
    """Return node and process of a finding about memory that grows; None where it is not of a process."""
    pid, _ = read_process(finding) if finding.kind in (_LEAK, _OOM) else (None, None)
    return None if pid is None else (finding.node, pid)


def _list_evidence(sources: Sequence[LeakSource]) -> Iterator[Evidence]:
    yield Evidence(SOURCE, " and ".join(source.words for source in sources[:2]))
    frame = sources[0].frame
    line = sources[0].allocated_at
    if frame is not None:
        yield Evidence(_FILE, f"{frame.filename}:{frame.line}")
    if line is not None and line != frame:
        yield Evidence(_LINE, f"{line.filename}:{line.line}")
    yield Evidence(_KEPT, sources[0].size_bytes, "bytes")
    yield Evidence(_SHARE, round(100 * sources[0].share), "%")
