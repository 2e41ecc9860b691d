"""An application over whose screens others may lie for a while: sweeps, a plan."""

from textual.screen import Screen

from .terminal_app import TerminalApp


class OverlayApp(TerminalApp, inherit_bindings=False):
    """Shows screens over those of its own; a key of its own screens takes them away."""

    _overlays: tuple[Screen[None], ...] = ()

    @property
    def overlay(self) -> Screen[None] | None:
        """The foremost screen that lies over those of the application; None where there is none."""
        return self._overlays[-1] if self._overlays else None

    def show_over(self, screen: Screen[None]) -> None:
        """Show a screen over those of the application, in place of what lies there."""
        self.leave_overlay()
        self.show_further(screen)

    def show_further(self, screen: Screen[None]) -> None:
        """Show a screen over what lies there; `step_back` leads back to that."""
        self._overlays += (screen,)
        self.push_screen(screen)

    def leave_overlay(self) -> None:
        """Take away all that lies over the screens of the application."""
        while self._overlays:
            self.step_back()

    def step_back(self) -> None:
        """Take away the foremost screen that lies there, and what lies over it."""
        overlay = self.overlay
        self._overlays = self._overlays[:-1]
        while overlay is not None and overlay in self.screen_stack:
            self.pop_screen()

    def action_leave_live(self) -> None:
        """Go back from the live screen to where it was chosen; here it is the first."""

    def action_step_back(self) -> None:
        """Go back to the screen below."""
        self.step_back()
