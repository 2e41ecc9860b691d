"""Known findings and assessments, by identity, so that nothing old is sent twice."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest

import msgspec

from ..model import Assessment, Finding, Sample, order_findings

# How long a process or device may be missing from the samples, in their own clock.
GONE_AFTER_S = 60.0
# More than a node has devices and processes.
MAX_ASSESSMENTS = 4096
MAX_ASSESSMENT_BYTES = 8 * 1024

# UUID of the device, process id and start time; the last two None if a device as a whole is assessed.
AssessmentKey = tuple[str | None, int | None, float | None]


def assessment_key(assessment: Assessment) -> AssessmentKey:
    return assessment.device_uuid, assessment.pid, assessment.started_s


class AssessmentStore:
    def __init__(self) -> None:
        self._newest: dict[AssessmentKey, Assessment] = {}
        self._seen_s: dict[AssessmentKey, float | None] = {}
        self._source: int | None = None
        # Rejected assessments: too large, or of more processes than there can be.
        self.dropped = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """How many were rejected, in a sentence, or nothing."""
        if not self.dropped:
            return ()
        return (
            f"{self.dropped:,} forecasts were dropped: at most {MAX_ASSESSMENTS:,} are kept, of "
            f"{MAX_ASSESSMENT_BYTES >> 10} KiB each",
        )

    def merge(self, assessments: Iterable[Assessment]) -> bool:
        """Add assessments and return whether any is new or changed."""
        is_changed = False
        for assessment in assessments:
            key = assessment_key(assessment)
            has_room = key in self._newest or len(self._newest) < MAX_ASSESSMENTS
            if not has_room or len(msgspec.msgpack.encode(assessment)) > MAX_ASSESSMENT_BYTES:
                self.dropped += 1
                continue
            self._seen_s.setdefault(key, None)
            is_changed = is_changed or self._newest.get(key) != assessment
            self._newest[key] = assessment
        return is_changed

    def begin_anew(self, source: int) -> bool:
        """Forget all if the worker has changed; return whether there were any."""
        is_new = source != self._source
        self._source = source
        had_any = bool(self._newest)
        if is_new:
            self._newest = {}
            self._seen_s = {}
        return is_new and had_any

    def observe(self, sample: Sample) -> bool:
        """Drop those of a process that has ended, or was missing for a minute; return whether any was."""
        if not self._newest:
            return False
        here: set[AssessmentKey] = set()
        over: set[AssessmentKey] = set()
        for device in sample.devices:
            (over if device.state == "ended" else here).add((device.uuid, None, None))
        for rank in sample.ranks:
            (over if rank.state == "ended" else here).add((rank.device_uuid, rank.pid, rank.started_s))
        gone = [
            key for key in self._newest if key in over or not self._is_remembered(key, here, sample.time_s)
        ]
        for key in gone:
            del self._newest[key], self._seen_s[key]
        return bool(gone)

    def all(self) -> tuple[Assessment, ...]:
        """By device and process."""
        return tuple(self._newest[key] for key in sorted(self._newest, key=_order))

    def _is_remembered(self, key: AssessmentKey, here: set[AssessmentKey], time_s: float) -> bool:
        seen_s = self._seen_s[key]
        if key in here or seen_s is None:
            self._seen_s[key] = time_s
            return True
        return 0.0 <= time_s - seen_s < GONE_AFTER_S


def _order(key: AssessmentKey) -> tuple[str, int, float]:
    uuid, pid, started_s = key
    return uuid or "", pid or 0, started_s or 0.0


MAX_CLOSED = 200
MAX_OPEN = 1000
# An analyzer that opens a finding at every sample leaves room for those of the others.
MAX_OPEN_OF_ANALYZER = 500
# All findings together, as they are sent.
MAX_BYTES = 4 * 1024**2
# Texts of a larger one are cut and its last evidence is left out.
MAX_FINDING_BYTES = 16 * 1024
MAX_NAME_CHARACTERS = 200
MAX_TEXT_CHARACTERS = 1000
MAX_EVIDENCE = 32
# A closed finding that makes room so soon counts as dropped; later it is past.
RECENT_S = 3600.0


class FindingStore:
    """Findings by id; the same finding reported twice, by a restarted worker say, stays one.

    Without room the findings that closed first are dropped, then new ones are rejected.
    """

    def __init__(self) -> None:
        # Findings that were not accepted, or were dropped within an hour after they closed.
        self.dropped = 0
        self._findings: dict[str, Finding] = {}
        self._found_by: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._open_of: Counter[str] = Counter()
        self._missed: dict[str, None] = {}

    def merge(self, findings: Sequence[Finding], found_by: Sequence[str] = ()) -> list[Finding]:
        """Add reported findings and return those that are new or changed."""
        changed = []
        for finding, name in zip_longest(findings, found_by[: len(findings)], fillvalue=""):
            assert isinstance(finding, Finding)  # noqa: S101 - there is no name without its finding
            if (kept := self._merge_one(finding, name)) is not None:
                changed.append(kept)
        self._forget()
        return changed

    def close_others(
        self, open_ids: Iterable[str], now_s: float, of: Collection[str] | None = None
    ) -> list[Finding]:
        """Close findings that are open here and in no worker, and return them as closed.

        Args:
            open_ids: Those that are open in the worker.
            now_s: Time of the newest sample, in its own clock.
            of: Analyzers that the worker runs, if those of others are to be left alone.
        """
        kept = set(open_ids)
        over = [
            msgspec.structs.replace(f, closed_s=now_s, updated_s=now_s)
            for f in self._findings.values()
            if f.is_open and f.id not in kept and (of is None or self._found_by.get(f.id) in of)
        ]
        return self.merge(over)

    def get(self, finding_id: str) -> Finding | None:
        return self._findings.get(finding_id)

    def all(self) -> tuple[Finding, ...]:
        return order_findings(self._findings.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """How many findings were dropped, in a sentence, or nothing."""
        if not self.dropped:
            return ()
        what = "1 finding was" if self.dropped == 1 else f"{self.dropped:,} findings were"
        return (
            f"{what} dropped: at most {MAX_OPEN:,} open ones are kept, {MAX_OPEN_OF_ANALYZER} of one "
            f"analyzer, {MAX_CLOSED} closed ones, and {MAX_BYTES >> 20} MiB of all",
        )

    def _merge_one(self, finding: Finding, name: str) -> Finding | None:
        """Add one finding; return it as it is stored, or None if it is known or there is no room."""
        finding, size = _cut(finding)
        before = self._findings.get(finding.id)
        if before == finding:
            return None
        if before is None and (
            (finding.is_open and not self._has_room(name)) or len(finding.id) > MAX_NAME_CHARACTERS
        ):
            # Counted once, however often it is reported.
            if finding.id not in self._missed:
                self.dropped += 1
                self._missed[finding.id[:MAX_NAME_CHARACTERS]] = None
                if len(self._missed) > MAX_OPEN:
                    del self._missed[next(iter(self._missed))]
            return None
        if before is not None:
            name = self._remove(finding.id) or name
        self._findings[finding.id] = finding
        self._sizes[finding.id] = size
        self._bytes += size
        if name:
            self._found_by[finding.id] = name[:MAX_NAME_CHARACTERS]
        if finding.is_open:
            self._open_of[name[:MAX_NAME_CHARACTERS]] += 1
        return finding

    def _has_room(self, name: str) -> bool:
        return (
            self._open_of.total() < MAX_OPEN
            and self._open_of[name[:MAX_NAME_CHARACTERS]] < MAX_OPEN_OF_ANALYZER
            and self._bytes + MAX_FINDING_BYTES <= MAX_BYTES
        )

    def _remove(self, finding_id: str) -> str:
        """Remove a finding; return its analyzer, "" if unknown."""
        finding = self._findings.pop(finding_id)
        name = self._found_by.pop(finding_id, "")
        self._bytes -= self._sizes.pop(finding_id)
        if finding.is_open:
            self._open_of[name] -= 1
            if not self._open_of[name]:
                del self._open_of[name]
        return name

    def _forget(self) -> None:
        """Drop the findings that closed first until the rest fits."""
        over = len(self._findings) - self._open_of.total() - MAX_CLOSED
        if over <= 0 and self._bytes + MAX_FINDING_BYTES <= MAX_BYTES:
            return
        closed = sorted((f for f in self._findings.values() if not f.is_open), key=_closed_s)
        for at, finding in enumerate(closed):
            if at >= over and self._bytes + MAX_FINDING_BYTES <= MAX_BYTES:
                return
            self._remove(finding.id)
            self.dropped += _closed_s(closed[-1]) - _closed_s(finding) < RECENT_S


def _closed_s(finding: Finding) -> float:
    return finding.closed_s or 0.0


def _cut(finding: Finding) -> tuple[Finding, int]:
    """Return a finding of no more than `MAX_FINDING_BYTES`, or nearly so, and its size."""
    size = len(msgspec.msgpack.encode(finding))
    if size <= MAX_FINDING_BYTES:
        return finding, size
    evidence = [
        msgspec.structs.replace(
            it,
            name=it.name[:MAX_NAME_CHARACTERS],
            unit=it.unit[:MAX_NAME_CHARACTERS],
            value=it.value[:MAX_NAME_CHARACTERS] if isinstance(it.value, str) else it.value,
        )
        for it in finding.evidence[:MAX_EVIDENCE]
    ]
    cut = msgspec.structs.replace(
        finding,
        kind=finding.kind[:MAX_NAME_CHARACTERS],
        node=finding.node[:MAX_NAME_CHARACTERS],
        device_uuid=None if finding.device_uuid is None else finding.device_uuid[:MAX_NAME_CHARACTERS],
        device=None if finding.device is None else finding.device[:MAX_NAME_CHARACTERS],
        title=finding.title[:MAX_TEXT_CHARACTERS],
        method=finding.method[:MAX_TEXT_CHARACTERS],
        advice=finding.advice[:MAX_TEXT_CHARACTERS],
        evidence=tuple(evidence),
    )
    return cut, len(msgspec.msgpack.encode(cut))
