"""Cheaper caches of strips: made when they are first used, and none where a widget keeps its strips itself.

Textual 8.2.8 makes seven caches, a kilobyte, for each `Strip`; most strips are drawn once and use one or
none. Making them took a fifth of the time in which a screen opens.
"""

from collections.abc import Callable, Iterable, Sequence
from types import MemberDescriptorType

from rich.segment import Segment
from rich.style import Style
from textual._styles_cache import StylesCache
from textual.cache import FIFOCache
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

Cache = FIFOCache[object, object]

# As in `Strip.__init__`; a test compares.
CACHE_SIZES = {
    "_divide_cache": 4,
    "_crop_cache": 16,
    "_style_cache": 16,
    "_filter_cache": 4,
    "_line_length_cache": 4,
    "_crop_extend_cache": 4,
    "_offsets_cache": 4,
}


class LazyCache:
    """A slot of `Strip` that is filled when it is first read."""

    def __init__(self, slot: MemberDescriptorType, size: int) -> None:
        self._read = slot.__get__
        self._write = slot.__set__
        self._size = size

    def __get__(self, strip: Strip, kind: type[Strip] | None = None) -> Cache:
        try:
            cache: Cache = self._read(strip, kind)
        except AttributeError:
            cache = FIFOCache(self._size)
            self._write(strip, cache)
        return cache

    def __set__(self, strip: Strip, cache: Cache) -> None:
        self._write(strip, cache)


def _init_without_caches(self: Strip, segments: Iterable[Segment], cell_length: int | None = None) -> None:
    self._segments = list(segments)
    self._cell_length = cell_length
    self._render_cache = None
    self._link_ids = None
    self._cell_count = None


def make_caches_lazy() -> None:
    """Let all strips of this process make their caches when they are first used; again it does nothing."""
    for name, size in CACHE_SIZES.items():
        slot = Strip.__dict__[name]
        if isinstance(slot, MemberDescriptorType):
            setattr(Strip, name, LazyCache(slot, size))
    Strip.__init__ = _init_without_caches  # type: ignore[method-assign]


# What Textual draws around the content of a widget or over it.
_DRAWN_BY_STYLES = ("outline_top", "outline_right", "outline_bottom", "outline_left", "hatch", "tint")


def find_change(old: Sequence[Segment], new: Sequence[Segment]) -> tuple[int, int]:
    """Return how many segments are the same at the beginning of two lines, and how many more at their end."""
    most = min(len(old), len(new))
    start = 0
    while start < most and old[start] == new[start]:
        start += 1
    most -= start
    stop = 0
    while stop < most and old[-1 - stop] == new[-1 - stop]:
        stop += 1
    return start, stop


class KeptLinesCache(StylesCache):
    """For a widget that keeps the strips of its lines: they are passed on as they are.

    Textual composes each line again from borders, padding and content, and keeps it a second time. Where the
    widget has neither borders nor padding and is opaque, the line is the content. Of a line that changed in
    part only that part goes through the filters, all of which replace one segment by one.

    Args:
        list_strips: Returns what the widget's `render_line` would of each of some rows.
    """

    def __init__(self, list_strips: Callable[[Sequence[int]], list[Strip]]) -> None:
        super().__init__()
        self._list_strips = list_strips
        # Each line before and after the filters.
        self._filtered: dict[int, tuple[Strip, Strip]] = {}
        self._filtered_by: tuple[object, ...] = ()

    def render_widget(self, widget: Widget, crop: Region) -> list[Strip]:
        styles = widget.styles
        padding = styles.padding
        has_more = styles.gutter != padding or padding.top or padding.bottom
        if has_more or styles.has_any_rules(*_DRAWN_BY_STYLES) or _is_link_pointed_at(widget):
            return super().render_widget(widget, crop)
        if widget.opacity != 1.0 or styles.text_opacity != 1.0:
            return super().render_widget(widget, crop)
        base, background = widget.background_colors
        filters = widget.get_line_filters()
        size = widget.region.size
        x1, x2 = crop.column_span
        is_cropped = (x1, x2) != (0, size.width)
        filtered_by = (base, background, size, padding, *filters)
        if filtered_by != self._filtered_by:
            self._filtered_by = filtered_by
            self._filtered.clear()
        rows = crop.line_range
        lines = self._list_strips(rows)
        if padding.left or padding.right:
            style = self.get_inner_outer(base, background)[0].rich_style
            ends = Segment(" " * padding.left, style), Segment(" " * padding.right, style)
            lines = [_pad(line, ends, size.width, style) for line in lines]
        strips = [self._filter(y, strip, filters, background) for y, strip in zip(rows, lines, strict=True)]
        return [strip.crop(x1, x2) for strip in strips] if is_cropped else strips

    def _filter(self, y: int, strip: Strip, filters: Sequence[LineFilter], background: Color) -> Strip:
        before, after = self._filtered.get(y, (None, None))
        if before is strip and after is not None:
            return after
        segments = strip._segments
        start = stop = 0
        known: list[Segment] = []
        if before is not None and after is not None:
            start, stop = find_change(before._segments, segments)
            known = after._segments
        changed = segments[start : len(segments) - stop]
        for line_filter in filters:
            changed = line_filter.apply(changed, background)
        made = Strip([*known[:start], *changed, *known[len(known) - stop :]], strip._cell_length)
        self._filtered[y] = strip, made
        return made


def _is_link_pointed_at(widget: Widget) -> bool:
    """Return whether a piece of text that acts on clicks may have to be drawn as under the pointer."""
    return widget.auto_links and bool(widget.hover_style._link_id)


def _pad(line: Strip, ends: tuple[Segment, Segment], width: int, style: Style) -> Strip:
    left, right = ends
    line = line.adjust_cell_length(max(0, width - len(left.text) - len(right.text)), style)
    before = [left] if left.text else []
    return Strip([*before, *line._segments, *([right] if right.text else [])], width)
