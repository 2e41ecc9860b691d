"""An application over whose screens another one may lie for a while: a sweep, a plan."""

from textual.screen import Screen

from .terminal_app import TerminalApp


class OverlayApp(TerminalApp, inherit_bindings=False):
    """Shows one screen at a time over those of its own; a key of its own screens takes it away."""

    _overlay: Screen[None] | None = None

    @property
    def overlay(self) -> Screen[None] | None:
        """The screen that lies over those of the application; None where there is none."""
        return self._overlay

    def show_over(self, screen: Screen[None]) -> None:
        """Show a screen over those of the application, in place of the one that lies there."""
        self.leave_overlay()
        self._overlay = screen
        self.push_screen(screen)

    def leave_overlay(self) -> None:
        """Take away the screen that lies over those of the application, and what lies over it."""
        overlay, self._overlay = self._overlay, None
        while overlay is not None and overlay in self.screen_stack:
            self.pop_screen()

    def action_leave_overlay(self) -> None:
        """Go back to the screen below."""
        self.leave_overlay()
