"""Strips whose caches are made when they are first used.

Textual 8.2.8 makes seven caches, a kilobyte, for each `Strip`; most strips are drawn once and use one or
none. Making them took a fifth of the time in which a screen opens.
"""

from collections.abc import Iterable
from types import MemberDescriptorType

from rich.segment import Segment
from textual.cache import FIFOCache
from textual.strip import Strip

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
