"""Findings across nodes from one moment to the next: each opens once, is told anew on news, and closes."""

from collections.abc import Iterator, Sequence

import msgspec

from ...engine.model import Evidence, Finding, make_finding_id
from ..closing import close_finding
from ..crossing import Crossing
from .statement import Statement

NEWS_S, NEWS_SHARE = 5.0, 0.1
"""Change of the time that is left that a person would see."""
MOST_OUTCOMES = 16
"""Answers of advised processes that a finding keeps, the newest."""
Key = tuple[str, str]


class _Entry:
    """One statement over time."""

    def __init__(self) -> None:
        self.crossing = Crossing()
        self.finding: Finding | None = None
        self.told: Statement | None = None
        self.outcomes: tuple[Evidence, ...] = ()

    def is_news(self, stated: Statement) -> bool:
        """Return whether a person would call it another state of affairs than was told."""
        told = self.told
        if stated.is_back:
            return False
        if told is None or told.severity != stated.severity or told.news != stated.news:
            return True
        if told.at_s is None or stated.at_s is None:
            return told.at_s is not stated.at_s
        before_s, left_s = (max(0.0, it.at_s - it.time_s) for it in (told, stated) if it.at_s is not None)
        return abs(left_s - before_s) > max(NEWS_S, NEWS_SHARE * before_s)


class FindingBook:
    """Keeps what is open."""

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}
        self._now_s = float("-inf")

    @property
    def open(self) -> tuple[Finding, ...]:
        """What is open, the oldest first."""
        found = [it.finding for it in self._entries.values() if it.finding is not None]
        return tuple(sorted(found, key=lambda it: (it.opened_s, it.id)))

    def observe(self, statements: Sequence[Statement], now_s: float) -> list[Finding]:
        """Take what holds at a moment; return findings that opened, changed or closed.

        Args:
            statements: All of them; what is open and no longer stated is of a job that is gone.
            now_s: The moment, by our own clock.
        """
        if now_s < self._now_s:
            for entry in self._entries.values():
                entry.crossing.restart()  # our clock was set back: how long things stood cannot be told
        self._now_s = now_s
        stated = {it.key: it for it in statements}
        found: list[Finding] = []
        for key in sorted(stated.keys() | self._entries.keys()):
            found += self._follow(key, stated.get(key), now_s)
        return found

    def note_outcome(self, key: Key, outcome: Evidence) -> Finding | None:
        """Return an open finding with what a process answered; None where it is not open."""
        entry = self._entries.get(key)
        if entry is None or entry.finding is None:
            return None
        others = [it for it in entry.outcomes if it.name != outcome.name]
        entry.outcomes = (*others, outcome)[-MOST_OUTCOMES:]
        before = [
            it for it in entry.finding.evidence if it.name not in {each.name for each in entry.outcomes}
        ]
        entry.finding = msgspec.structs.replace(entry.finding, evidence=(*before, *entry.outcomes))
        return entry.finding

    def _follow(self, key: Key, stated: Statement | None, now_s: float) -> Iterator[Finding]:
        if stated is not None and stated.is_beyond and key not in self._entries:
            self._entries[key] = _Entry()
        entry = self._entries.get(key)
        if entry is None:
            return
        is_beyond, is_back = (False, True) if stated is None else (stated.is_beyond, stated.is_back)
        entry.crossing.observe(now_s, is_beyond=is_beyond, is_back=is_back)
        if entry.finding is None and not entry.crossing.is_asked:
            del self._entries[key]
        elif entry.finding is None and stated is not None and entry.crossing.is_due:
            entry.crossing.flip()
            yield _open(entry, stated, now_s)
        elif entry.finding is not None and entry.crossing.is_due:
            del self._entries[key]
            because = "its job has ended" if stated is None else "it holds no longer"
            yield close_finding(entry.finding, now_s, because)
        elif entry.finding is not None and stated is not None and entry.is_news(stated):
            yield _state(entry, entry.finding, stated, now_s)


def _open(entry: _Entry, stated: Statement, now_s: float) -> Finding:
    blank = Finding(
        id=make_finding_id(stated.kind, stated.about, None, now_s),
        kind=stated.kind,
        node=stated.node,
        device_uuid=None,
        device=None,
        severity=stated.severity,
        title="",
        opened_s=now_s,
        updated_s=now_s,
    )
    return _state(entry, blank, stated, now_s)


def _state(entry: _Entry, finding: Finding, stated: Statement, now_s: float) -> Finding:
    entry.told = stated
    entry.finding = msgspec.structs.replace(
        finding,
        severity=stated.severity,
        title=stated.title,
        updated_s=now_s,
        evidence=(*stated.evidence, *entry.outcomes),
        method=stated.method,
        advice=stated.advice,
    )
    return entry.finding
