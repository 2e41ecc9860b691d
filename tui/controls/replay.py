"""Moving in a replay: keys send commands to its feed, and its messages appear over the screen."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from ...engine.errors import UsageError
from ...engine.replay.feed import PlaylistFeed, ReplayFeed
from ...engine.replay.moment_text import EXPECTED, parse_moment
from ...engine.replay.player import ReplayCommand, Verb
from ...engine.viewer.snapshot import ReplayState, Snapshot
from ..draw.numbers import span_text
from ..draw.time_window import TimeWindow
from ..frame import keys
from ..live.screen import find_fullest

if TYPE_CHECKING:
    from ..app import VramscopeApp


class GoToScreen(ModalScreen[str | None]):
    """Asks for a moment and returns its text; Escape returns None. `replay` validates the text."""

    BINDINGS = [*keys.GO_TO]

    def __init__(self, replay: ReplayState) -> None:
        super().__init__()
        self._replay = replay

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label("Go to", classes="dialog--title")
            field = Input(placeholder="e.g. 35%", compact=True)
            field.cursor_blink = False
            yield field
            yield Label(f"{EXPECTED}; Esc cancels", id="goto-hint", classes="dialog--hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer with the moment, or show why it is none."""
        event.stop()
        try:
            parse_moment(event.value, self._replay)
        except UsageError as error:
            self.query_one("#goto-hint", Label).update(str(error))
            return
        self.dismiss(event.value)


REPLAY_ACTIONS = ("replay", "go_to", "pause", "step_node", "zoom_bar", "pan_bar")
# Prefix of actions whose keys move through the points of a profile over the replay.
STEP_ACTIONS = "replay('step'"
# Prefixes of actions whose keys a screen over the replay needs for its lists.
LIST_ACTIONS = ("go_to", "step_node", "replay('turn'", "zoom_bar", "pan_bar")
# A zoomed bar shows at least the time of so many samples.
LEAST_SAMPLES = 10


class ReplayControl:
    """Moves in time, and in a playlist from run to run."""

    def __init__(self, app: "VramscopeApp", feed: ReplayFeed) -> None:
        self._app = app
        self._feed = feed
        self._word_number = 0
        self._part_number = 0
        self._has_explained_nodes = False
        # The part of the time that the bar shows, None for all; of a replay of so much time, at this moment.
        self._window: TimeWindow | None = None
        self._whole: TimeWindow | None = None
        self._position_s = 0.0

    @property
    def keys(self) -> Sequence[Binding]:
        return keys.PLAYLIST if isinstance(self._feed, PlaylistFeed) else keys.REPLAY

    def allows(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Return whether an action makes sense now: in a dialog or a field its keys have other meanings."""
        app = self._app
        is_elsewhere = isinstance(app.screen, ModalScreen) or isinstance(app.focused, Input)
        is_elsewhere |= self.is_for_lists(f"{action}({parameters[0]!r}" if parameters else action)
        return not (action in REPLAY_ACTIONS and is_elsewhere)

    def is_for_lists(self, action: str) -> bool:
        """Return whether the keys of an action move in a list instead, on a screen over the replay."""
        if self._app.steps_in_tool and action.startswith(STEP_ACTIONS):
            return True
        return self._app.overlay is not None and action.startswith(LIST_ACTIONS)

    def command(self, verb: str, count: float = 0, text: str = "") -> None:
        """Send a command to the replay; over a screen without a time bar, notify where it goes."""
        self._feed.command(ReplayCommand(cast(Verb, verb), count, text))
        if verb == "skip" and self._app.overlay is not None:
            self._app.notify(f"Replay: {count:+.0f} s", title="replay", timeout=2)

    def go_to(self) -> None:
        replay = self._app.newest.replay
        if replay is None:
            return

        def go(moment: str | None) -> None:
            if moment is not None:
                self.command("go", text=moment)

        self._app.push_screen(GoToScreen(replay), go)

    def frame(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot with the part of its replay that the bar shows.

        The part follows the moment where that leaves it. One that was moved away from the moment stays while
        the replay plays on, until the moment is moved by hand.
        """
        replay = snapshot.replay
        if replay is None:
            return snapshot
        whole = TimeWindow(replay.start_s, replay.end_s)
        if whole != self._whole:
            self._whole, self._window = whole, None
        before_s, self._position_s = self._position_s, replay.position_s
        window = self._window
        if window is None:
            return snapshot
        is_moved = replay.is_paused and replay.position_s != before_s
        if is_moved or window.holds(before_s):
            late_s = window.start - replay.position_s
            interval_s = 0.0 if snapshot.sample is None else snapshot.sample.interval_s
            if 0 < late_s <= interval_s:  # a click at the left end goes to the sample before
                window = whole.cut(window.length, replay.position_s + window.length / 2)
            self._window = window = whole.follow(window, replay.position_s)
        return msgspec.structs.replace(snapshot, replay=msgspec.structs.replace(replay, window=window))

    def zoom(self, factor: float) -> None:
        """Show so many times as much time in the bar, around the moment."""
        sample = self._app.newest.sample
        if self._whole is None or sample is None:
            return
        shown_s = (self._window or self._whole).length
        if factor < 1 and shown_s * factor < LEAST_SAMPLES * sample.interval_s:
            self._app.notify(f"The bar shows {span_text(shown_s)}: no less.", title="replay", timeout=2)
            return
        self._window = self._whole.zoom(self._window, factor, self._position_s)

    def pan(self, share: float) -> None:
        """Move the part that the bar shows by a share of its length."""
        if self._whole is None or self._window is None:
            self._app.notify("The bar shows all of the time: z zooms in.", title="replay", timeout=3)
            return
        length_s = self._window.length
        self._window = self._whole.cut(length_s, self._window.start + (0.5 + share) * length_s)

    def notify(self, snapshot: Snapshot) -> None:
        """Show the replay's messages over the screen; for another run, forget the news of the last."""
        app = self._app
        if snapshot.replay is None:
            return
        part = snapshot.replay.part
        if part is not None and part.number != self._part_number:
            self._part_number = part.number
            app.forget_news()
            self._show_same_rank(snapshot)
        word = snapshot.replay.word
        if word is not None and word.number != self._word_number:
            self._word_number = word.number
            is_elsewhere = word.node is not None and word.node != app.known.shown
            text = f"{word.node}: {word.text}" if is_elsewhere else word.text
            app.notify(text, title="replay", timeout=4)
            if word.node is not None:
                app.switch_node(word.node)

    def explain_nodes(self) -> None:
        """Explain once how to get from node to node."""
        place = self._app.known.place
        if place is not None and not self._has_explained_nodes:
            self._has_explained_nodes = True
            text = f"{place.total} nodes, replayed together: Tab shows the next one."
            self._app.notify(text, timeout=5)

    def _show_same_rank(self, snapshot: Snapshot) -> None:
        """Where a device is shown in full, show that of the same rank, or else the fullest."""
        screen = self._app.device_screen
        devices = snapshot.sample.devices if snapshot.sample is not None else ()
        if screen is None or not devices:
            return
        before = self._app.newest.sample
        shown = before.devices if before is not None else ()
        index = next((it.index for it in shown if it.uuid == screen.uuid), None)
        same = next((it for it in devices if it.index == index), None)
        screen.uuid = (same or find_fullest(devices)).uuid
