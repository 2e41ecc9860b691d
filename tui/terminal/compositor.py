"""A compositor that sends only the cells that differ from what the terminal already shows.

Textual sends every cell of a changed line from the left edge of the widget; over SSH those bytes are
what a monitor costs. This one keeps what it sent, per cell, and writes the difference with the shortest
moves. It uses private parts of Textual, so Textual is pinned to 8.2.8 exactly.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from rich.cells import cell_len, split_graphemes
from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS, Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import Compositor, CompositorUpdate, LayoutUpdate
from textual._styles_cache import StylesCache
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from ..draw.pens import ON, PLAIN, Pen, change_pen
from .strip_caches import find_change, make_caches_lazy
from .timers import fire_late_timers

if TYPE_CHECKING:
    from textual.app import App

    from ..draw.glyphs import Glyphs


# Equal pens are one and the same object.
_known: dict[Pen, Pen] = {PLAIN: PLAIN}


@lru_cache(maxsize=1024)
def pen_of(style: Style, color_system: ColorSystem) -> Pen:
    """Return the pen for a style on a terminal of so many colours."""
    attributes = style._attributes & style._set_attributes
    pen = Pen(
        tuple(bit for bit in range(len(ON)) if attributes & (1 << bit)),
        ";".join(style.color.downgrade(color_system).get_ansi_codes()) if style.color else "",
        ";".join(style.bgcolor.downgrade(color_system).get_ansi_codes(False)) if style.bgcolor else "",
    )
    return _known.setdefault(pen, pen)


# Characters that every terminal draws one cell wide: after any other the cursor may be elsewhere.
_PLAIN_CELLS = frozenset(
    map(chr, (*range(0x20, 0x7F), *range(0xA0, 0xAD), *range(0xAE, 0x300), *range(0x2500, 0x25FD)))
) | frozenset(map(chr, range(0x2800, 0x2900)))


# Cells that are compared together.
_BLOCK = 32
_BAND_BITS = 4
# Bytes of the shortest step to the right.
_BRIDGE = 3


class _Source(NamedTuple):
    """The one strip that some columns of a row belong to."""

    # Column at which it begins, and the columns that it fills here, which may be fewer.
    place: tuple[int, int, int]
    segments: Sequence[Segment]
    # Cells from its beginning to the end of each segment.
    ends: list[int]


class CellRow:
    """One row: the text and the pen of each cell; the right half of a wide character is an empty text."""

    __slots__ = ("_source", "pens", "texts")

    def __init__(self, width: int) -> None:
        # None where the terminal's content is unknown.
        self.texts: list[str | None] = [None] * width
        self.pens: list[Pen] = [PLAIN] * width
        # Of what was written last.
        self._source: _Source | None = None

    def copy(self) -> "CellRow":
        row = CellRow(0)
        row.texts = self.texts.copy()
        row.pens = self.pens.copy()
        row._source = self._source
        return row

    def put_strip(
        self, segments: Sequence[Segment], x: int, x1: int, x2: int, color_system: ColorSystem
    ) -> tuple[int, int]:
        """Do as `put` and `mend` with all that covers columns `x1` up to `x2`; return which may have changed.

        If the same columns were written last, only segments that differ from those are.
        """
        known = self._source
        place = (x, x1, x2)
        is_known = known is not None and known.place == place
        before, before_ends = (known.segments, known.ends) if known is not None and is_known else ((), [])
        start, stop = find_change(before, segments)
        left = before_ends[start - 1] if start else 0
        changed = segments[start : len(segments) - stop]
        ends = [left + end for end in self.put(changed, x + left, x1, x2, color_system)]
        right = ends[-1] if ends else left
        if stop and right != (before_ends[-1 - stop] if stop < len(before_ends) else 0):
            self._source = None  # what follows has moved
            return self.put_strip(segments, x, x1, x2, color_system)
        ends = [*before_ends[:start], *ends, *before_ends[len(before_ends) - stop :]]
        self._source = _Source(place, segments, ends)
        if is_known and x1 < x + left and x + right < x2:
            return x + left, x + right
        self.mend(x1)
        self.mend(x2)
        return max(0, x1 - 1), min(len(self.texts), x2 + 1)

    def put(
        self, segments: Iterable[Segment], x: int, x1: int, x2: int, color_system: ColorSystem
    ) -> list[int]:
        """Write segments that begin at column `x`, as far as they fall into columns `x1` up to `x2`.

        Returns:
            The cells from the first to the end of each segment.
        """
        texts: list[str | None] = []
        pens: list[Pen] = []
        ends: list[int] = []
        for text, style, control in segments:
            if not control:
                cells = _cells_of(text)
                pen = PLAIN if style is None else pen_of(style, color_system)
                texts.extend(cells)
                pens.extend([pen] * len(cells))
            ends.append(len(texts))
        start = max(x, x1)
        stop = min(x + len(texts), x2, len(self.texts))
        if start < stop:
            self.texts[start:stop] = texts[start - x : stop - x]
            self.pens[start:stop] = pens[start - x : stop - x]
        return ends

    def put_layers(self, layers: Sequence["Layer"], x1: int, x2: int, color_system: ColorSystem) -> None:
        """Write strips over columns `x1` up to `x2`, the last one first."""
        for x, strip in reversed(layers):
            self.put(strip, x, x1, x2, color_system)
        self.mend(x1)
        self.mend(x2)
        self._source = None

    def mend(self, x: int) -> None:
        """Blank the half of a wide character that was cut at the left edge of column `x`."""
        texts = self.texts
        if not 0 < x < len(texts):
            return
        left = texts[x - 1]
        is_wide = left is not None and left not in _PLAIN_CELLS and cell_len(left) == 2
        if texts[x] == "" and not is_wide:
            texts[x] = " "
        elif is_wide and texts[x] != "":
            texts[x - 1] = " "


@lru_cache(maxsize=1024)  # most texts of a row are those of the tick before
def _cells_of(text: str) -> Sequence[str]:
    """Return one text for each cell that `text` takes."""
    if _PLAIN_CELLS.issuperset(text):
        return text
    cells: list[str] = []
    for start, end, width in split_graphemes(text)[0]:
        if width == 0 and cells:
            cells[-1] += text[start:end]
        elif width:
            cells.append(text[start:end])
            cells.extend([""] * (width - 1))
    return cells


class _Run:
    """Adjacent cells that are written with one pen."""

    __slots__ = ("end", "is_plain", "pen", "texts", "x", "y")

    def __init__(self, x: int, y: int, pen: Pen) -> None:
        self.x = x
        self.y = y
        self.pen = pen
        self.texts: list[str] = []
        self.end = x
        # Whether the cursor is surely at `end` once the run is written.
        self.is_plain = True


class CellWriter:
    """Collects what differs and turns it into escape sequences.

    A pen in true colour takes some twenty bytes and a move six, so everything of one pen is written before
    the
    next pen.
    """

    def __init__(self, width: int) -> None:
        self._parts: list[str] = []
        self._width = width
        self._x = -1
        self._y = -1
        self._runs: dict[Pen, list[_Run]] = {}

    def paint(self, y: int, x1: int, x2: int, old: CellRow, new: CellRow) -> None:
        """Collect the cells of row `y` from column `x1` up to `x2` that differ from what is shown."""
        old_texts = old.texts
        new_texts = new.texts
        old_pens = old.pens
        new_pens = new.pens
        x = x1
        while x < x2:
            block = x + _BLOCK if x + _BLOCK < x2 else x2
            if old_texts[x:block] == new_texts[x:block] and old_pens[x:block] == new_pens[x:block]:
                x = block
                continue
            while x < x2 and old_texts[x] == new_texts[x] and old_pens[x] is new_pens[x]:
                x += 1
            if x >= x2:
                return
            while x > 0 and (new_texts[x] == "" or old_texts[x] == ""):
                x -= 1
            x = self._collect(x, y, x2, old, new)

    def finish(self) -> str:
        pen = PLAIN
        for wanted, runs in self._runs.items():
            self._parts.append(change_pen(pen, wanted))
            pen = wanted
            for run in sorted(runs, key=_place):
                self._write(run)
        self._parts.append(change_pen(pen, PLAIN))
        return "".join(self._parts)

    def _collect(self, x: int, y: int, x2: int, old: CellRow, new: CellRow) -> int:
        """Collect cells from column `x` on while they differ; return the column after the last one."""
        start = x
        run: _Run | None = None
        while x < self._width:
            text = new.texts[x]
            pen = new.pens[x]
            shown = old.texts[x]
            is_half = text == "" or shown == ""
            if x > start and not is_half and (x >= x2 or (shown == text and old.pens[x] is pen)):
                break
            if text:
                if run is None or run.pen is not pen or not run.is_plain or run.end != x:
                    run = self._run_at(x, y, pen, new)
                run.texts.append(text)
                run.end = x + 1
                run.is_plain = text in _PLAIN_CELLS
            x += 1
        return x

    def _run_at(self, x: int, y: int, pen: Pen, new: CellRow) -> _Run:
        """Return the run that continues at a cell; a few equal cells before it are written too, cheaper than
        a move.
        """
        runs = self._runs.setdefault(pen, [])
        last = runs[-1] if runs else None
        if last is not None and last.y == y and last.is_plain and 0 <= x - last.end <= _BRIDGE:
            if x == last.end:
                return last
            between = new.texts[last.end : x]
            is_same = all(other is pen for other in new.pens[last.end : x])
            if is_same and _PLAIN_CELLS.issuperset(between):
                known = [text or " " for text in between]
                if len("".join(known).encode()) <= _BRIDGE:
                    last.texts += known
                    return last
        runs.append(_Run(x, y, pen))
        return runs[-1]

    def _write(self, run: _Run) -> None:
        if self._x != run.x or self._y != run.y:
            self._parts.append(self._move_to(run.x, run.y))
        self._parts += run.texts
        self._x = run.end if run.is_plain and run.end < self._width else -1
        self._y = run.y

    def _move_to(self, x: int, y: int) -> str:
        """Return the move of the fewest bytes from the cursor to a cell."""
        move = f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H"
        if self._x < 0 or y < self._y:
            return move
        across = "\r" if x == 0 and self._x else _step(x - self._x, "C", "D")
        return min(move, _step(y - self._y, "B", "A") + across, key=len)


@lru_cache(maxsize=1024)  # most are those of the tick before
def _step(count: int, forward: str, back: str) -> str:
    """Return a step of the cursor by so many cells (ECMA-48, CUU to CUB; BS for short ones to the left)."""
    if count == 0:
        return ""
    if back == "D" and -_BRIDGE <= count < 0:
        return "\b" * -count
    number = abs(count)
    return f"\x1b[{number if number > 1 else ''}{forward if count > 0 else back}"


def _place(run: _Run) -> tuple[int, int]:
    """Return the sort key of runs: downwards in bands, because a step down is shorter than a move."""
    return run.x >> _BAND_BITS, run.y


ResultT = TypeVar("ResultT")
# A column and the text from there on.
Layer = tuple[int, Strip]

# Textual 8.2.8 caches this by `self`, though it calls it `cls`: the cache keeps the strips of a thousand
# widgets that were closed long ago.
StylesCache.get_inner_outer = classmethod(StylesCache.get_inner_outer)  # type: ignore[arg-type, assignment]
make_caches_lazy()
fire_late_timers()


class ShownPicture:
    """What the terminal shows, as far as known."""

    def __init__(self) -> None:
        self.size = Size(0, 0)
        self.rows: list[CellRow] = []

    def forget(self, size: Size) -> None:
        """Forget everything; the terminal has this size."""
        self.size = size
        self.rows = [CellRow(size.width) for _ in range(size.height)]


class ThriftyLayoutUpdate(LayoutUpdate):
    """The whole screen: everything is sent, and kept for comparison."""

    def __init__(self, update: LayoutUpdate, shown: ShownPicture) -> None:
        super().__init__(update.strips, update.region)
        self._shown = shown

    def render_segments(self, console: Console) -> str:
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
        if self._shown.size != self._size:
            self._shown.forget(self._size)
        writer = CellWriter(self._size.width)
        color_system = _color_system(console)
        for y in sorted(self._spans):
            self._render_row(writer, y, color_system)
        return writer.finish()

    def _render_row(self, writer: CellWriter, y: int, color_system: ColorSystem) -> None:
        x1, x2 = self._spans[y]
        old = self._shown.rows[y]
        row = old.copy()
        layers = self._layers[y]
        if len(layers) == 1:
            x, strip = layers[0]
            x1, x2 = row.put_strip(strip._segments, x, x1, x2, color_system)
        else:
            row.put_layers(layers, x1, x2, color_system)
            x1, x2 = max(0, x1 - 1), min(self._size.width, x2 + 1)
        writer.paint(y, x1, x2, old, row)
        self._shown.rows[y] = row


def _color_system(console: Console) -> ColorSystem:
    """Return how many colours the terminal has; Textual uses true colour where Rich found none."""
    return COLOR_SYSTEMS[console.color_system] if console.color_system else ColorSystem.TRUECOLOR


class ThriftyCompositor(Compositor):
    """A compositor whose updates compare with what was sent before."""

    def __init__(self) -> None:
        super().__init__()
        self._shown = ShownPicture()

    def forget(self) -> None:
        """Forget what the terminal shows, because something else wrote to it."""
        self._shown.forget(self.size)

    def render_full_update(self, simplify: bool = False) -> LayoutUpdate:
        """Return an update of the whole screen.

        With `simplify`, neighbours of one style are joined, as for an exported picture; it is not sent to the
        terminal.
        """
        if simplify:
            return super().render_full_update(simplify=True)
        return ThriftyLayoutUpdate(super().render_full_update(), self._shown)

    def render_partial_update(self) -> ThriftyPartialUpdate | None:  # type: ignore[override]  # not in chops
        """Return an update of what changed, or None where nothing did.

        Only widgets that changed are asked for lines; Textual asks all between the topmost change and the
        lowest.
        """
        spans = self._collect_dirty_spans()
        if not spans:
            return None
        return ThriftyPartialUpdate(spans, self._collect_layers(spans), self._shown, self.size)

    def _collect_dirty_spans(self) -> dict[int, tuple[int, int]]:
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


class HasGlyphs(Protocol):
    """An application with the characters that its terminal can draw."""

    glyphs: "Glyphs"


@runtime_checkable
class PlacesNotices(Protocol):
    """An application that shows notices on a line of the screen that is open."""

    def place_notice(self) -> None: ...


# Rounds of all widgets in which nothing was left to paint, until a held screen is painted.
QUIET_ROUNDS = 2
# Until a held screen is painted in any case.
HELD_AT_MOST_S = 0.3


class ThriftyScreen(Screen[ResultT]):
    """A screen whose updates cost few bytes; every screen of the application derives from it."""

    @cached_property
    def glyphs(self) -> "Glyphs":
        return cast(HasGlyphs, self.app).glyphs

    def __init__(self, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        # Whether widgets are painted together, at the end of `drawn_at_once`.
        self.is_drawing = False
        self._thrifty_compositor = ThriftyCompositor()
        self._compositor = self._thrifty_compositor
        self._is_held = False
        # Quiet rounds so far, and widgets that have not finished the present one.
        self._quiet_rounds = 0
        self._unfinished: set[Widget] = set()

    def hold(self) -> None:
        """Paint nothing until every widget has adapted to its size; the terminal shows what it shows.

        Textual paints once before that, with widgets that are still empty.
        """
        self._is_held = True
        self.set_timer(HELD_AT_MOST_S, self._release, name="first picture")

    def _compositor_refresh(self) -> None:
        if self._is_held:
            # Else Textual tries to paint them again at once, without end.
            self._dirty_widgets.clear()
            self._quiet_rounds = 0
            self._begin_round()
        elif not self.app._batch_count:
            # Within a batch Textual would forget what is to be painted, and send nothing; so it does with
            # widgets that were marked while a layout ran.
            self._compositor.update_widgets(self._dirty_widgets)
            super()._compositor_refresh()

    def _begin_round(self) -> None:
        """Find out when every widget has processed the messages that wait for it now."""
        unfinished = {it for it in (self, *self.walk_children(Widget)) if it.is_running}
        self._unfinished = unfinished
        for widget in tuple(unfinished):
            widget.call_later(self._finish_round, widget, unfinished)

    def _finish_round(self, widget: Widget, unfinished: set[Widget]) -> None:
        unfinished.discard(widget)
        if unfinished or unfinished is not self._unfinished or not self._is_held:
            return
        self._quiet_rounds += 1
        if self._quiet_rounds < QUIET_ROUNDS:
            self._begin_round()
        elif not self._layout_required:
            self._release()

    def _release(self) -> None:
        if self._is_held:
            self._is_held = False
            self.refresh(layout=True)

    @contextmanager
    def drawn_at_once(self) -> Iterator[None]:
        """Paint, at the end, the widgets marked inside; Textual's way takes two messages for each of them."""
        self.is_drawing = True
        try:
            yield
        finally:
            self.is_drawing = False
        if self._can_paint_now():
            self._compositor_refresh()
        else:
            self.check_idle()

    def mark(self, widget: Widget) -> None:
        """Have a widget painted at the end of `drawn_at_once`."""
        self._dirty_widgets.add(widget)

    def _can_paint_now(self) -> bool:
        """Return whether nothing but marked widgets changed, so that no layout must come first."""
        waits = self._layout_required or self._scroll_required or self._repaint_required
        if waits or self.app._batch_count or not self.is_current or not self._dirty_widgets:
            return False
        return not any(child._layout_required or child._scroll_required for child in self.children)

    def _screen_resized(self, size: Size) -> None:
        """Lay out for the terminal's size now.

        A layout before the terminal's size is known sends a message with that older size, which would cause
        the next layout, and so on.
        """
        super()._screen_resized(self.app.size)

    def on_mount(self) -> None:
        """Send everything again after a shell had the terminal."""
        self.app.app_resume_signal.subscribe(self, self._repaint)
        self.screen_layout_refresh_signal.subscribe(self, self._place_notice)

    def on_unmount(self) -> None:
        """Unsubscribe from the signal, which would keep this screen, all its widgets and strips, forever."""
        self.app.app_resume_signal.unsubscribe(self)

    def on_resize(self) -> None:
        self._thrifty_compositor.forget()
        self.refresh()

    def on_screen_suspend(self) -> None:
        """Forget the terminal's content, because another screen will write to it."""
        self._thrifty_compositor.forget()

    def on_screen_resume(self) -> None:
        """Forget the terminal's content, because another screen wrote to it."""
        self._thrifty_compositor.forget()

    def _place_notice(self, _: Screen[object]) -> None:
        """Have the notice follow its line, or another screen."""
        if isinstance(self.app, PlacesNotices):
            self.app.place_notice()

    def _repaint(self, _: "App[object]") -> None:
        self._thrifty_compositor.forget()
        self.refresh()
