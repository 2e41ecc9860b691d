"""What this process holds beyond what it shows: heaps of the C library, caches of the libraries that draw.

A view that runs for hours holds little and frees much in between. With a heap for each thread, and pages
kept that a large screen needed once, it would be several MiB larger than what it holds. Caches of Textual and
Rich, each bounded, together grow by as much again. Other C libraries than GNU's keep their heap as it is.
"""

import ctypes
import sys
from functools import _lru_cache_wrapper, cache

# `mallopt(3)`: the most heaps; each thread gets one of its own up to eight a processor otherwise.
_M_ARENA_MAX = -8
_LIBRARIES = ("textual", "rich")


def share_one_heap() -> None:
    """Let all threads allocate from one heap; before they are started."""
    library = _find_library()
    if library is not None:
        library.mallopt(_M_ARENA_MAX, 1)


def return_free_memory() -> None:
    """Give pages that hold nothing back to the system (`malloc_trim(3)`); takes about a millisecond."""
    library = _find_library()
    if library is not None:
        library.malloc_trim(0)


def clear_library_caches() -> None:
    """Forget what Textual and Rich remember of regions, styles and texts; what is drawn is cached again."""
    for function in _find_cached_functions():
        function.cache_clear()


@cache
def _find_cached_functions() -> "frozenset[_lru_cache_wrapper[object]]":
    """Return the functions and methods of modules loaded by now that remember up to some number of results.

    Those without a bound are asked for classes only, of which there are few.
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
