"""The findings of a node as its hub and viewers know them: bounded in number, in size, and per analyzer."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest

import msgspec

from ..model import Finding, order_findings

MAX_CLOSED = 200
MAX_OPEN = 1000
MAX_OPEN_OF_ANALYZER = 500
"""One analyzer that opens a finding at every sample leaves room for those of the others."""
MAX_BYTES = 4 * 1024**2
"""All findings together, as they are sent."""
MAX_FINDING_BYTES = 16 * 1024
"""A larger one has its texts cut and its last evidence left out."""
MAX_NAME_CHARACTERS = 200
MAX_TEXT_CHARACTERS = 1000
MAX_EVIDENCE = 32
RECENT_S = 3600.0
"""A closed finding that makes room so soon is counted as dropped; later it is past."""


class FindingStore:
    """Findings by id; the same finding reported twice, by a restarted worker say, stays one.

    Where there is no room the findings that closed first are dropped, then new ones are not taken.
    """

    def __init__(self) -> None:
        self.dropped = 0
        """Findings that were not taken, or were dropped within an hour after they closed."""
        self._findings: dict[str, Finding] = {}
        self._found_by: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._open_of: Counter[str] = Counter()
        self._missed: dict[str, None] = {}

    def merge(self, findings: Sequence[Finding], found_by: Sequence[str] = ()) -> list[Finding]:
        """Take reported findings and return those that are new or changed.

        Args:
            findings: As they were reported.
            found_by: The analyzer that each comes of, where that was told.
        """
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
            open_ids: Those that the worker holds open.
            now_s: Time of the newest sample, in its own clock.
            of: Analyzers that the worker runs, where those of others are to be left alone.
        """
        kept = set(open_ids)
        over = [
            msgspec.structs.replace(f, closed_s=now_s, updated_s=now_s)
            for f in self._findings.values()
            if f.is_open and f.id not in kept and (of is None or self._found_by.get(f.id) in of)
        ]
        return self.merge(over)

    def get(self, finding_id: str) -> Finding | None:
        """Return a finding; None where it is unknown or forgotten."""
        return self._findings.get(finding_id)

    def all(self) -> tuple[Finding, ...]:
        """Return all in the order of `order_findings`."""
        return order_findings(self._findings.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """How many findings were dropped, in a sentence; nothing where none was."""
        if not self.dropped:
            return ()
        what = "1 finding was" if self.dropped == 1 else f"{self.dropped:,} findings were"
        return (
            f"{what} dropped: at most {MAX_OPEN:,} open ones are kept, {MAX_OPEN_OF_ANALYZER} of one "
            f"analyzer, {MAX_CLOSED} closed ones, and {MAX_BYTES >> 20} MiB of all",
        )

    def _merge_one(self, finding: Finding, name: str) -> Finding | None:
        """Take one finding; return it as it is kept, or None where it is known or there is no room."""
        finding, size = _cut(finding)
        before = self._findings.get(finding.id)
        if before == finding:
            return None
        if before is None and (
            (finding.is_open and not self._has_room(name)) or len(finding.id) > MAX_NAME_CHARACTERS
        ):
            self._note_missed(finding.id)
            return None
        if before is not None:
            name = self._remove(finding.id) or name
        self._findings[finding.id], self._sizes[finding.id] = finding, size
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

    def _note_missed(self, finding_id: str) -> None:
        """Count a finding that is not taken, once however often it is reported."""
        if finding_id not in self._missed:
            self.dropped += 1
            self._missed[finding_id[:MAX_NAME_CHARACTERS]] = None
            if len(self._missed) > MAX_OPEN:
                del self._missed[next(iter(self._missed))]

    def _remove(self, finding_id: str) -> str:
        """Remove a finding; return the analyzer that it comes of, empty where that was not told."""
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
