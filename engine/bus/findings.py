"""The findings of a node as its hub knows them: open ones for ever, closed ones up to a bound."""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from ..model import Finding, order_findings

MAX_CLOSED = 200


class FindingStore:
    """Findings by id; the same finding reported twice, by a restarted worker say, stays one."""

    def __init__(self) -> None:
        self._findings: dict[str, Finding] = {}
        self._found_by: dict[str, str] = {}

    def merge(self, findings: Sequence[Finding], found_by: Sequence[str] = ()) -> list[Finding]:
        """Take reported findings and return those that are new or changed.

        Args:
            findings: As they were reported.
            found_by: The analyzer that each comes of, where that was told.
        """
        self._found_by.update({it.id: name for it, name in zip(findings, found_by, strict=False) if name})
        changed = [f for f in findings if self._findings.get(f.id) != f]
        for finding in changed:
            self._findings[finding.id] = finding
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

    def _forget(self) -> None:
        closed = [f for f in self._findings.values() if not f.is_open]
        if len(closed) > MAX_CLOSED:
            closed.sort(key=lambda f: f.closed_s or 0.0)
            for finding in closed[: len(closed) - MAX_CLOSED]:
                del self._findings[finding.id]
                self._found_by.pop(finding.id, None)
