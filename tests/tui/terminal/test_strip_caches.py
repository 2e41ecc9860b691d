"""Strips without caches that nobody uses are strips as Textual makes them."""

import importlib.util
import random
from collections.abc import Sequence
from types import ModuleType

import textual.strip
from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.cache import FIFOCache
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from vramscope.tui.draw.spans import ROLES, Line, Role, Span
from vramscope.tui.frame.theme import to_strip
from vramscope.tui.terminal import compositor  # noqa: F401 - makes caches lazy
from vramscope.tui.terminal.strip_caches import (
    CACHE_SIZES,
    MOST_SEGMENTS,
    KeptLinesCache,
    KeptSpansCache,
    LazyCache,
)

SEGMENTS = [Segment("ab ", Style(color="red")), Segment("漢字"), Segment("é", Style(bold=True))]


class Marking(LineFilter):
    """Rewrites each segment, and counts how many it was given."""

    count = 0

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        self.count += len(segments)
        return [Segment(segment.text.upper(), segment.style) for segment in segments]


class Ticker(Widget):
    """One line of numbers, of which one changes at a time."""

    DEFAULT_CSS = "Ticker { height: 1; padding: 0 2; background: #203040; }"

    def __init__(self, *, is_kept: bool) -> None:
        super().__init__()
        if is_kept:
            self._styles_cache = KeptLinesCache(self.list_strips)
        self.segments = [Segment(f"value {number:03d} ") for number in range(6)]

    def list_strips(self, rows: Sequence[int]) -> list[Strip]:
        return [self.render_line(y) for y in rows]

    def render_line(self, y: int) -> Strip:
        return Strip(self.segments)


# On the widget's own background, as `find_looks` returns them.
LOOKS: dict[Role, Style] = {
    role: Style(color=f"#{at:02d}80a0", bgcolor="#203040") for at, role in enumerate(ROLES)
}


class Page(Widget):
    """Rows of spans, each of so many cells; None where a row is missing."""

    DEFAULT_CSS = "Page { height: 3; padding: 0 2; background: #203040; }"

    def __init__(self, *, is_kept: bool) -> None:
        super().__init__()
        if is_kept:
            self._styles_cache = KeptSpansCache(
                lambda rows: ([self.rows[y] for y in rows], self.cells), self.find
            )
        self.rows: list[Line | None] = [None] * 3
        self.cells = 0

    def find(self) -> dict[Role, Style]:
        return LOOKS

    def render_line(self, y: int) -> Strip:
        return to_strip(self.rows[y] or (), LOOKS).adjust_cell_length(self.size.width, self.rich_style)


class Tickers(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.marking = Marking()

    def compose(self) -> ComposeResult:
        yield Ticker(is_kept=True)
        yield Ticker(is_kept=False)
        yield Page(is_kept=True)
        yield Page(is_kept=False)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [self.marking]


async def test_a_kept_line_is_what_textual_makes_of_it_and_only_what_changed_is_filtered() -> None:
    rng = random.Random(7)
    app = Tickers()
    async with app.run_test(size=(60, 4)) as pilot:
        await pilot.pause()
        kept, plain = app.query(Ticker)
        crop = Region(0, 0, 60, 1)
        for tick in range(20):
            at, text = rng.randrange(6), f"value {'xyz'[tick % 3]}{tick:02d} "
            for ticker in (kept, plain):
                ticker.segments = list(ticker.segments)
                ticker.segments[at] = Segment(text)
                ticker._styles_cache.set_dirty(crop)
            app.marking.count = 0
            shown = kept.render_lines(crop)
            assert app.marking.count <= (8 if tick == 0 else 2)
            assert [list(strip) for strip in shown] == [list(strip) for strip in plain.render_lines(crop)]
        assert [list(it) for it in kept.render_lines(Region(3, 0, 9, 1))] == [
            list(it) for it in plain.render_lines(Region(3, 0, 9, 1))
        ]


async def test_rows_of_spans_look_as_textual_draws_them_and_each_span_is_filtered_once() -> None:
    rng = random.Random(7)
    app = Tickers()
    async with app.run_test(size=(24, 12)) as pilot:
        await pilot.pause()
        kept, plain = app.query(Page)
        crop = Region(0, 0, 24, 3)
        seen: set[Span] = set()
        for cells in (20, 20, 20, 15, 20, 25, 20):  # as wide as the widget, narrower, wider
            for _ in range(5):
                spans = [
                    Span(rng.choice(["abc d", "ef ▒▒", " 漢字"]), rng.choice(ROLES[:4]))
                    for _ in range(cells // 5)
                ]
                new = set(spans) - seen
                seen |= new
                at = rng.randrange(3)
                for page in (kept, plain):
                    page.rows = [row if page.cells == cells else None for row in page.rows]
                    page.cells = cells
                    page.rows[at] = spans
                    page._styles_cache.set_dirty(crop)
                app.marking.count = 0
                shown = kept.render_lines(crop)
                assert app.marking.count <= len(new) + 3 * 3, "what is new, and what fills three rows"
                expected = plain.render_lines(crop)
                assert [list(it.simplify()) for it in shown] == [list(it.simplify()) for it in expected]
                assert {it.cell_length for it in shown} == {24}


async def test_spans_that_come_only_once_are_not_kept_for_ever() -> None:
    app = Tickers()
    async with app.run_test(size=(24, 12)) as pilot:
        await pilot.pause()
        page = app.query(Page).first()
        page.cells = 20
        for number in range(MOST_SEGMENTS + 10):
            page.rows[0] = [Span(f"{number:020d}")]
            page.render_lines(Region(0, 0, 24, 1))
        cache = page._styles_cache
        assert isinstance(cache, KeptSpansCache)
        assert cache._segments is not None
        assert len(cache._segments) < 100


def load_untouched() -> ModuleType:
    """Return the module of strips once more, as Textual has it."""
    spec = importlib.util.spec_from_file_location("untouched_strip", textual.strip.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_caches_have_the_names_and_sizes_of_textual() -> None:
    own = load_untouched().Strip(SEGMENTS)
    caches = {name: getattr(own, name) for name in own.__slots__}
    sizes = {name: it._maxsize for name, it in caches.items() if isinstance(it, FIFOCache)}
    assert sizes == CACHE_SIZES
    assert {name: getattr(Strip(SEGMENTS), name)._maxsize for name in sizes} == sizes
    rest = {name: it for name, it in caches.items() if name not in sizes}
    assert {name: getattr(Strip(SEGMENTS), name) for name in rest} == rest


def test_a_strip_of_the_screens_makes_no_cache_before_it_is_used() -> None:
    strip = Strip(SEGMENTS)
    crop = Strip.__dict__["_crop_cache"]
    assert isinstance(crop, LazyCache)
    assert not any(_is_made(strip, name) for name in CACHE_SIZES)
    assert strip.crop(1, 4) is strip.crop(1, 4)
    assert [name for name in CACHE_SIZES if _is_made(strip, name)] == ["_crop_cache"]


def _is_made(strip: Strip, name: str) -> bool:
    late = Strip.__dict__[name]
    try:
        late._read(strip, Strip)
    except AttributeError:
        return False
    return True


def test_all_that_is_done_with_strips_comes_out_the_same() -> None:
    kinds = Strip, load_untouched().Strip
    ours, own = (
        [
            list(kind(SEGMENTS)),
            list(kind(SEGMENTS).crop(1, 5)),
            [list(it) for it in kind(SEGMENTS).divide([2, 8])],
            list(kind(SEGMENTS).apply_style(Style(italic=True))),
            list(kind(SEGMENTS).adjust_cell_length(12)),
            list(kind(SEGMENTS).crop_extend(2, 14, None)),
            kind(SEGMENTS, 8) == kind(SEGMENTS, 8),
            kind(SEGMENTS).cell_length,
            kind(SEGMENTS).text,
        ]
        for kind in kinds
    )
    assert ours == own
