"""The host's own memory: real storage is refused in one line before the host runs out of it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Callable, NoReturn

import torch

from .ledger import refuse, tell

MIB = 1 << 20
GIB = 1 << 30
# Bytes that may be added between two checks of the host.
STRIDE_BYTES = 64 * MIB
LEAST_RESERVE_BYTES = 512 * MIB
# Share of the host's memory that stays free for everything else.
RESERVED_SHARE = 0.04

_REFUSED_BY_HOST = re.compile(r"can't allocate memory: you tried to allocate (\d+) bytes")
_MEMINFO = Path("/proc/meminfo")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_CGROUP_USED = Path("/sys/fs/cgroup/memory.current")


class HostMemory:
    """Watches the free memory of the host while tensors grow."""

    def __init__(self, read_available: Callable[[], int | None], reserve_bytes: int) -> None:
        self._read_available = read_available
        self._reserve_bytes = reserve_bytes
        self._added_bytes = 0

    def check_capacity(self, modelled_bytes: int) -> None:
        """Warn if the cards are larger than the host; refuse if the host has nothing left at all.

        Raises:
            SystemExit: The host is at its reserve already.
        """
        self.check_growth(0)
        available = self._read_available()
        if available is not None and modelled_bytes > available:
            tell(
                f"the cards have {modelled_bytes / GIB:.1f} GiB and this host has {available / GIB:.1f} GiB "
                "free: the run stops where tensors need more than the host has; --fake needs none"
            )

    def note_growth(self, size_bytes: int) -> None:
        """Check the host each time enough was added; raises as `check_growth`."""
        self._added_bytes += size_bytes
        if self._added_bytes >= STRIDE_BYTES:
            self._added_bytes = 0
            self.check_growth(0)

    def check_growth(self, size_bytes: int) -> None:
        """End the script (SystemExit) if the host would be below its reserve."""
        available = self._read_available()
        if available is not None and available - size_bytes < self._reserve_bytes:
            self.refuse(size_bytes)

    def refuse(self, size_bytes: int) -> NoReturn:
        """End the script: the card has room and the host has not."""
        available = self._read_available()
        free = "an unknown amount of" if available is None else f"{available / GIB:.1f} GiB of"
        refuse(
            f"this host has {free} memory free, but {size_bytes / GIB:.1f} GiB more are needed, with "
            f"{self._reserve_bytes / GIB:.1f} GiB left for everything else: real tensors need real "
            "memory; run with --fake, or with a smaller model or batch"
        )


def read_refused_bytes(error: RuntimeError) -> int | None:
    """Return how many bytes the host's allocator could not give; None for any other error."""
    found = _REFUSED_BY_HOST.search(str(error))
    return int(found.group(1)) if found else None


def watch_host(reserve_bytes: int | None) -> HostMemory:
    """Watch this host; None reserves a share in proportion to it."""
    if reserve_bytes is None:
        total = _read_meminfo("MemTotal:") or 0
        reserve_bytes = max(LEAST_RESERVE_BYTES, int(total * RESERVED_SHARE))
    return HostMemory(read_available_bytes, reserve_bytes)


def watch_nothing() -> HostMemory:
    """A watch that never refuses, for tensors without storage."""
    return HostMemory(lambda: None, 0)


def read_available_bytes() -> int | None:
    """What this process can still use: of the host, or less if a control group limits it."""
    found = [size for size in (_read_meminfo("MemAvailable:"), _read_cgroup_free()) if size is not None]
    return min(found) if found else None


def _read_meminfo(key: str) -> int | None:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        # No Linux, or no proc: then nothing is known, and nothing is refused.
        return None
    return None


def _read_cgroup_free() -> int | None:
    try:
        limit = _CGROUP_LIMIT.read_text().strip()
        return None if limit == "max" else int(limit) - int(_CGROUP_USED.read_text())
    except (OSError, ValueError):
        return None


MOST_FRAMES = 12
MOST_FRAMES_WALKED = 64

# If there are more, all are forgotten: a program that generates code makes new ones without end.
MOST_STACKS = 8192
MOST_FILES = 8192

Position = tuple[CodeType, int]

_HERE = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)
# A GPU's allocator is called from C++, below every one of these: they run only because tensors are simulated.
_DISPATCH = tuple(
    f"{_TORCH}/{name}"
    for name in (
        *("_decomp/", "_dynamo/", "_jit_internal.py", "_library/", "_logging/", "_meta_registrations.py"),
        *("_ops.py", "_prims", "_refs/", "_subclasses/", "fx/", "overrides.py"),
        *("utils/_python_dispatch.py", "utils/_pytree.py", "utils/_stats.py"),
    )
)
# None for files whose frames no real snapshot has, else whether a file is outside of torch.
_is_user_file: dict[str, bool | None] = {}
# By the ids of code objects and the offsets in them. Code compares by value without its file, so that like
# functions of two files are equal; an id is unique while the stack here keeps its code alive.
_known: dict[tuple[int, ...], Stack] = {}


class Stack:
    """Frames of one call, innermost first; line numbers are computed when somebody asks."""

    __slots__ = ("_frames", "_positions", "_user_frames")

    def __init__(self, positions: tuple[Position, ...]) -> None:
        self._positions = positions
        self._frames: list[dict[str, object]] | None = None
        self._user_frames: list[dict[str, object]] | None = None

    @property
    def frames(self) -> list[dict[str, object]]:
        """In the form of PyTorch's snapshots: `filename`, `line`, `name`."""
        if self._frames is None:
            self._frames = [
                {"filename": code.co_filename, "line": _line_at(code, offset), "name": code.co_name}
                for code, offset in self._positions
            ]
        return self._frames

    @property
    def user_frames(self) -> list[dict[str, object]]:
        """Frames outside of torch."""
        if self._user_frames is None:
            self._user_frames = [
                frame for frame in self.frames if not str(frame["filename"]).startswith(_TORCH)
            ]
        return self._user_frames


def capture_stack() -> Stack:
    """Return the stack of the calling thread as a GPU's allocator would see it, without this package.

    If no other code called torch (a thread of its own), nothing is left.
    """
    codes: list[CodeType] = []
    key: list[int] = []
    user_frames = 0
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MOST_FRAMES_WALKED):
        if frame is None or user_frames == MOST_FRAMES:
            break
        code = frame.f_code
        try:
            is_user = _is_user_file[code.co_filename]
        except KeyError:
            is_user = _judge_file(code.co_filename)
        if is_user is not None:
            codes.append(code)
            key += (id(code), frame.f_lasti)
            user_frames += is_user
        frame = frame.f_back
    place = tuple(key)
    stack = _known.get(place)
    return _cache_stack(place, codes) if stack is None else stack


def _judge_file(name: str) -> bool | None:
    """Return what `_is_user_file` says of a file, and remember it."""
    if len(_is_user_file) >= MOST_FILES:
        _is_user_file.clear()
    is_seen = not name.startswith((_HERE, "<frozen", *_DISPATCH))
    is_user = _is_user_file[name] = not name.startswith(_TORCH) if is_seen else None
    return is_user


def _cache_stack(key: tuple[int, ...], codes: list[CodeType]) -> Stack:
    """Remember a new stack for the next block of the same place."""
    if len(_known) >= MOST_STACKS:
        _known.clear()
    stack = _known[key] = Stack(tuple(zip(codes, key[1::2])))
    return stack


def _line_at(code: CodeType, offset: int) -> int:
    from dis import findlinestarts

    line = code.co_firstlineno
    for start, number in findlinestarts(code):
        if start > offset:
            break
        line = number or line
    return line
