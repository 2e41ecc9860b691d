"""A compositor that sends only the cells that differ from what the terminal already shows.

Textual sends every cell of a changed line from the left edge of the widget; over SSH those bytes are
what a monitor costs. This one remembers what it sent, per cell, and writes the difference with the
shortest moves. It stands on private parts of Textual, which is why Textual is pinned to 8.2.8 exactly.
"""

from typing import TYPE_CHECKING, TypeVar

from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS, Console
from textual._compositor import ChopsUpdate, Compositor, LayoutUpdate
from textual.geometry import Size
from textual.screen import Screen

from .drawing.picture import CellRow, CellWriter

if TYPE_CHECKING:
    from textual.app import App

ResultT = TypeVar("ResultT")


class ShownPicture:
    """What the terminal shows as far as it is known."""

    def __init__(self) -> None:
        self.size = Size(0, 0)
        self.rows: list[CellRow] = []

    def forget(self, size: Size) -> None:
        """Know nothing of a terminal of this size."""
        self.size = size
        self.rows = [CellRow(size.width) for _ in range(size.height)]


class ThriftyLayoutUpdate(LayoutUpdate):
    """The whole screen: everything is sent, and remembered."""

    def __init__(self, update: LayoutUpdate, shown: ShownPicture) -> None:
        super().__init__(update.strips, update.region)
        self._shown = shown

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences that draw the whole screen."""
        self._shown.forget(self.region.size)
        width = self.region.width
        writer = CellWriter(width)
        color_system = _color_system(console)
        for y, strips in enumerate(self.strips[: self.region.height]):
            row = CellRow(width)
            x = 0
            for strip in strips:
                row.put(strip, x, 0, width, color_system)
                x += strip.cell_length
            row.texts = [" " if text is None else text for text in row.texts]
            writer.paint(y, 0, width, self._shown.rows[y], row)
            self._shown.rows[y] = row
        return writer.finish()


class ThriftyChopsUpdate(ChopsUpdate):
    """Parts of the screen: what differs is sent."""

    def __init__(self, update: ChopsUpdate, shown: ShownPicture, size: Size) -> None:
        super().__init__(update.chops, update.spans, update.chop_ends)
        self._shown = shown
        self._size = size

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences that change what differs."""
        if self._shown.size != self._size:
            self._shown.forget(self._size)
        width, height = self._size
        writer = CellWriter(width)
        color_system = _color_system(console)
        for y, x1, x2 in self.spans:
            if 0 <= y < height:
                self._render_span(writer, y, max(0, x1), min(width, x2), color_system)
        return writer.finish()

    def _render_span(self, writer: CellWriter, y: int, x1: int, x2: int, color_system: ColorSystem) -> None:
        """Write what differs in one row between two columns."""
        old = self._shown.rows[y]
        row = CellRow(0)
        row.texts, row.pens = old.texts.copy(), old.pens.copy()
        for x, strip in self.chops[y].items():
            if strip is not None and x < x2 and x + strip.cell_length > x1:
                row.put(strip, x, x1, x2, color_system)
        row.mend(x1)
        row.mend(x2)
        writer.paint(y, max(0, x1 - 1), min(self._size.width, x2 + 1), old, row)
        self._shown.rows[y] = row


def _color_system(console: Console) -> ColorSystem:
    """Return how many colours the terminal has; Textual takes true colour where Rich found none."""
    return COLOR_SYSTEMS[console.color_system] if console.color_system else ColorSystem.TRUECOLOR


class ThriftyCompositor(Compositor):
    """A compositor whose updates know what was sent before."""

    def __init__(self) -> None:
        super().__init__()
        self._shown = ShownPicture()

    def forget(self) -> None:
        """Know nothing of what the terminal shows, because something else wrote to it."""
        self._shown.forget(self.size)

    def render_full_update(self, simplify: bool = False) -> LayoutUpdate:
        """Return an update of the whole screen.

        Args:
            simplify: Whether neighbours of one style are joined, as for a picture; a picture is not
                what the terminal shows.
        """
        if simplify:
            return super().render_full_update(simplify=True)
        return ThriftyLayoutUpdate(super().render_full_update(), self._shown)

    def render_partial_update(self) -> ChopsUpdate | None:
        """Return an update of what changed, or None where nothing did."""
        update = super().render_partial_update()
        return None if update is None else ThriftyChopsUpdate(update, self._shown, self.size)


class ThriftyScreen(Screen[ResultT]):
    """A screen whose updates cost few bytes; every screen of the application derives from it."""

    def __init__(self, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._thrifty_compositor = ThriftyCompositor()
        self._compositor = self._thrifty_compositor

    def on_mount(self) -> None:
        """Know nothing of the terminal after it was lent to a shell."""
        self.app.app_resume_signal.subscribe(self, self._repaint)

    def on_resize(self) -> None:
        """Know nothing of what the terminal kept through a change of its size."""
        self._thrifty_compositor.forget()
        self.refresh()

    def on_screen_suspend(self) -> None:
        """Know nothing of the terminal while another screen writes to it."""
        self._thrifty_compositor.forget()

    def on_screen_resume(self) -> None:
        """Know nothing of what the other screen left behind."""
        self._thrifty_compositor.forget()

    def _repaint(self, _: "App[object]") -> None:
        """Send everything again."""
        self._thrifty_compositor.forget()
        self.refresh()
