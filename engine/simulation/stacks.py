"""Who asked for memory: the user's frames of the calling thread, walked cheaply and shared between blocks."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType

import torch

MOST_FRAMES = 12
MOST_FRAMES_WALKED = 64

Position = tuple[CodeType, int]

_HERE = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)
_is_user_code: dict[CodeType, bool] = {}
_known: dict[tuple[Position, ...], Stack] = {}


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
    positions: list[Position] = []
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MOST_FRAMES_WALKED):
        if frame is None or len(positions) == MOST_FRAMES:
            break
        code = frame.f_code
        is_user = _is_user_code.get(code)
        if is_user is None:
            is_user = _is_user_code[code] = not code.co_filename.startswith((_HERE, _TORCH, "<frozen"))
        if is_user:
            positions.append((code, frame.f_lasti))
        frame = frame.f_back
    key = tuple(positions)
    stack = _known.get(key)
    if stack is None:
        stack = _known[key] = Stack(key)
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
