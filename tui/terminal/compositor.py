"""A compositor that sends only the cells that differ from what the terminal already shows.

Textual sends every cell of a changed line from the left edge of the widget; over SSH those bytes are
what a monitor costs. This one remembers what it sent, per cell, and writes the difference with the
shortest moves. It stands on private parts of Textual, which is why Textual is pinned to 8.2.8 exactly.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS, Console
from textual._compositor import Compositor, CompositorUpdate, LayoutUpdate
from textual._styles_cache import StylesCache
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from .picture import CellRow, CellWriter

if TYPE_CHECKING:
    from textual.app import App

ResultT = TypeVar("ResultT")
Layer = tuple[int, Strip]
"""A column and what is drawn from there on."""

# Textual 8.2.8 caches this by `self`, though it calls it `cls`: the cache keeps the strips of a thousand
# widgets that were closed long ago.
StylesCache.get_inner_outer = classmethod(StylesCache.get_inner_outer)  # type: ignore[arg-type, assignment]


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


class ThriftyPartialUpdate(CompositorUpdate):
    """Parts of the screen: what differs is sent.

    Args:
        spans: First column and the column after the last one of every row that may have changed.
        layers: What covers each of these rows, the foremost first, with the column where it begins.
        shown: What the terminal shows.
        size: Size of the screen.
    """

    def __init__(
        self,
        spans: dict[int, tuple[int, int]],
        layers: dict[int, list[Layer]],
        shown: ShownPicture,
        size: Size,
    ) -> None:
        self._spans = spans
        self._layers = layers
        self._shown = shown
        self._size = size

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences that change what differs."""
        if self._shown.size != self._size:
            self._shown.forget(self._size)
        writer = CellWriter(self._size.width)
        color_system = _color_system(console)
        for y in sorted(self._spans):
            self._render_row(writer, y, color_system)
        return writer.finish()

    def _render_row(self, writer: CellWriter, y: int, color_system: ColorSystem) -> None:
        """Write what differs in the span of one row."""
        x1, x2 = self._spans[y]
        old = self._shown.rows[y]
        row = old.copy()
        for x, strip in reversed(self._layers[y]):
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

    def render_partial_update(self) -> ThriftyPartialUpdate | None:  # type: ignore[override]  # not in chops
        """Return an update of what changed, or None where nothing did.

        Only widgets that changed are asked for lines; Textual asks all between the topmost change and
        the lowest.
        """
        spans = self._take_dirty_spans()
        if not spans:
            return None
        return ThriftyPartialUpdate(spans, self._collect_layers(spans), self._shown, self.size)

    def _take_dirty_spans(self) -> dict[int, tuple[int, int]]:
        """Return, for each row with a dirty region, the columns from the leftmost to the rightmost."""
        screen = self.size.region
        spans: dict[int, tuple[int, int]] = {}
        for dirty in self._dirty_regions:
            left, top, width, height = dirty.intersection(screen)
            if not width:
                continue
            for y in range(top, top + height):
                x1, x2 = spans.get(y, (left, left))
                spans[y] = min(x1, left), max(x2, left + width)
        self._dirty_regions.clear()
        return spans

    def _collect_layers(self, spans: dict[int, tuple[int, int]]) -> dict[int, list[Layer]]:
        """Return what covers each span, from the foremost widget to one that hides all behind it."""
        layers: dict[int, list[Layer]] = {y: [] for y in spans}
        open_spans = spans.copy()
        for widget, (region, clip) in self.visible_widgets.items():
            left, top, width, height = region.intersection(clip)
            right = left + width
            bottom = top + height
            rows = [y for y, (x1, x2) in open_spans.items() if top <= y < bottom and x1 < right and left < x2]
            if not rows:
                continue
            first = min(rows)
            last = max(rows)
            crop = Region(left - region.x, first - region.y, width, last - first + 1)
            strips = widget.render_lines(crop)
            for y in rows:
                layers[y].append((left, strips[y - first]))
                if left <= spans[y][0] and spans[y][1] <= right:
                    del open_spans[y]
            if not open_spans:
                break
        return layers


class ThriftyScreen(Screen[ResultT]):
    """A screen whose updates cost few bytes; every screen of the application derives from it."""

    def __init__(self, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self.is_drawing = False
        """Whether widgets are painted together, at the end of `drawn_at_once`."""
        self._thrifty_compositor = ThriftyCompositor()
        self._compositor = self._thrifty_compositor

    @contextmanager
    def drawn_at_once(self) -> Iterator[None]:
        """Paint, at the end, what widgets mark inside; the usual way takes two messages for each of them."""
        self.is_drawing = True
        try:
            yield
        finally:
            self.is_drawing = False
        if self._can_paint_now():
            self._compositor.update_widgets(self._dirty_widgets)
            self._compositor_refresh()
        else:
            self.check_idle()

    def mark(self, widget: Widget) -> None:
        """Note that a widget is to be painted at the end of `drawn_at_once`."""
        self._dirty_widgets.add(widget)

    def _can_paint_now(self) -> bool:
        """Return whether nothing but marked widgets changed, so that no layout must come first."""
        waits = self._layout_required or self._scroll_required or self._repaint_required
        if waits or self.app._batch_count or not self.is_current or not self._dirty_widgets:
            return False
        return not any(child._layout_required or child._scroll_required for child in self.children)

    def on_mount(self) -> None:
        """Know nothing of the terminal after it was lent to a shell."""
        self.app.app_resume_signal.subscribe(self, self._repaint)

    def on_unmount(self) -> None:
        """Let go of the signal, which would hold this screen, all its widgets and strips, for good."""
        self.app.app_resume_signal.unsubscribe(self)

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
