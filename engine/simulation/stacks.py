"""Who asked for memory: the user's frames of the calling thread, walked cheaply and shared between blocks."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType

import torch

MOST_FRAMES = 12
MOST_FRAMES_WALKED = 64

MOST_STACKS = 8192
"""Stacks kept to be shared; beyond it all are forgotten, as a program that makes its code anew never ends."""
MOST_FILES = 8192

Position = tuple[CodeType, int]

_HERE = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)
_is_user_file: dict[str, bool] = {}
_known: dict[tuple[int, ...], Stack] = {}
"""By the ids of code objects and the offsets in them. Code compares by value and leaves its file out, so that
like functions of two files are equal; an id is unique while the stack that is kept here holds its code."""


class Stack:
    """Frames of one call, innermost first; line numbers are worked out when somebody asks."""

    __slots__ = ("_frames", "_positions")

    def __init__(self, positions: tuple[Position, ...]) -> None:
        self._positions = positions
        self._frames: list[dict[str, object]] | None = None

    @property
    def frames(self) -> list[dict[str, object]]:
        """The frames as PyTorch's snapshots spell them: `filename`, `line`, `name`."""
        if self._frames is None:
            self._frames = [
                {"filename": code.co_filename, "line": _line_at(code, offset), "name": code.co_name}
                for code, offset in self._positions
            ]
        return self._frames


def capture_stack() -> Stack:
    """Return the stack of the calling thread without the frames of torch and of this package.

    Where torch is called by nobody else (a thread of its own) its frames are all there is, and none is kept.
    """
    codes: list[CodeType] = []
    key: list[int] = []
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MOST_FRAMES_WALKED):
        if frame is None or len(codes) == MOST_FRAMES:
            break
        code = frame.f_code
        is_user = _is_user_file.get(code.co_filename)
        if is_user is None:
            is_user = _judge_file(code.co_filename)
        if is_user:
            codes.append(code)
            key += (id(code), frame.f_lasti)
        frame = frame.f_back
    place = tuple(key)
    stack = _known.get(place)
    return _keep(place, codes) if stack is None else stack


def _judge_file(name: str) -> bool:
    """Return whether a file is of neither torch nor this package, and remember it."""
    if len(_is_user_file) >= MOST_FILES:
        _is_user_file.clear()
    is_user = _is_user_file[name] = not name.startswith((_HERE, _TORCH, "<frozen"))
    return is_user


def _keep(key: tuple[int, ...], codes: list[CodeType]) -> Stack:
    """Return a stack that is new here, and keep it for the next block of the same place."""
    if len(_known) >= MOST_STACKS:
        _known.clear()
    stack = _known[key] = Stack(tuple(zip(codes, key[1::2])))
    return stack


def _line_at(code: CodeType, offset: int) -> int:
    """Return the line of the instruction at an offset in bytes."""
    from dis import findlinestarts

    line = code.co_firstlineno
    for start, number in findlinestarts(code):
        if start > offset:
            break
        line = number or line
    return line
