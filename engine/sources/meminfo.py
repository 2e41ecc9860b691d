"""The kernel's account of memory, /proc/meminfo."""

from pathlib import Path

import msgspec

MOST_MEMINFO_BYTES = 8192
_DROPPABLE = (b"MemFree", b"Buffers", b"Cached", b"SReclaimable")


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
    total = _find_bytes(text, b"MemTotal")
    available = _find_bytes(text, b"MemAvailable")
    if available is None:
        available = _estimate_available(text)
    if total is not None and available is not None:
        available = min(available, total)
    return Meminfo(
        total_bytes=total,
        available_bytes=available,
        swap_total_bytes=_find_bytes(text, b"SwapTotal"),
        swap_free_bytes=_find_bytes(text, b"SwapFree"),
    )


def _estimate_available(text: bytes) -> int | None:
    if _find_bytes(text, b"MemFree") is None:
        return None
    return sum(_find_bytes(text, name) or 0 for name in _DROPPABLE)


def _find_bytes(text: bytes, name: bytes) -> int | None:
    """Return the figure of one line; searching for each costs less than matching all lines with a pattern."""
    _, _, rest = (b"\n" + text).partition(b"\n" + name + b":")
    fields = rest.partition(b"\n")[0].split(None, 1)
    return int(fields[0]) * 1024 if fields and fields[0].isdigit() else None
