"""Segments of an allocator as tables, and the frame of a stack that a person calls theirs."""

import re
from collections.abc import Sequence
from functools import cache

import msgspec

from ..engine.model import Segment, SegmentMap
from ..engine.model.memory_snapshot import Frame
from ..engine.model.sample import AWAITING_FREE, FREE
from ..engine.units import MIB

# What a map of an allocator's segments comes to: how many, how much is live, free and stranded.

# The least that an expandable segment of each pool maps and unmaps, counted from the segment's start
# (`kSmallBuffer` and `kLargeBuffer` of PyTorch's CUDACachingAllocator).
PAGE_BYTES = {"small": 2 * MIB, "large": 20 * MIB}


class SegmentSummary(msgspec.Struct, frozen=True):
    """The segments of one process, added up."""

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
    # Largest free block outside private pools, 0 where there is none.
    largest_free_bytes: int


def summarize_segments(segment_map: SegmentMap) -> SegmentSummary:
    segments = segment_map.segments
    shared = [segment for segment in segments if not segment.is_private]
    stranded = [find_stranded(segment) for segment in segments]
    free, awaiting = (
        sum(_sum_state(segment, state) for segment in segments) for state in (FREE, AWAITING_FREE)
    )
    total = sum(segment.total_bytes for segment in segments)
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
        largest_free_bytes=_find_largest_free(shared),
    )


def find_stranded(segment: Segment) -> int:
    """Return the free bytes of a segment that cannot be given back, because a block in it is in use.

    Of an expandable segment whole free pages can be given back, so only what is free beside a page's other
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


def _sum_state(segment: Segment, wanted: int) -> int:
    return sum(size_bytes for size_bytes, state in segment.blocks if state == wanted)


def _find_largest_free(segments: Sequence[Segment]) -> int:
    free = [size for segment in segments for size, state in segment.blocks if state == FREE]
    return max(free, default=0)


# Which frames of a Python stack matter to a person: theirs, before those of PyTorch; never our own.

# Files of PyTorch, installed or in its source tree.
_TORCH = re.compile(
    r"-packages/(?:torch|functorch)/|/torch/(?:_|autograd/|cuda/|distributed/|nn/|optim/|utils/)"
)
# Files of vramscope that run within the training process: nobody looks for these.
_OURS = re.compile(r"/(?:engine/(?:probe|simulation|launch)|analyzers/allocator_model)/\w+\.py$")


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
