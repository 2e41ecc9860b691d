"""An application over whose screens profiles by module can lie: asked for by their files or folders."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.binding import Binding
from textual.screen import Screen

from ..engine.clock import Clock
from .overlay_app import OverlayApp

if TYPE_CHECKING:
    from .profiled import Profiled
    from .screens.path_prompt import Answer

QUESTION = "Memory by module"
EXAMPLE = "such as: memory_trace  or  run7/rank0_dp0_tp0/memory.log"
HINT = "files of profiles, or folders with those of ranks; several are compared"
ReadProfiles = Callable[[str], "Sequence[Profiled]"]
"""Reads the profiles below the paths in a line. Raises a `VramscopeError`."""


class BreakdownOverlayApp(OverlayApp, inherit_bindings=False):
    """Asks for profiles by module, and shows them over its screens."""

    read_profiles: ReadProfiles | None = None
    """Reads profiles; None where none can be read, and then no key is offered."""
    _profiles_text = ""
    _breakdown: Screen[None] | None = None
    _clock: Clock
    _export_folder: Path | None

    @property
    def is_breakdown_seen(self) -> bool:
        """Whether profiles lie over the screens of the application: `[` and `]` then move in them."""
        return self._breakdown is not None and self.overlay is self._breakdown

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: where nothing reads profiles, none is offered."""
        if action == "show_breakdown" and self.read_profiles is None:
            return False
        return super().check_action(action, parameters)

    def offers(self, binding: Binding) -> bool:
        """Return whether help and palette tell of a key."""
        is_offered = binding.action != "show_breakdown" or self.read_profiles is not None
        return super().offers(binding) and is_offered

    def action_show_breakdown(self) -> None:
        """Ask for profiles, and show them over the present screen."""
        if self.read_profiles is None:
            return
        from .screens.path_prompt import PathPrompt

        text = self._profiles_text or "."
        prompt = PathPrompt(QUESTION, self.read_profiles, text=text, example=EXAMPLE, hint=HINT)
        self.push_screen(prompt, self._show_profiles)

    def _show_profiles(self, answer: "Answer[Sequence[Profiled]] | None") -> None:
        if answer is None:
            return
        from .screens.breakdown import BreakdownScreen

        self._profiles_text = answer.text
        screen = self._breakdown = BreakdownScreen(
            self.glyphs, self._clock, export_folder=self._export_folder, leave=self.leave_overlay
        )
        screen.show(answer.found)
        self.show_over(screen)
