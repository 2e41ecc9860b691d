"""Strips without caches that nobody uses are strips as Textual makes them."""

import importlib.util
from types import ModuleType

import textual.strip
from rich.segment import Segment
from rich.style import Style
from textual.cache import FIFOCache
from textual.strip import Strip

from vramscope.tui.terminal import compositor  # noqa: F401 - makes caches lazy
from vramscope.tui.terminal.strip_caches import CACHE_SIZES, LazyCache

SEGMENTS = [Segment("ab ", Style(color="red")), Segment("漢字"), Segment("é", Style(bold=True))]


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
