"""PyTorch's out-of-memory messages, parsed: CUDA, HIP and XPU, from 1.1 on.

The wordings are those of `c10/cuda/CUDACachingAllocator.cpp` and its siblings over the years. Sizes are
rounded to two places of their unit in the text, so differences of them are too.
"""

import re

import msgspec

from ...units import GIB, KIB, MIB, TIB, format_bytes
from ..base.series_reader import MOST_BYTES

# Longest message; what follows is not part of it.
MOST_CHARACTERS = 2048
MARK = re.compile(r"\b(CUDA|HIP|XPU) out of memory\. Tried to allocate ")
_UNITS = {"bytes": 1, "B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB}
_SIZE = r"(\d{1,15}(?:\.\d{1,9})?) (bytes|B|KiB|MiB|GiB|TiB)"
_ASKED = re.compile(rf"Tried to allocate {_SIZE}")
_DEVICE = re.compile(r"\bGPU (\d{1,4})\b")
# Version 2.1 wrote "capacty".
_TOTAL = re.compile(rf"total capaci?ty of {_SIZE}"), re.compile(rf"{_SIZE} total capacity")
_FREE = re.compile(rf"of which {_SIZE} is free"), re.compile(rf"{_SIZE} free[;)]")
_OWN = (re.compile(rf"this process has {_SIZE} memory in use"),)
_OTHERS = re.compile(rf"\bProcess (\d{{1,10}}) has {_SIZE} memory in use")
_ALLOWED = (re.compile(rf"{_SIZE} allowed;"),)
_ALLOCATED = re.compile(rf"{_SIZE} is allocated by PyTorch"), re.compile(rf"{_SIZE} already allocated")
_IN_POOLS = (re.compile(rf"with {_SIZE} allocated in private pools"),)
_UNALLOCATED = (re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated"),)
_RESERVED = (
    re.compile(rf"{_SIZE} reserved in total by PyTorch"),
    re.compile(rf"{_SIZE} cached\)"),
)
_MOST_OTHERS = 16


class OomText(msgspec.Struct, frozen=True):
    """One message; None is what it does not say."""

    # `CUDA`, `HIP` or `XPU`.
    backend: str
    asked_bytes: int | None = None
    # As the process numbers it.
    device: int | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    # All that the process had on the device, not PyTorch's share alone.
    own_bytes: int | None = None
    # Process id and bytes.
    others: tuple[tuple[int, int], ...] = ()
    # The process's limit.
    allowed_bytes: int | None = None
    allocated_bytes: int | None = None
    # Part of the allocated bytes, in private pools.
    in_pools_bytes: int | None = None
    reserved_bytes: int | None = None

    @property
    def used_bytes(self) -> int | None:
        if self.total_bytes is None or self.free_bytes is None or self.free_bytes > self.total_bytes:
            return None
        return self.total_bytes - self.free_bytes

    @property
    def sentence(self) -> str:
        """What was asked for, and why it did not fit, in a few words."""
        of = "" if self.total_bytes is None else f" of {format_bytes(self.total_bytes)}"
        free = "" if self.free_bytes is None else f", {format_bytes(self.free_bytes)} free{of}"
        asked = (
            "an unknown size was" if self.asked_bytes is None else f"{format_bytes(self.asked_bytes)} were"
        )
        return f"{asked} asked for{free}"


def parse_oom_text(text: str) -> OomText | None:
    """Parse the first message in a text; None if there is none."""
    # Most texts are lines of a log, and a search for fixed words is the quicker one.
    mark = MARK.search(text) if "out of memory" in text else None
    if mark is None:
        return None
    said = " ".join(text[mark.start() : mark.start() + MOST_CHARACTERS].split())
    following = MARK.search(said, len(mark[1]))
    said = said if following is None else said[: following.start()]
    device = _DEVICE.search(said)
    allocated = _find(_ALLOCATED, said)
    unallocated = _find(_UNALLOCATED, said)
    reserved = _find(_RESERVED, said)
    if reserved is None and allocated is not None and unallocated is not None:
        reserved = allocated + unallocated
    others = [(int(it[1]), _size(it[2], it[3])) for it in _OTHERS.finditer(said)]
    return OomText(
        backend=mark[1],
        asked_bytes=_find((_ASKED,), said),
        device=None if device is None else int(device[1]),
        total_bytes=_find(_TOTAL, said) or None,
        free_bytes=_find(_FREE, said),
        own_bytes=_find(_OWN, said),
        others=tuple((pid, size) for pid, size in others[:_MOST_OTHERS] if size is not None),
        allowed_bytes=_find(_ALLOWED, said),
        allocated_bytes=allocated,
        in_pools_bytes=_find(_IN_POOLS, said),
        reserved_bytes=reserved,
    )


def _find(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    match = next((found for pattern in patterns if (found := pattern.search(text)) is not None), None)
    return None if match is None else _size(match[1], match[2])


def _size(number: str, unit: str) -> int | None:
    """Return bytes; None if no device could have so many."""
    size = round(float(number) * _UNITS[unit])
    return size if size < MOST_BYTES else None


_SHOWN = 3


class OomNotes:
    """Keeps the first errors and counts all."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[str] = []

    def add(self, sentence: str) -> None:
        self.count += 1
        if self.count <= _SHOWN:
            self._first.append(sentence)

    @property
    def notes(self) -> tuple[str, ...]:
        more = self.count - len(self._first)
        return (*self._first, *((f"more out-of-memory errors: {more:,}",) if more else ()))
