"""Widgets that are painted together when their screen draws a snapshot, and by themselves otherwise."""

from textual.dom import NoScreen
from textual.geometry import Region
from textual.widget import Widget

from ..terminal.compositor import ThriftyScreen


class MarkingWidget(Widget):
    """A widget that marks what changed instead of asking, by a message, to be asked again later."""

    def repaint(self, *regions: Region) -> None:
        """Have regions painted anew, or everything where there are none."""
        try:
            screen = self.screen
        except NoScreen:
            return  # it is being taken down
        if isinstance(screen, ThriftyScreen) and screen.is_drawing and self._is_mounted:
            self._set_dirty(*regions)
            screen.mark(self)
        else:
            self.refresh(*regions)
