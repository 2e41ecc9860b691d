"""Recording from the live view: a key begins and ends it, the title shows it."""

from typing import TYPE_CHECKING

from ...engine.units import format_age, format_bytes
from ..widgets.title_line import TitleLine
from ..widgets.title_words import Fact

if TYPE_CHECKING:
    from textual.timer import Timer

    from ...engine.jobs.background import RecordingState, ViewerRecording
    from ..app import VramscopeApp

# Between looks at a recording that is about to begin or to end.
CHANGE_LOOK_S = 0.2
# A sentence with a file's name in it takes longer to read.
NEWS_S = 8.0
READ_ONLY = "Started with --read-only: recording is not possible here."


class RecordingControl:
    """Begins and ends recordings of the node that is shown."""

    def __init__(self, app: "VramscopeApp", recording: "ViewerRecording") -> None:
        self._app = app
        self._recording = recording
        self._look_timer: Timer | None = None

    def switch(self) -> None:
        app = self._app
        if app.signal_policy.is_read_only:
            app.notify(READ_ONLY, severity="warning")
        elif app.newest.sample is None:
            app.notify("There is nothing to record yet.", timeout=3)
        else:
            self._recording.switch(app.newest.sample.node)
            self.look()

    def look(self) -> None:
        """Show the current recording, and notify the outcome of an ended one; soon again while it is
        changing.
        """
        app = self._app
        state = self._recording.look()
        for news in self._recording.take_news():
            severity = "error" if news.is_failure else "information"
            app.notify(news.text, severity=severity, timeout=NEWS_S)  # type: ignore[arg-type]
        fact = None if state is None else self._describe(state)
        for screen in app.snapshot_screens:
            if screen.is_mounted:
                screen.query_one(TitleLine).show_recording(fact)
        self._schedule_looks(is_needed=self._recording.is_changing)

    def _describe(self, state: "RecordingState") -> Fact:
        sign = f"{self._app.glyphs.recording} REC"
        return Fact(f"{sign} {format_age(state.passed_s)} {format_bytes(state.size_bytes)}", sign, "high")

    def _schedule_looks(self, *, is_needed: bool) -> None:
        if is_needed and self._look_timer is None:
            self._look_timer = self._app.set_interval(CHANGE_LOOK_S, self.look, name="recording")
        elif not is_needed and self._look_timer is not None:
            self._look_timer.stop()
            self._look_timer = None
