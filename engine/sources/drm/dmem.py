"""Device memory by the kernel's control groups: files `dmem.capacity` and `dmem.current`, since Linux 6.14.

Formats: the kernel's `Documentation/admin-guide/cgroup-v2.rst`, "DMEM"; lines of a region and its bytes, such
as `drm/0000:03:00.0/vram0 8514437120`. Reading them reaches no device, so none wakes up.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..kernel_files import KeptFile, parse_number

# A node has a line for each memory of each GPU.
_MOST_BYTES = 1 << 16
# One reading serves all GPUs of a round.
_INTERVAL_S = 0.01


class Regions(NamedTuple):
    """Bytes of the memories of one device, summed."""

    total_bytes: int | None = None
    used_bytes: int | None = None


def is_own_region(name: str) -> bool:
    """Return whether a region, as drivers name it, is memory of the device: `vram`, `vram0`, `local0`."""
    return name.startswith(("vram", "local"))


def parse_dmem(data: bytes) -> dict[str, int]:
    """Return bytes by the address of the device, its memories summed; other lines are ignored."""
    sizes: dict[str, int] = {}
    for line in data.splitlines():
        region, _, number = line.strip().rpartition(b" ")
        # An address may have a slash in no kernel, a region's name may.
        kind, _, rest = region.decode("ascii", "replace").partition("/")
        address, _, name = rest.partition("/")
        size = parse_number(number)
        if kind == "drm" and size is not None and address and is_own_region(name):
            sizes[address] = sizes.get(address, 0) + size
    return sizes


class DmemGroup:
    """The group that all processes are in.

    Only that one has the file with the capacities: inside a container there is none, and what the container's
    group uses is not what is used of the device.
    """

    def __init__(self, root: Path, clock_s: Callable[[], float]) -> None:
        folder = root / "sys/fs/cgroup"
        self._capacity = KeptFile(str(folder / "dmem.capacity"), _MOST_BYTES)
        self._current = KeptFile(str(folder / "dmem.current"), _MOST_BYTES)
        self._clock_s = clock_s
        self._due_s = clock_s()
        self._totals: dict[str, int] = {}
        self._used: dict[str, int] = {}
        self.find_regions()

    def find_regions(self) -> None:
        """Read which devices there are; call again where devices came or went."""
        self._totals = parse_dmem(self._capacity.read() or b"")
        self._due_s = self._clock_s()

    def read(self, address: str) -> Regions:
        total = self._totals.get(address)
        if total is None:
            return Regions()
        now_s = self._clock_s()
        if now_s >= self._due_s:
            self._due_s = now_s + _INTERVAL_S
            self._used = parse_dmem(self._current.read() or b"")
        return Regions(total, self._used.get(address))
