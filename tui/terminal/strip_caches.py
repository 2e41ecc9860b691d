"""Cheaper caches of strips: made when they are first used, and none where a widget keeps its strips itself.

Textual 8.2.8 makes seven caches, a kilobyte, for each `Strip`; most strips are drawn once and use one or
none. Making them took a fifth of the time in which a screen opens.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MemberDescriptorType
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual._styles_cache import StylesCache
from textual.cache import FIFOCache
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from ..draw.spans import Line, Role, Span

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


class _Setting(NamedTuple):
    """What becomes of the lines of a widget: padding goes around them, and all of it through the filters."""

    left: list[Segment]
    right: list[Segment]
    # Cells between the two.
    width: int
    # Of the padding.
    style: Style
    filters: Sequence[LineFilter]
    background: Color

    def filter(self, segments: list[Segment]) -> list[Segment]:
        """Return what the filters make of segments; each of them replaces one by one."""
        for line_filter in self.filters:
            segments = line_filter.apply(segments, self.background)
        return segments


class _KeptCache(StylesCache):
    """For a widget that keeps its lines: they are passed on as they are.

    Textual composes each line again from borders, padding and content, and keeps it a second time. Where the
    widget has no borders and is opaque, the line is its content.
    """

    def __init__(self) -> None:
        super().__init__()
        self._setting: _Setting
        self._set_by: tuple[object, ...] = ()

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
        set_by = (base, background, size, padding, *filters)
        if set_by != self._set_by:
            self._set_by = set_by
            style = self.get_inner_outer(base, background)[0].rich_style
            left, right = ([Segment(" " * it, style)] if it else [] for it in (padding.left, padding.right))
            width = max(0, size.width - padding.width)
            self._setting = _Setting(left, right, width, style, filters, background)
            self.forget()
        strips = self._list_filtered(widget, crop.line_range)
        x1, x2 = crop.column_span
        return [strip.crop(x1, x2) for strip in strips] if (x1, x2) != (0, size.width) else strips

    def forget(self) -> None:
        """Forget all lines, because they look otherwise now."""
        raise NotImplementedError

    def _list_filtered(self, widget: Widget, rows: Sequence[int]) -> list[Strip]:
        """Return rows of the widget with what is around them."""
        raise NotImplementedError


class KeptLinesCache(_KeptCache):
    """Only the part of a line that changed goes through the filters.

    Args:
        list_strips: Returns what the widget's `render_line` would of each of some rows.
    """

    def __init__(self, list_strips: Callable[[Sequence[int]], list[Strip]]) -> None:
        super().__init__()
        self._list_strips = list_strips
        # Each line before and after the filters.
        self._filtered: dict[int, tuple[Strip, Strip]] = {}

    def forget(self) -> None:
        self._filtered.clear()

    def _list_filtered(self, widget: Widget, rows: Sequence[int]) -> list[Strip]:
        left, right, width, style, *_ = self._setting
        lines = self._list_strips(rows)
        if left or right:
            fitted = [line.adjust_cell_length(width, style) for line in lines]
            lines = [Strip([*left, *line, *right]) for line in fitted]
        return [self._filter(y, line) for y, line in zip(rows, lines, strict=True)]

    def _filter(self, y: int, strip: Strip) -> Strip:
        before, after = self._filtered.get(y, (None, None))
        if before is strip and after is not None:
            return after
        segments = strip._segments
        start = stop = 0
        known: list[Segment] = []
        if before is not None and after is not None:
            start, stop = find_change(before._segments, segments)
            known = after._segments
        changed = self._setting.filter(segments[start : len(segments) - stop])
        made = Strip([*known[:start], *changed, *known[len(known) - stop :]], strip._cell_length)
        self._filtered[y] = strip, made
        return made


# Different spans of one widget that are kept; when there are more, all are made again as they come.
MOST_SEGMENTS = 1024


class FilteredSegments(dict[Span, Segment]):
    """The segment of each span as it comes out of the filters, made when it is first looked up."""

    def __init__(self, looks: Mapping[Role, Style], setting: _Setting) -> None:
        super().__init__()
        self._looks = looks
        self._setting = setting

    def __missing__(self, span: Span) -> Segment:
        if len(self) >= MOST_SEGMENTS:
            self.clear()
        (self[span],) = self._setting.filter([Segment(span.text, self._looks[span.role])])
        return self[span]


class KeptSpansCache(_KeptCache):
    """For lines of spans that mostly come again: each is styled and filtered once.

    Args:
        list_lines: Returns rows of the window, None for one that is missing, and the cells of each other.
        find_looks: Returns how each role looks on the widget.
    """

    def __init__(
        self,
        list_lines: Callable[[Sequence[int]], tuple[list[Line | None], int]],
        find_looks: Callable[[], Mapping[Role, Style]],
    ) -> None:
        super().__init__()
        self._list_lines = list_lines
        self._find_looks = find_looks
        self._segments: FilteredSegments | None = None
        self._cells = 0
        self._kept: dict[int, tuple[Line | None, Strip]] = {}

    def forget(self) -> None:
        self._segments = None
        self._kept.clear()

    def _list_filtered(self, widget: Widget, rows: Sequence[int]) -> list[Strip]:
        lines, self._cells = self._list_lines(rows)
        kept = self._kept
        strips = []
        for y, line in zip(rows, lines, strict=True):
            known = kept.get(y)
            if known is None or known[0] is not line:
                known = kept[y] = line, self._make_strip(widget, line)
            strips.append(known[1])
        return strips

    def _make_strip(self, widget: Widget, line: Line | None) -> Strip:
        """Return a line as wide as the widget: it may be narrower, as next to a scroll bar."""
        left, right, width, *_ = setting = self._setting
        if self._segments is None:
            self._segments = FilteredSegments(self._find_looks(), setting)
        segments: Iterable[Segment] = map(self._segments.__getitem__, line or ())
        missing = width - (self._cells if line is not None else 0)
        if not (left or right or missing):
            return Strip(segments)
        if missing < 0:
            segments = Strip(segments).crop(0, width)
        rest = setting.filter([Segment(" " * missing, widget.rich_style)]) if missing > 0 else []
        return Strip([*setting.filter(left), *segments, *rest, *setting.filter(right)])


def _is_link_pointed_at(widget: Widget) -> bool:
    """Return whether a piece of text that acts on clicks may have to be drawn as under the pointer."""
    return widget.auto_links and bool(widget.hover_style._link_id)
