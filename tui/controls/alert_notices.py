"""Toasts, and the bell, when a finding opens, gets worse, or was open already."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ...analyzers.finding_words import name_kind
from ...engine.alerts.state import AlertState, Crossing, CrossingLog, is_told
from ...engine.model import SEVERITIES, Finding, Severity
from ...engine.settings import AlertSettings
from ...engine.viewer.snapshot import Snapshot
from ..draw.glyphs import Glyphs

# Crossings that arrive together with a toast each; of more, one toast has the number.
MOST_TOASTS = 2
ROOMY_CELLS = 60
# Size of a screen from which a toast has the whole sentence.
ROOMY_ROWS = 16


# Columns and rows.
Size = tuple[int, int]


class Toast(NamedTuple):
    """One message over the screen."""

    text: str
    severity: Literal["information", "warning", "error"]


class Notices(NamedTuple):
    """Toasts to show now."""

    toasts: tuple[Toast, ...] = ()
    rings_bell: bool = False


class AlertNotices:
    """Follows findings and returns what is new; of those open at the start, only the number."""

    def __init__(self, settings: AlertSettings, glyphs: Glyphs) -> None:
        self._settings = settings
        self._glyphs = glyphs
        self._log = CrossingLog()
        self._has_begun = False
        self._taken: tuple[Finding, ...] | None = None

    def take(self, snapshot: Snapshot, size: Size) -> Notices:
        if snapshot.sample is None or snapshot.findings is self._taken:
            return Notices()
        self._taken = snapshot.findings
        crossings = self._log.note(snapshot.findings)
        if not self._has_begun:
            self._has_begun = True
            return self._sum_up(crossings, snapshot.alerts, size)
        news = [
            crossing
            for crossing in crossings
            if crossing.event != "closed"
            and crossing.finding.is_open
            and is_told(crossing, self._settings)
            and not snapshot.alerts.is_silent(crossing.finding)
        ]
        is_grave = any(
            _rank(crossing.finding.severity) >= _rank(self._settings.bell_level) for crossing in news
        )
        toasts = self._word(news, size, snapshot.sample.clock) if self._settings.toast else ()
        return Notices(toasts, self._settings.bell and is_grave)

    def _sum_up(self, crossings: Sequence[Crossing], alerts: AlertState, size: Size) -> Notices:
        """Return the number of findings that were open already; the bell is for news only."""
        open_ones = [
            crossing.finding
            for crossing in crossings
            if crossing.event == "opened"
            and crossing.finding.is_open
            and is_told(crossing, self._settings)
            and not alerts.is_silent(crossing.finding)
        ]
        if not open_ones or not self._settings.toast:
            return Notices()
        return Notices((self._count(open_ones, "open", size),))

    def _word(self, news: Sequence[Crossing], size: Size, clock: str) -> tuple[Toast, ...]:
        if len(news) > MOST_TOASTS:
            return (self._count([crossing.finding for crossing in news], "new", size),)
        return tuple(self._describe(crossing, size, clock) for crossing in news)

    def _describe(self, crossing: Crossing, size: Size, clock: str) -> Toast:
        finding = crossing.finding
        word = f"now {finding.severity}" if crossing.event == "raised" else finding.severity
        mark = self._glyphs.risk(finding.severity)
        if not _is_roomy(size):
            noun = "rank" if clock == "trace" else "GPU"
            where = f" {noun} {finding.device}" if finding.device is not None else ""
            return Toast(f"{mark} {name_kind(finding.kind)}{where}, {word}", _loudness(finding.severity))
        return Toast(f"{mark} {word}: {finding.title}  (3 shows it)", _loudness(finding.severity))

    def _count(self, findings: Sequence[Finding], word: str, size: Size) -> Toast:
        severities = [finding.severity for finding in findings]
        counts = [
            f"{severities.count(level)} {level}" for level in reversed(SEVERITIES) if level in severities
        ]
        gravest = max(severities, key=_rank)
        noun = "alert" if len(findings) == 1 else "alerts"
        text = f"{self._glyphs.risk(gravest)} {len(findings)} {word} {noun}"
        if _is_roomy(size):
            text += f": {', '.join(counts)}  (3 shows {'it' if len(findings) == 1 else 'them'})"
        return Toast(text, _loudness(gravest))


def _is_roomy(size: Size) -> bool:
    return size[0] >= ROOMY_CELLS and size[1] >= ROOMY_ROWS


def _rank(severity: Severity) -> int:
    return SEVERITIES.index(severity)


def _loudness(severity: Severity) -> Literal["information", "warning", "error"]:
    return "error" if severity in ("high", "critical") else "warning"
