"""The application that shows this node live: what every view shows, and the key that records it."""

from typing import TYPE_CHECKING, Any

from ..engine.units import format_age, format_bytes
from ..engine.viewer.feed import Feed
from ..engine.viewer.snapshot import Snapshot
from . import keys
from .advising_app import AdvisingApp
from .widgets.title_line import Fact, TitleLine

if TYPE_CHECKING:
    from textual.timer import Timer

    from ..engine.jobs.background import RecordingState, ViewerRecording

CHANGE_LOOK_S = 0.2
"""How often a recording is looked at that is about to begin or to end."""
NEWS_S = 8.0
"""A sentence with a file's name in it takes longer to read."""
READ_ONLY = "This view was started with --read-only: nothing is recorded from here."


class LiveApp(AdvisingApp, inherit_bindings=False):
    """Shows what an agent tells.

    Args:
        feed: Where snapshots come from.
        recording: Begins and ends recordings.
        rest: As of `VramscopeApp`.
    """

    BINDINGS = [*keys.VIEW, keys.RECORD, keys.ADVISE]

    def __init__(self, feed: Feed, *, recording: "ViewerRecording", **rest: Any) -> None:  # noqa: ANN401
        super().__init__(feed, **rest)
        self._recording = recording
        self._look_timer: Timer | None = None

    def action_record(self) -> None:
        """Begin to record this node, or end that."""
        if self._signal_policy.is_read_only:
            self.notify(READ_ONLY, severity="warning")
        elif self._newest.sample is None:
            self.notify("There is nothing to record yet.", timeout=3)
        else:
            self._recording.switch(self._newest.sample.node)
            self._look_at_recording()

    def _tell_news(self, snapshot: Snapshot) -> None:
        super()._tell_news(snapshot)
        self._look_at_recording()

    def _look_at_recording(self) -> None:
        """Show the recording that goes on, and say what became of one; soon again where it is changing."""
        state = self._recording.look()
        for news in self._recording.take_news():
            severity = "error" if news.is_failure else "information"
            self.notify(news.text, severity=severity, timeout=NEWS_S, markup=False)  # type: ignore[arg-type]
        fact = None if state is None else self._describe_recording(state)
        for screen in {self.live, self.node_screen, self.shown_screen}:
            if screen.is_mounted:
                screen.query_one(TitleLine).tell_recording(fact)
        self._keep_looking(is_needed=self._recording.is_changing)

    def _describe_recording(self, state: "RecordingState") -> Fact:
        sign = f"{self.glyphs.recording} REC"
        return Fact(f"{sign} {format_age(state.passed_s)} {format_bytes(state.size_bytes)}", sign, "high")

    def _keep_looking(self, *, is_needed: bool) -> None:
        if is_needed and self._look_timer is None:
            self._look_timer = self.set_interval(CHANGE_LOOK_S, self._look_at_recording, name="recording")
        elif not is_needed and self._look_timer is not None:
            self._look_timer.stop()
            self._look_timer = None
