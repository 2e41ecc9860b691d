"""The heap of the view: one for all threads, and free pages go back."""

import platform
import subprocess
import sys
import textwrap

import pytest
from rich.cells import cached_cell_len, cell_len
from textual.color import Color
from textual.geometry import Region

from vramscope.tui.frame.process_memory import clear_library_caches

CACHES = (cached_cell_len, Region.intersection, Color.parse)
COUNT_HEAPS = """
import ctypes, threading
from vramscope.tui.frame.process_memory import return_free_memory, share_one_heap

if {is_shared}:
    share_one_heap()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
together = threading.Barrier(5)
def allocate():
    library.malloc(4096)
    together.wait()
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
together.wait()
library.fdopen.restype = ctypes.c_void_p
stream = library.fdopen(1, b"w")
library.malloc_info(0, ctypes.c_void_p(stream))
library.fflush(ctypes.c_void_p(stream))
together.wait()
return_free_memory()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="heaps a thread are of the GNU C library")
@pytest.mark.parametrize("is_shared", [True, False])
def test_all_threads_allocate_from_one_heap(*, is_shared: bool) -> None:
    program = textwrap.dedent(COUNT_HEAPS.format(is_shared=is_shared))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (ended.stdout.count("<heap nr=") == 1) == is_shared


def test_caches_of_the_libraries_that_draw_are_emptied() -> None:
    cell_len("a text that was drawn once")
    Region(0, 0, 10, 10).intersection(Region(5, 5, 10, 10))
    Color.parse("#123456")
    before = [cached.cache_info().currsize for cached in CACHES]

    clear_library_caches()

    assert all(before)
    assert [cached.cache_info().currsize for cached in CACHES] == [0, 0, 0]
