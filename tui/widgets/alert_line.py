"""The newest findings on one line: the open ones first."""

from collections.abc import Sequence

from ...engine.model import Finding
from ..drawing.glyphs import Glyphs
from .one_line import OneLine, Piece, join_pieces
from .title_line import format_time


class AlertLine(OneLine):
    """Says what was found, when, and on which device."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs

    def show(self, findings: Sequence[Finding], clock: str) -> None:
        """Show findings in the order given, as many as fit.

        Args:
            findings: Open findings first, newest first.
            clock: Clock of the samples they are about.
        """
        heading = Piece("Alerts  ", "muted")
        if not findings:
            self.set_pieces([heading, Piece("none", "muted")])
            return
        groups = [_describe(finding, clock, self._glyphs) for finding in findings]
        self.set_pieces([heading, *join_pieces(groups)])


def _describe(finding: Finding, clock: str, glyphs: Glyphs) -> list[Piece]:
    time, mark = format_time(finding.opened_s, clock), glyphs.risk(finding.severity)
    noun = "rank" if clock == "trace" else "GPU"
    where = f" {noun} {finding.device}" if finding.device is not None else ""
    if finding.closed_s is not None:
        closed = format_time(finding.closed_s, clock)
        return [Piece(f"{time} {mark} {finding.kind}{where}, closed {closed}", "muted")]
    return [Piece(f"{time} "), Piece(f"{mark} {finding.kind}{where}", finding.severity)]
