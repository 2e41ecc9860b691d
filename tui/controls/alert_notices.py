"""Notices, and the bell, when a finding opens, gets worse, or was open already."""

from collections.abc import Sequence
from typing import NamedTuple

from ...analyzers.finding_words import name_kind
from ...analyzers.findings.subjects import name_found_device
from ...engine.alerts.state import AlertState, Crossing, CrossingLog, is_wanted
from ...engine.model import SEVERITIES, Finding, Sample, Severity
from ...engine.settings import AlertSettings
from ...engine.viewer.snapshot import Snapshot
from ..draw.glyphs import Glyphs
from ..screens.notices import Notice, NoticeSeverity

# Crossings that arrive together with a notice each; of more, one notice has the number.
MOST_NOTICES = 2
# Size of a screen from which a notice has the whole sentence.
ROOMY_CELLS = 60
ROOMY_ROWS = 16


# Columns and rows.
Size = tuple[int, int]


class News(NamedTuple):
    """What is to be notified now."""

    notices: tuple[Notice, ...] = ()
    rings_bell: bool = False


# Seconds for which a notice is shown.
NOTICE_S = 6.0


class AlertNotices:
    """Follows findings and returns what is new; of those open at the start, only the number."""

    def __init__(self, settings: AlertSettings, glyphs: Glyphs) -> None:
        self._settings = settings
        self._glyphs = glyphs
        self._log = CrossingLog()
        self._has_begun = False
        self._taken: tuple[Finding, ...] | None = None

    def take(self, snapshot: Snapshot, size: Size, *, is_listed: bool = False) -> News:
        """Return what is new; `is_listed`: what was open already is on the screen."""
        if snapshot.sample is None or snapshot.findings is self._taken:
            return News()
        self._taken = snapshot.findings
        crossings = self._log.note(snapshot.findings)
        if not self._has_begun:
            self._has_begun = True
            return News() if is_listed else self._sum_up(crossings, snapshot.alerts, size)
        news = [
            crossing
            for crossing in crossings
            if crossing.event != "closed"
            and crossing.finding.is_open
            and is_wanted(crossing, self._settings)
            and not snapshot.alerts.is_silent(crossing.finding)
        ]
        is_grave = any(
            _rank(crossing.finding.severity) >= _rank(self._settings.bell_level) for crossing in news
        )
        notices = self._word(news, size, snapshot.sample) if self._settings.toast else ()
        return News(notices, self._settings.bell and is_grave)

    def _sum_up(self, crossings: Sequence[Crossing], alerts: AlertState, size: Size) -> News:
        """Return the number of findings that were open already; the bell is for news only."""
        open_ones = [
            crossing.finding
            for crossing in crossings
            if crossing.event == "opened"
            and crossing.finding.is_open
            and is_wanted(crossing, self._settings)
            and not alerts.is_silent(crossing.finding)
        ]
        if not open_ones or not self._settings.toast:
            return News()
        return News((self._count(open_ones, "open", size),))

    def _word(self, news: Sequence[Crossing], size: Size, sample: Sample) -> tuple[Notice, ...]:
        if len(news) > MOST_NOTICES:
            return (self._count([crossing.finding for crossing in news], "new", size),)
        return tuple(self._describe(crossing, size, sample) for crossing in news)

    def _describe(self, crossing: Crossing, size: Size, sample: Sample) -> Notice:
        finding = crossing.finding
        word = f"now {finding.severity}" if crossing.event == "raised" else finding.severity
        mark = self._glyphs.risk(finding.severity)
        if not _is_roomy(size):
            what = " ".join(filter(None, (name_kind(finding.kind), name_found_device(finding, sample))))
            return _make_notice(f"{mark} {what}, {word}", finding.severity)
        return _make_notice(f"{mark} {word}: {finding.title}  (3 shows it)", finding.severity)

    def _count(self, findings: Sequence[Finding], word: str, size: Size) -> Notice:
        severities = [finding.severity for finding in findings]
        counts = [
            f"{severities.count(level)} {level}" for level in reversed(SEVERITIES) if level in severities
        ]
        highest = max(severities, key=_rank)
        noun = "alert" if len(findings) == 1 else "alerts"
        text = f"{self._glyphs.risk(highest)} {len(findings)} {word} {noun}"
        if _is_roomy(size):
            text += f": {', '.join(counts)}  (3 shows {'it' if len(findings) == 1 else 'them'})"
        return _make_notice(text, highest)


def _is_roomy(size: Size) -> bool:
    return size[0] >= ROOMY_CELLS and size[1] >= ROOMY_ROWS


def _rank(severity: Severity) -> int:
    return SEVERITIES.index(severity)


def _make_notice(text: str, severity: Severity) -> Notice:
    urgency: NoticeSeverity = "error" if severity in ("high", "critical") else "warning"
    return Notice(text, urgency, NOTICE_S, is_in_verdict=True)
