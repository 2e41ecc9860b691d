"""Segments of an allocator as tables, and the frame of a stack that a person calls theirs."""

import re
from collections.abc import Sequence
from functools import cache

import msgspec

from ..engine.model import Segment, SegmentMap
from ..engine.model.memory_snapshot import Frame
from ..engine.model.sample import AWAITING_FREE, FREE
from ..engine.units import MIB

# The segments of an allocator summed up: how many, how much is live, free and stranded.

# The least that an expandable segment of each pool maps and unmaps, counted from the segment's start
# (`kSmallBuffer` and `kLargeBuffer` of PyTorch's CUDACachingAllocator).

PAGE_BYTES = {"small": 2 * MIB, "large": 20 * MIB}


class SegmentSummary(msgspec.Struct, frozen=True):
    # Segments of the large pool, private pools left out.
    large: int
    small: int
    # Segments of private pools, as CUDA graphs use them.
    private: int
    total_bytes: int
    live_bytes: int
    # Freed by the program, and another stream may still use it; not part of the live bytes.
    awaiting_bytes: int
    free_bytes: int
    # Free and not to be given back: a neighbour in the segment lives, see `find_stranded`.
    stranded_bytes: int
    stranded_segments: int
    # Largest free block outside private pools, 0 without one.
    largest_free_bytes: int


def summarize_segments(segment_map: SegmentMap) -> SegmentSummary:
    segments = segment_map.segments
    shared = [segment for segment in segments if not segment.is_private]
    stranded = [find_stranded(segment) for segment in segments]
    free, awaiting = (
        sum(size for segment in segments for size, found in segment.blocks if found == state)
        for state in (FREE, AWAITING_FREE)
    )
    total = sum(segment.total_bytes for segment in segments)
    free_blocks = [size for segment in shared for size, state in segment.blocks if state == FREE]
    return SegmentSummary(
        large=sum(segment.pool == "large" for segment in shared),
        small=sum(segment.pool == "small" for segment in shared),
        private=len(segments) - len(shared),
        total_bytes=total,
        live_bytes=total - free - awaiting,
        awaiting_bytes=awaiting,
        free_bytes=free,
        stranded_bytes=sum(stranded),
        stranded_segments=sum(found > 0 for found in stranded),
        largest_free_bytes=max(free_blocks, default=0),
    )


def find_stranded(segment: Segment) -> int:
    """Return the free bytes of a segment that cannot be given back, because a block in it is in use.

    Whole free pages of an expandable segment can be given back, so only what is free in pages with other
    content counts.
    """
    if all(state == FREE for _, state in segment.blocks):
        return 0
    page_bytes = PAGE_BYTES[segment.pool] if segment.is_expandable else None
    stranded = 0
    offset = 0
    for size_bytes, state in segment.blocks:
        if state == FREE:
            stranded += size_bytes - (_whole_pages(offset, size_bytes, page_bytes) if page_bytes else 0)
        offset += size_bytes
    return stranded


def _whole_pages(offset: int, size_bytes: int, page_bytes: int) -> int:
    """Return the bytes of a block that are whole pages; pages are counted from the start of the segment."""
    first = -(-offset // page_bytes)
    end = (offset + size_bytes) // page_bytes
    return max(0, end - first) * page_bytes


# Which frames of a Python stack matter to a person: theirs, before those of PyTorch; never our own.

# Files of PyTorch, installed or in its source tree.

_TORCH = re.compile(
    r"-packages/(?:torch|functorch)/|/torch/(?:_|autograd/|cuda/|distributed/|nn/|optim/|utils/)"
)
# Files of vramscope that run within the training process: nobody looks for these.
_OURS = re.compile(r"/(?:engine/(?:probe|simulation|launch)|analyzers/allocator_model)/\w+\.py$")

# Functions of C++ that record a stack or hand out memory: in every stack, and the owner of nothing.
_PLUMBING = re.compile(
    r"\b(?:torch::unwind::|torch::CapturedTraceback::|gather_with_cpp\b|c10::\w+::\w*CachingAllocator::)"
)


# The operation of the backward pass that a thread of autograd runs; there is no line of Python above it.
_BACKWARD = re.compile(r"\btorch::autograd::generated::\w+::apply\b")


def find_headline(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame outside PyTorch's own files.

    Without one it is the operation of the backward pass, else the innermost frame, else None.
    """
    theirs = next((frame for frame in frames if not is_of_torch(frame.filename)), None)
    if theirs is not None:
        return theirs
    backward = (frame for frame in frames if _BACKWARD.search(frame.name))
    return next(backward, frames[0] if frames else None)


def find_caller(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame that is no module's `forward`, in the person's own code where there is any.

    A model's own lines run in every step; its caller distinguishes an evaluation from the training around it.
    """
    theirs = [frame for frame in frames if not is_of_torch(frame.filename)]
    callers = [frame for frame in theirs if frame.name != "forward"]
    own = [frame for frame in callers if not is_installed(frame.filename)]
    return next(iter(own or callers), find_headline(frames))


def keep_python(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Return the Python frames of a stack without our own.

    Where there are none, the frames of C++ from the one on that asked for the memory; empty for a stack that
    has only those that record stacks and hand out memory.
    """
    python = tuple(frame for frame in frames if is_python(frame.filename) and not is_ours(frame.filename))
    if python:
        return python
    native = tuple(frame for frame in frames if not is_ours(frame.filename))
    return tuple(frame for frame in native if not _PLUMBING.search(frame.name))


@cache
def is_python(filename: str) -> bool:
    """Return whether a file is Python, or code that Python compiled from text (`<string>`), and not C++."""
    return filename.endswith((".py", ".pyx")) or (filename.startswith("<") and filename.endswith(">"))


@cache
def is_of_torch(filename: str) -> bool:
    """Return whether a file is PyTorch's own, or one that no person wrote."""
    if not is_python(filename) or filename.startswith("<frozen "):
        return True
    path = filename.replace("\\", "/")
    return _TORCH.search(path) is not None


def is_installed(filename: str) -> bool:
    """Return whether a file is where an installer puts packages: a library, not the person's own code."""
    return "-packages/" in filename.replace("\\", "/")


@cache
def is_ours(filename: str) -> bool:
    """Return whether a file is one of vramscope's that run within the training process."""
    return _OURS.search(filename.replace("\\", "/")) is not None
