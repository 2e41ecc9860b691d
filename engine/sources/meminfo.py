"""The kernel's account of memory, /proc/meminfo."""

from pathlib import Path

import msgspec

_DROPPABLE = (b"MemFree", b"Buffers", b"Cached", b"SReclaimable")
_FIELDS = frozenset({b"MemTotal", b"MemAvailable", b"SwapTotal", b"SwapFree", *_DROPPABLE})


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
            return parse_meminfo(file.read(16384))
    except OSError:
        return Meminfo()


def parse_meminfo(text: bytes) -> Meminfo:
    """Parse lines of `Name:  123 kB`; whatever is not such a line is passed over.

    Kernels before 3.14 have no MemAvailable; what is free or can be dropped stands in for it.
    """
    values: dict[bytes, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(b":")
        if name in _FIELDS:
            number = rest.split(maxsplit=1)[:1]
            if number and number[0].isdigit():
                values[name] = int(number[0]) * 1024
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
