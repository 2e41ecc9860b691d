"""Moving in a replay: keys send commands to its feed, and its messages appear over the screen."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

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


REPLAY_ACTIONS = ("replay", "go_to", "pause", "step_node")
# Prefix of actions whose keys move through the points of a profile over the replay.
STEP_ACTIONS = "replay('step'"
# Prefixes of actions whose keys a screen over the replay needs for its lists.
LIST_ACTIONS = ("go_to", "step_node", "replay('turn'")


class ReplayControl:
    """Moves in time, and in a playlist from run to run."""

    def __init__(self, app: "VramscopeApp", feed: ReplayFeed) -> None:
        self._app = app
        self._feed = feed
        self._word_number = 0
        self._part_number = 0
        self._has_explained_nodes = False

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
        """Tell the user once how to get from node to node."""
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
