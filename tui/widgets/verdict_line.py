"""The line of the verdict."""

from ...analyzers.verdict import Verdict
from .one_line import OneLine
from .verdict_words import word_verdict


class VerdictLine(OneLine):
    """The most severe thing known, in words that shorten with the width; old values are marked first."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._verdict: Verdict | None = None
        self._trouble: tuple[str, ...] = ()

    def show(self, verdict: Verdict, trouble: tuple[str, ...] = ()) -> None:
        """Show a verdict, with why its values are not live (from complete to shortest; empty when they
        are).
        """
        self._verdict = verdict
        self._trouble = trouble
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        if self._verdict is not None:
            self.set_pieces(word_verdict(self._verdict, self._trouble, self.size.width, self.glyphs))
