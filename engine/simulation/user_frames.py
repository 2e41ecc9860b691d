"""The user's frames of an allocation that is recorded: without the allocator model, which is innermost."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Callable

from .protocols import Allocator
from .stacks import MOST_STACKS, Stack


class UserFrames:
    """Returns the frames of the calling thread without those of the model; one list for one stack."""

    def __init__(self, allocator: Allocator, capture: Callable[[], Stack]) -> None:
        # The model is loaded by path, so its files are known by their folder, whatever its name is.
        self._folder = str(Path(inspect.getfile(type(allocator))).parent)
        self._capture = capture
        self._known: dict[Stack, list[dict[str, Any]]] = {}

    def __call__(self) -> list[dict[str, Any]]:
        """Return the frames, innermost first."""
        stack = self._capture()
        frames = self._known.get(stack)
        if frames is None:
            if len(self._known) >= MOST_STACKS:
                self._known.clear()
            frames = self._known[stack] = [
                frame for frame in stack.frames if not str(frame["filename"]).startswith(self._folder)
            ]
        return frames
