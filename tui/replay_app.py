"""The application that shows a replay: the screens of the present, with keys that move in time."""

from typing import cast

from textual import on
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widgets import Input

from ..engine.history import History
from ..engine.replay.feed import ReplayFeed
from ..engine.replay.player import ReplayCommand, Verb
from ..engine.viewer.snapshot import Snapshot
from . import keys
from .app import VramscopeApp
from .widgets.time_bar import SpanLine

REPLAY_ACTIONS = ("replay", "go_to", "pause", "step_node")
STEP_ACTIONS = "replay('step'"
"""How actions begin whose keys move through the points of a profile over the replay."""
LIST_ACTIONS = ("go_to", "step_node", "replay('turn'")
"""How actions begin whose keys a screen over the replay needs for its lists."""


class ReplayApp(VramscopeApp, inherit_bindings=False):
    """Shows what a `ReplayFeed` plays, and passes the keys on to it."""

    BINDINGS = [*keys.REPLAY]
    _word_number = 0
    _has_told_nodes = False

    @property
    def _player(self) -> ReplayFeed:
        return cast(ReplayFeed, self._feed)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: in a dialog or a field its keys are something else."""
        if action == "step_node" and self._known.place is None:
            return False
        is_elsewhere = isinstance(self.screen, ModalScreen) or isinstance(self.focused, Input)
        is_elsewhere |= self._is_for_lists(f"{action}({parameters[0]!r}" if parameters else action)
        if action in REPLAY_ACTIONS and is_elsewhere:
            return False
        return super().check_action(action, parameters)

    def offers(self, binding: Binding) -> bool:
        """Return whether help and palette tell of a key: nothing is signalled, and one node has no next."""
        action = binding.action.split("(")[0]
        if action == "signal" or (action == "step_node" and self._known.place is None):
            return False
        return super().offers(binding) and not self._is_for_lists(binding.action)

    def _is_for_lists(self, action: str) -> bool:
        """Return whether the keys of an action move in a list instead, on a screen over the replay."""
        if self.is_breakdown_seen and action.startswith(STEP_ACTIONS):
            return True
        return self.overlay is not None and action.startswith(LIST_ACTIONS)

    def history_of(self, node: str) -> History:
        """Return what was played of a node."""
        return self._player.history_of(node)

    def show_node(self, node: str) -> None:
        """Show another node, and have it worked out before the others."""
        super().show_node(node)
        self._player.look_at(self._known.shown)

    def action_replay(self, verb: str, count: float = 0, text: str = "") -> None:
        """Pass a command to the replay; over a screen without a time bar say where it goes."""
        self._player.command(ReplayCommand(cast(Verb, verb), count, text))
        if verb == "skip" and self.overlay is not None:
            self.notify(f"Replay: {count:+.0f} s", timeout=2)

    @on(SpanLine.MomentAsked)
    def go_to_moment(self, message: SpanLine.MomentAsked) -> None:
        """Go to a moment that was clicked."""
        self._player.command(ReplayCommand("seek", message.time_s))

    def action_pause(self) -> None:
        """Stop at this moment, or play on."""
        self.action_replay("pause")

    def action_go_to(self) -> None:
        """Ask for a moment and go there."""
        replay = self._newest.replay
        if replay is None:
            return
        from .screens.go_to import GoToScreen

        def go(moment: str | None) -> None:
            if moment is not None:
                self._player.command(ReplayCommand("go", text=moment))

        self.push_screen(GoToScreen(replay), go)

    def _draw_newest(self) -> None:
        """Draw the newest snapshots; say once how to get from node to node."""
        super()._draw_newest()
        place = self._known.place
        if place is not None and not self._has_told_nodes:
            self._has_told_nodes = True
            self.notify(f"{place.total} nodes on one clock: Tab shows the next one.", timeout=5, markup=False)

    def _tell_news(self, snapshot: Snapshot) -> None:
        """Say over the screen what the replay has to say, and what crossed a line."""
        word = snapshot.replay.word if snapshot.replay is not None else None
        if word is not None and word.number != self._word_number:
            self._word_number = word.number
            is_elsewhere = word.node is not None and word.node != self._known.shown
            self.notify(f"{word.node}: {word.text}" if is_elsewhere else word.text, timeout=4, markup=False)
            if word.node is not None:
                super().show_node(word.node)
        if snapshot.replay is None or not snapshot.replay.is_catching_up:
            super()._tell_news(snapshot)
