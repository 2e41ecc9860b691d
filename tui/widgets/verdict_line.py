"""The verdict: one sentence that answers whether, when and why memory will run out."""

from ...analyzers.verdict import Verdict
from ...engine.units import format_age
from ..draw.glyphs import Glyphs
from ..frame.lost_words import shorten_reason
from .one_line import OneLine, Piece


class VerdictLine(OneLine):
    """The gravest thing known, in words that shorten with the width; says first when figures are old."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._verdict: Verdict | None = None
        self._trouble: tuple[str, ...] = ()

    def show(self, verdict: Verdict, trouble: tuple[str, ...] = ()) -> None:
        """Show a verdict.

        Args:
            verdict: What is concluded from the newest figures.
            trouble: Why these figures are not live, from the complete form to the shortest; empty when
                they are.
        """
        self._verdict = verdict
        self._trouble = trouble
        self._arrange()

    def on_resize(self) -> None:
        """Word the verdict for the new width."""
        self._arrange()

    def _arrange(self) -> None:
        if self._verdict is None:
            return
        width = self.size.width - 2
        pieces: list[Piece] = []
        if self._trouble:
            trouble = next((form for form in self._trouble if len(form) <= width), self._trouble[-1])
            pieces += [Piece(trouble, "high"), Piece("  ")]
            width -= len(trouble) + 4
        level = self._verdict.level
        text = self._verdict.text(width) if width > 0 else ""
        if text or not pieces:
            mark = self._glyphs.risk(level)
            pieces += [Piece(mark, level), Piece(" "), Piece(text, "muted" if pieces else "strong")]
        self.set_pieces(pieces)


def describe_trouble(connection: str, silent_s: float | None, reason: str | None) -> tuple[str, ...]:
    """Return why the figures are not live, from the complete form to the shortest; empty when they are.

    Args:
        connection: State of the connection, as in `Snapshot.connection`.
        silent_s: Seconds since the hub last spoke.
        reason: What is known of the cause, in one sentence.
    """
    if connection != "lost":
        return ()
    reasons = () if reason is None else shorten_reason(reason)
    if silent_s is None and reasons:
        return (*(f"not connected: {words}" for words in reasons), "not connected")
    age = "" if silent_s is None else f" {format_age(silent_s)} ago"
    short = f"hub lost{age}"
    full = f"{short}, figures are stale"
    return (*(f"{full}: {words}" for words in reasons if words), full, short)


def describe_silence(connection: str, silent_s: float | None, reason: str | None) -> tuple[str, ...]:
    """Return why a replay has no figures of a node at its moment, from the complete form to the shortest.

    Args:
        connection: As in `Snapshot.connection`; `connecting` before the first sample of the node.
        silent_s: Seconds from its newest sample to the moment.
        reason: What is known of the cause, in a few words.
    """
    if connection == "live" or (silent_s is None and reason is None):
        return ()
    if silent_s is None:
        return (reason or "",)
    age = format_age(silent_s)
    short = f"no samples for {age}"
    return (f"{reason or short}, its last figures are {age} old", f"{short}")
