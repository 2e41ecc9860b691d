"""Cheaper caches of strips: made when they are first used, and none where a widget keeps its strips itself.

Textual 8.2.8 makes seven caches, a kilobyte, for each `Strip`; most strips are drawn once and use one or
none. Making them took a fifth of the time in which a screen opens.
"""

from collections.abc import Iterable
from types import MemberDescriptorType

from rich.segment import Segment
from textual._styles_cache import StylesCache
from textual.cache import FIFOCache
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


class KeptLinesCache(StylesCache):
    """For a widget that keeps the strips of its lines: they are passed on as they are.

    Textual composes each line again from borders, padding and content, and keeps it a second time. Where the
    widget has neither borders nor padding and is opaque, the line is the content.
    """

    def render_widget(self, widget: Widget, crop: Region) -> list[Strip]:
        styles = widget.styles
        has_more = any(styles.gutter) or styles.has_any_rules(*_DRAWN_BY_STYLES)
        if has_more or widget.opacity != 1.0 or styles.text_opacity != 1.0:
            return super().render_widget(widget, crop)
        background = widget.background_colors[1]
        filters = widget.get_line_filters()
        x1, x2 = crop.column_span
        is_cropped = (x1, x2) != (0, widget.region.width)
        strips = []
        for y in crop.line_range:
            strip = widget.render_line(y)
            for line_filter in filters:
                strip = strip.apply_filter(line_filter, background)
            strips.append(strip.crop(x1, x2) if is_cropped else strip)
        return strips
