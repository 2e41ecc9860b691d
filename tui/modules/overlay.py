"""An application over whose screens profiles by module can lie: of processes that train, or of files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.binding import Binding
from textual.screen import Screen

from ...engine.clock import Clock
from ..screens.overlay_app import OverlayApp

if TYPE_CHECKING:
    from ...engine.model import RankSample
    from ...engine.viewer.feed import Feed
    from ...engine.viewer.snapshot import Snapshot
    from ..frame.known_nodes import KnownNodes
    from ..live.process_signals import SignalPolicy
    from ..screens.path_prompt import Answer
    from .live_screen import LiveBreakdownScreen
    from .profiled import Profiled

QUESTION = "Memory by module"
EXAMPLE = "such as: memory_trace  or  run7/rank0_dp0_tp0/memory.log"
HINT = "files of profiles, or folders with those of ranks; several are compared"
ReadProfiles = Callable[[str], "Sequence[Profiled]"]
"""Reads the profiles below the paths in a line. Raises a `VramscopeError`."""


class BreakdownOverlayApp(OverlayApp, inherit_bindings=False):
    """Asks processes that train, or for files, and shows memory by module over its screens."""

    read_profiles: ReadProfiles | None = None
    """Reads profiles; None where none can be read, and then no key is offered."""
    _profiles_text = ""
    _breakdown: Screen[None] | None = None
    _followed: "LiveBreakdownScreen | None" = None
    _clock: Clock
    _feed: "Feed"
    _shown: "Snapshot"
    _known: "KnownNodes"
    _signal_policy: "SignalPolicy"
    _export_folder: Path | None

    @property
    def is_breakdown_seen(self) -> bool:
        """Whether profiles lie over the screens of the application: `[` and `]` then move in them."""
        return self._breakdown is not None and self.overlay is self._breakdown

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: where nothing reads profiles, none is offered.

        While profiles are seen, keys that go from node to node go from profile to profile.
        """
        if action == "step_node" and self.is_breakdown_seen:
            return False
        if action == "show_breakdown" and self.read_profiles is None:
            return False
        return super().check_action(action, parameters)

    def offers(self, binding: Binding) -> bool:
        """Return whether help and palette tell of a key."""
        is_offered = binding.action != "show_breakdown" or self.read_profiles is not None
        return super().offers(binding) and is_offered

    @property
    def looked_at(self) -> tuple[str | None, int | None]:
        """The device that is looked at, and the process on it; None where there is none."""
        return None, None

    def list_running(self) -> "Sequence[RankSample]":
        """Return the processes that can be asked for their modules, those that are looked at first."""
        from ..widgets.rank_words import order_of

        sample, (uuid, pid) = self._shown.sample, self.looked_at
        if sample is None or self._signal_policy.is_replay:
            return ()
        running = [rank for rank in sample.ranks if rank.state == "ok"]
        return sorted(running, key=lambda it: (it.pid != pid, it.device_uuid != uuid, order_of(it)))

    def action_show_breakdown(self) -> None:
        """Follow the modules of the process that is looked at; where none trains, ask for files."""
        ranks = () if self.is_breakdown_seen else self.list_running()
        if ranks:
            self._show_running(ranks)
        else:
            self.action_open_profiles()

    def follow_breakdown(self, snapshot: "Snapshot") -> None:
        """Show what a snapshot tells of the processes that are followed."""
        is_shown = snapshot.node in ("", self._known.shown)
        if is_shown and self._followed is not None and self.overlay is self._followed:
            self._followed.follow(snapshot)

    def _show_running(self, ranks: "Sequence[RankSample]") -> None:
        from .live_profiles import LiveProfiles
        from .live_screen import LiveBreakdownScreen

        screen = self._breakdown = self._followed = LiveBreakdownScreen(
            LiveProfiles(self._feed, self._clock, ranks),
            self.glyphs,
            self._clock,
            export_folder=self._export_folder,
            leave=self.step_back,
        )
        self.show_over(screen)

    def action_open_profiles(self) -> None:
        """Ask for profiles, and show them over the present screen."""
        if self.read_profiles is None:
            return
        from ..screens.path_prompt import PathPrompt

        text = self._profiles_text or "."
        prompt = PathPrompt(QUESTION, self.read_profiles, text=text, example=EXAMPLE, hint=HINT)
        self.push_screen(prompt, self._show_profiles)

    def _show_profiles(self, answer: "Answer[Sequence[Profiled]] | None") -> None:
        if answer is None:
            return
        from .screen import BreakdownScreen

        self._profiles_text = answer.text
        screen = self._breakdown = BreakdownScreen(
            self.glyphs, self._clock, export_folder=self._export_folder, leave=self.step_back
        )
        screen.show(answer.found)
        self.show_over(screen)
