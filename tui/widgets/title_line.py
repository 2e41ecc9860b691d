"""The line at the top: which node, how many devices, the state of the agent, and the time of the values."""

from ...engine.viewer.snapshot import Snapshot
from ..frame.known_nodes import NodePlace
from .one_line import OneLine
from .title_words import Fact, word_title


class TitleLine(OneLine):
    """Names what is shown; trouble with the flow of samples comes before the agent's own cost."""

    _snapshot: Snapshot | None = None
    _frames_skipped = 0
    _paused_since_s: float | None = None
    _place: NodePlace | None = None
    _recording: Fact | None = None

    def show(
        self,
        snapshot: Snapshot,
        *,
        frames_skipped: int,
        paused_since_s: float | None,
        place: NodePlace | None = None,
    ) -> None:
        """Show a snapshot's title; `frames_skipped` were replaced within the last minute before drawing."""
        self._snapshot = snapshot
        self._place = place
        self._frames_skipped = frames_skipped
        self._paused_since_s = paused_since_s
        self._arrange()

    def show_recording(self, fact: Fact | None) -> None:
        """Show that the node is recorded; None if it is not."""
        if fact != self._recording:
            self._recording = fact
            self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        if self._snapshot is None:
            return
        left, right = word_title(
            self._snapshot,
            self.size.width,
            self.glyphs,
            frames_skipped=self._frames_skipped,
            paused_since_s=self._paused_since_s,
            place=self._place,
            recording=self._recording,
        )
        self.set_pieces(left, right)
