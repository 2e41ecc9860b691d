"""Memory that the C library holds for this process: one heap for all threads, and free pages given back.

A view that runs for hours holds little and frees much in between. With a heap for each thread, and pages
kept that a large screen needed once, it would be several MiB larger than what it holds. Both calls are of the
GNU C library; where it is another, nothing happens.
"""

import ctypes
from functools import cache

_M_ARENA_MAX = -8
"""`mallopt(3)`: the most heaps; each thread gets one of its own up to eight a processor otherwise."""


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


@cache
def _find_library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(None)
        library.mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
        library.malloc_trim.argtypes = (ctypes.c_size_t,)
    except (OSError, AttributeError):
        return None
    return library
