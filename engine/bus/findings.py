"""The findings of a node as its hub knows them: open ones for ever, closed ones up to a bound."""

from collections.abc import Iterable

import msgspec

from ..model import Finding, order_findings

MAX_CLOSED = 200


class FindingStore:
    """Findings by id; the same finding reported twice, by a restarted worker say, stays one."""

    def __init__(self) -> None:
        self._findings: dict[str, Finding] = {}

    def merge(self, findings: Iterable[Finding]) -> list[Finding]:
        """Take reported findings and return those that are new or changed."""
        changed = [f for f in findings if self._findings.get(f.id) != f]
        for finding in changed:
            self._findings[finding.id] = finding
        self._forget()
        return changed

    def close_others(self, open_ids: Iterable[str], now_s: float) -> list[Finding]:
        """Close findings that are open here and in no worker, and return them as closed."""
        kept = set(open_ids)
        over = [
            msgspec.structs.replace(f, closed_s=now_s, updated_s=now_s)
            for f in self._findings.values()
            if f.is_open and f.id not in kept
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
