"""The kept inputs of each target: a few that together execute what fuzzing reached, replayed by the suite.

One file a target, a MessagePack list under gzip. `python -m tests.fuzz --keep` writes them.
"""

import gzip
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

FOLDER = Path(__file__).parent / "corpus"
MOST_INPUTS = 200
MOST_BYTES = 1 << 14
"""Of an input; a larger one costs more to keep and to replay than it shows."""
_ROOT = str(Path(__file__).resolve().parents[2])
_OURS = tuple(f"{_ROOT}/{folder}/" for folder in ("analyzers", "engine", "exporters", "tui", "vramscope"))

Arc = tuple[str, int, int]


def load(name: str) -> list[bytes]:
    path = FOLDER / f"{name}.gz"
    return (
        msgspec.msgpack.decode(gzip.decompress(path.read_bytes()), type=list[bytes]) if path.exists() else []
    )


def save(name: str, inputs: list[bytes]) -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.gz").write_bytes(gzip.compress(msgspec.msgpack.encode(inputs), mtime=0))


def choose(run: Callable[[bytes], None], inputs: Iterable[bytes]) -> list[bytes]:
    """Return the inputs that execute what no input chosen before them did, the shortest first."""
    reached: set[Arc] = set()
    chosen: list[bytes] = []
    for data in sorted({it for it in inputs if len(it) <= MOST_BYTES}, key=lambda it: (len(it), it)):
        arcs = _trace(run, data)
        if not arcs <= reached:
            reached |= arcs
            chosen.append(data)
        if len(chosen) == MOST_INPUTS:
            break
    return chosen


def _trace(run: Callable[[bytes], None], data: bytes) -> set[Arc]:
    """Run an input; return each pair of lines of ours that follow each other in a call."""
    arcs: set[Arc] = set()

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(_OURS):
            return None
        last = 0

        def step(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal last
            if event == "line":
                arcs.add((file, last, frame.f_lineno))
                last = frame.f_lineno
            return step

        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        run(data)
    finally:
        sys.settrace(before)
    return arcs
