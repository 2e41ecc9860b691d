"""Decoders that two threads make at once."""

import subprocess
import sys

from tests.structure.tree import ROOT

PROGRAM = """
import sys
import threading

sys.path.insert(0, {root!r})
import msgspec
from vramscope.engine.soundness import make_msgpack_decoder

is_begun, is_done = threading.Event(), threading.Event()


def pause():
    is_begun.set()
    is_done.wait(0.3)  # with the lock the other thread cannot be done before
    return "paused"


class Inner(msgspec.Struct):
    number: int
    word: "Annotated[str, pause()]"


class Outer(msgspec.Struct):
    inner: Inner


from typing import Annotated


def read():
    is_begun.wait()
    found = make_msgpack_decoder(Outer).decode(msgspec.msgpack.encode(Outer(Inner(7, "x"))))
    is_done.set()
    print(found.inner.word)


thread = threading.Thread(target=read)
thread.start()
make_msgpack_decoder(Outer)
thread.join()
"""


def test_two_threads_that_make_decoders_of_one_struct_at_once_both_read() -> None:
    program = PROGRAM.format(root=str(ROOT))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "x\n"), done.stderr
