"""The kernel's account of memory, /proc/meminfo."""

import re
from pathlib import Path

import msgspec

MOST_MEMINFO_BYTES = 8192
_DROPPABLE = (b"MemFree", b"Buffers", b"Cached", b"SReclaimable")
_FIELD = re.compile(
    rb"^(" + b"|".join((b"MemTotal", b"MemAvailable", b"SwapTotal", b"SwapFree", *_DROPPABLE)) + rb"):[ \t]*+"
    rb"([0-9]++)(?!\S)",
    re.MULTILINE,
)


class Meminfo(msgspec.Struct, frozen=True):
    """Memory of the host in bytes; None where the kernel does not tell."""

    total_bytes: int | None = None
    available_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None


def read_meminfo(proc: Path = Path("/proc")) -> Meminfo:
    """Read the file `meminfo`; everything is None where it is absent.

    Args:
        proc: Where the proc file system is mounted.
    """
    try:
        with (proc / "meminfo").open("rb", buffering=0) as file:
            return parse_meminfo(file.read(MOST_MEMINFO_BYTES))
    except OSError:
        return Meminfo()


def parse_meminfo(text: bytes) -> Meminfo:
    """Parse lines of `Name:  123 kB`; whatever is not such a line is passed over.

    Kernels before 3.14 have no MemAvailable; what is free or can be dropped stands in for it.
    """
    values = {name: int(number) * 1024 for name, number in _FIELD.findall(text)}
    available = values.get(b"MemAvailable", _estimate_available(values))
    total = values.get(b"MemTotal")
    if total is not None and available is not None:
        available = min(available, total)
    return Meminfo(
        total_bytes=total,
        available_bytes=available,
        swap_total_bytes=values.get(b"SwapTotal"),
        swap_free_bytes=values.get(b"SwapFree"),
    )


def _estimate_available(values: dict[bytes, int]) -> int | None:
    if b"MemFree" not in values:
        return None
    return sum(values.get(name, 0) for name in _DROPPABLE)
