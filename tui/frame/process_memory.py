"""Memory of this process that its screens do not need: heaps of the C library, caches of Textual and Rich.

A view that runs for hours holds little and frees much in between. With a heap for each thread, and pages
kept after a large screen, it would be several MiB larger than what it holds. Caches of Textual and Rich, each
bounded, together grow by as much again. C libraries other than GNU's keep their heap as it is.
"""

import ctypes
import sys
from functools import _lru_cache_wrapper, cache

# `mallopt(3)`: the most heaps; without it, each thread gets its own, up to eight a processor.
_M_ARENA_MAX = -8
_LIBRARIES = ("textual", "rich")


def share_one_heap() -> None:
    """Let all threads allocate from one heap; call it before they are started."""
    library = _find_library()
    if library is not None:
        library.mallopt(_M_ARENA_MAX, 1)


def return_free_memory() -> None:
    """Return free pages to the system (`malloc_trim(3)`); takes about a millisecond."""
    library = _find_library()
    if library is not None:
        library.malloc_trim(0)


def clear_library_caches() -> None:
    """Clear the caches of Textual and Rich for regions, styles and texts; drawing fills them again."""
    for function in _find_cached_functions():
        function.cache_clear()


@cache
def _find_cached_functions() -> "frozenset[_lru_cache_wrapper[object]]":
    """Return the bounded cached functions and methods of modules loaded by now.

    Unbounded ones cache classes only, and there are few.
    """
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] in _LIBRARIES]
    members = [member for module in modules for member in vars(module).values()]
    classes = [member for member in members if isinstance(member, type)]
    members += [member for each in classes for member in vars(each).values()]
    functions = (getattr(it, "__func__", getattr(it, "fget", it)) for it in members)
    cached = {it for it in functions if isinstance(it, _lru_cache_wrapper)}
    return frozenset(it for it in cached if it.cache_info().maxsize is not None)


@cache
def _find_library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(None)
        library.mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
        library.malloc_trim.argtypes = (ctypes.c_size_t,)
    except (OSError, AttributeError):
        return None
    return library
