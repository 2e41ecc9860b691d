"""The newest findings on one line: the open ones first; in low windows the notes stand beside them."""

from collections.abc import Sequence

from ...analyzers.finding_words import name_kind
from ...engine.alerts.state import AlertState, count_muted
from ...engine.model import Finding
from ..draw.glyphs import Glyphs
from .note_line import SEPARATOR, fit_notes
from .one_line import OneLine, Piece, join_pieces, measure_pieces
from .title_line import format_time



class AlertLine(OneLine):
    """Says what was found, when, and on which device."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._alerts: list[Piece] = []
        self._notes: tuple[str, ...] = ()

    def show(
        self,
        findings: Sequence[Finding],
        clock: str,
        notes: Sequence[str] = (),
        state: AlertState = AlertState(),  # noqa: B008 - frozen
    ) -> None:
        """Show findings in the order given, as many as fit; of those that are muted only how many there are.

        Args:
            findings: Open findings first, newest first.
            clock: Clock of the samples they are about.
            notes: Notes that have no line of their own.
            state: What was decided about findings.
        """
        told = [finding for finding in findings if state.mute_of(finding) is None]
        groups = [
            _describe(finding, clock, self._glyphs, is_acknowledged=state.is_acknowledged(finding))
            for finding in told
        ]
        muted = count_muted(findings, state)
        alerts = join_pieces(groups, SEPARATOR) if groups else [Piece("none", "muted")]
        heading = [Piece("Alerts  ", "muted", "app.show_alerts")]
        # Before the others: how many are left out must not itself be cut off.
        heading += [Piece(f"{muted} muted{SEPARATOR}", "muted", "app.show_alerts")] if muted else []
        self._alerts = [*heading, *alerts]
        self._notes = tuple(notes)
        self._arrange()

    def on_resize(self) -> None:
        """Choose anew what fits."""
        self._arrange()

    def _arrange(self) -> None:
        if not self._notes:
            self.set_pieces(self._alerts)
            return
        heading = Piece(f"{SEPARATOR}Notes  ", "muted")
        left, right = fit_notes(self._notes, self.size.width - measure_pieces([*self._alerts, heading]))
        self.set_pieces([*self._alerts, heading, *left] if left else self._alerts, right)


def _describe(finding: Finding, clock: str, glyphs: Glyphs, *, is_acknowledged: bool) -> list[Piece]:
    time = format_time(finding.opened_s, clock)
    mark = glyphs.risk(finding.severity)
    noun = "rank" if clock == "trace" else "GPU"
    where = f" {noun} {finding.device}" if finding.device is not None else ""
    what = f"{name_kind(finding.kind)}{where}"
    if finding.closed_s is not None:
        closed = format_time(finding.closed_s, clock)
        return [Piece(f"{time} {mark} {what}, closed {closed}", "muted")]
    if is_acknowledged:
        return [Piece(f"{time} {mark} {what}, {finding.severity}, acknowledged", "muted")]
    return [Piece(f"{time} "), Piece(f"{mark} {what}, {finding.severity}", finding.severity)]
