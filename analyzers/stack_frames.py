"""Which frames of a Python stack matter to a person: theirs, before those of PyTorch; never our own."""

import re
from collections.abc import Sequence
from functools import cache

from ..engine.model.memory_snapshot import Frame

_TORCH = re.compile(
    r"-packages/(?:torch|functorch)/|/torch/(?:_|autograd/|cuda/|distributed/|nn/|optim/|utils/)"
)
"""Files of PyTorch, installed or in its source tree."""
_OURS = re.compile(r"/(?:engine/(?:probe|simulation|launch)|analyzers/allocator_model)/\w+\.py$")
"""Files of vramscope that run within the training process: nobody looks for these."""


def find_headline(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame outside PyTorch's own files, else the innermost, else None."""
    return next((frame for frame in frames if not is_of_torch(frame.filename)), frames[0] if frames else None)


def find_caller(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame that is no module's `forward`, of the person's own code where there is any.

    A model's own lines run in every step; who calls it tells an evaluation from the training around it.
    """
    theirs = [frame for frame in frames if not is_of_torch(frame.filename)]
    callers = [frame for frame in theirs if frame.name != "forward"]
    own = [frame for frame in callers if not _is_installed(frame.filename)]
    return next(iter(own or callers), find_headline(frames))


def keep_python(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Return the Python frames of a stack without our own, or all of them where there is none."""
    python = tuple(frame for frame in frames if is_python(frame.filename) and not is_ours(frame.filename))
    return python or frames


@cache
def is_python(filename: str) -> bool:
    """Tell a Python file, or code that Python compiled from text (`<string>`), from a C++ one."""
    return filename.endswith((".py", ".pyx")) or (filename.startswith("<") and filename.endswith(">"))


@cache
def is_of_torch(filename: str) -> bool:
    """Tell PyTorch's own files, and those that no person wrote."""
    if not is_python(filename) or filename.startswith("<frozen "):
        return True
    path = filename.replace("\\", "/")
    return _TORCH.search(path) is not None


@cache
def _is_installed(filename: str) -> bool:
    """Tell a library's file: one that an installer put where packages are."""
    return "-packages/" in filename.replace("\\", "/")


@cache
def is_ours(filename: str) -> bool:
    """Tell the files of vramscope that run within the training process."""
    return _OURS.search(filename.replace("\\", "/")) is not None
