"""Moving in a replay: keys pass commands to its feed, and what it has to say is said over the screen."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from ...engine.errors import UsageError
from ...engine.replay.feed import PlaylistFeed, ReplayFeed
from ...engine.replay.player import EXPECTED, ReplayCommand, Verb, parse_moment
from ...engine.viewer.snapshot import ReplayState, Snapshot
from ..frame import keys
from ..live.screen import find_fullest

if TYPE_CHECKING:
    from ..app import VramscopeApp


class GoToScreen(ModalScreen[str | None]):
    """Asks for a moment and gives it back as it was written; Escape gives back none.

    Args:
        replay: Where the replay is, to tell what is no moment of it.
    """

    BINDINGS = [*keys.GO_TO]

    def __init__(self, replay: ReplayState) -> None:
        super().__init__()
        self._replay = replay

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label("Go to", classes="dialog--title")
            field = Input(placeholder="such as: 35%", compact=True)
            field.cursor_blink = False
            yield field
            yield Label(f"{EXPECTED}; Esc cancels", id="goto-hint", classes="dialog--hint", markup=False)

    def on_mount(self) -> None:
        """Give the field the keys."""
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer with the moment, or say why it is none."""
        event.stop()
        try:
            parse_moment(event.value, self._replay)
        except UsageError as error:
            self.query_one("#goto-hint", Label).update(str(error))
            return
        self.dismiss(event.value)


REPLAY_ACTIONS = ("replay", "go_to", "pause", "step_node")
# How actions begin whose keys move through the points of a profile over the replay.
STEP_ACTIONS = "replay('step'"
# How actions begin whose keys a screen over the replay needs for its lists.
LIST_ACTIONS = ("go_to", "step_node", "replay('turn'")


class ReplayControl:
    """Moves in time, and of a playlist from run to run."""

    def __init__(self, app: "VramscopeApp", feed: ReplayFeed) -> None:
        self._app = app
        self._feed = feed
        self._word_number = 0
        self._part_number = 0
        self._has_told_nodes = False

    @property
    def keys(self) -> Sequence[Binding]:
        """Keys of the view."""
        return keys.PLAYLIST if isinstance(self._feed, PlaylistFeed) else keys.REPLAY

    def allows(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Return whether an action makes sense now: in a dialog or a field its keys are something else."""
        app = self._app
        is_elsewhere = isinstance(app.screen, ModalScreen) or isinstance(app.focused, Input)
        is_elsewhere |= self.is_for_lists(f"{action}({parameters[0]!r}" if parameters else action)
        return not (action in REPLAY_ACTIONS and is_elsewhere)

    def is_for_lists(self, action: str) -> bool:
        """Return whether the keys of an action move in a list instead, on a screen over the replay."""
        if self._app.breakdowns.is_seen and action.startswith(STEP_ACTIONS):
            return True
        return self._app.overlay is not None and action.startswith(LIST_ACTIONS)

    def command(self, verb: str, count: float = 0, text: str = "") -> None:
        """Pass a command to the replay; over a screen without a time bar say where it goes."""
        self._feed.command(ReplayCommand(cast(Verb, verb), count, text))
        if verb == "skip" and self._app.overlay is not None:
            self._app.notify(f"Replay: {count:+.0f} s", timeout=2)

    def go_to(self) -> None:
        """Ask for a moment and go there."""
        replay = self._app.newest.replay
        if replay is None:
            return

        def go(moment: str | None) -> None:
            if moment is not None:
                self.command("go", text=moment)

        self._app.push_screen(GoToScreen(replay), go)

    def tell(self, snapshot: Snapshot) -> None:
        """Say over the screen what the replay has to say; of another run forget what was seen of the last."""
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
            app.notify(f"{word.node}: {word.text}" if is_elsewhere else word.text, timeout=4, markup=False)
            if word.node is not None:
                app.switch_node(word.node)

    def tell_nodes(self) -> None:
        """Say once how to get from node to node."""
        place = self._app.known.place
        if place is not None and not self._has_told_nodes:
            self._has_told_nodes = True
            text = f"{place.total} nodes on one clock: Tab shows the next one."
            self._app.notify(text, timeout=5, markup=False)

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
