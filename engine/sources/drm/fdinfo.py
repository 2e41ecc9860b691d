"""What processes hold on any DRM device: /proc/PID/fdinfo of their open device files.

Format: the kernel's `Documentation/gpu/drm-usage-stats.rst`. Only processes of this user are readable;
all are for root.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..kernel_files import list_names, parse_number, read_bytes
from ..processes import has_own_pids

# Most bytes of a file, lines of it, and files of a scan; beyond that something is wrong.
_MOST_BYTES = 1 << 16
_MOST_LINES = 512
_MOST_FILES = 4096
_UNITS = {b"": 1, b"KiB": 1 << 10, b"MiB": 1 << 20, b"GiB": 1 << 30}
# The second key is the older name of the first; they are never added.
_KEYS = (b"drm-resident-", b"drm-memory-")


class Client(NamedTuple):
    """One use of a device by a process; several descriptors may share it."""

    driver: str
    pci_address: str
    client_id: int | None
    # Bytes that are on the device now, by region: `vram`, `gtt`, `vram0`, `system` …
    resident: dict[str, int]


def parse_fdinfo(data: bytes) -> Client | None:
    """Parse the file of one descriptor; None if it is not of a device on the PCI bus."""
    fields: dict[bytes, bytes] = {}
    for line in data.split(b"\n", _MOST_LINES)[:_MOST_LINES]:
        key, separator, value = line.partition(b":")
        if separator and key.startswith(b"drm-"):
            fields[key] = value.strip()
    driver, address = (
        fields.get(name, b"").decode("ascii", "replace") for name in (b"drm-driver", b"drm-pdev")
    )
    if not driver or not address:
        return None
    resident: dict[str, int] = {}
    for prefix in reversed(_KEYS):
        for key, value in fields.items():
            size = _parse_size(value) if key.startswith(prefix) else None
            if size is not None:
                resident[key.removeprefix(prefix).decode("ascii", "replace")] = size
    return Client(driver, address.lower(), parse_number(fields.get(b"drm-client-id", b"")), resident)


def _parse_size(value: bytes) -> int | None:
    number, _, unit = value.partition(b" ")
    size = parse_number(number)
    factor = _UNITS.get(unit.strip())
    return None if size is None or factor is None else size * factor


# Between two scans, longer where a scan costs more than this share of a core.
SCAN_INTERVAL_S = 4.0
COST_SHARE = 0.001
LONGEST_WAIT_S = 120.0


class ClientScan:
    """Finds all clients of a machine now and then; one scan serves all devices.

    Args:
        cpu_s: CPU time of the calling thread.
    """

    def __init__(
        self, root: Path, clock_s: Callable[[], float], cpu_s: Callable[[], float] = time.thread_time
    ) -> None:
        self._proc = str(root / "proc")
        # Compute processes have host pids in /sys/class/kfd: a container would list its own ones twice.
        self._has_own_pids = has_own_pids(root / "proc")
        self._clock_s = clock_s
        self._cpu_s = cpu_s
        self._due_s = clock_s()
        # By PCI address and pid: bytes by region. Replaced as a whole, so that any thread may read it.
        self.held: dict[str, dict[int, dict[str, int]]] = {}

    def scan_if_due(self) -> None:
        """Read the device files of all processes."""
        now_s = self._clock_s()
        if now_s < self._due_s:
            return
        began_s = self._cpu_s()
        self.held = self._scan()
        wait_s = max(SCAN_INTERVAL_S, (self._cpu_s() - began_s) / COST_SHARE)
        # A little early, as the readings that ask for it are not exact to the tick.
        self._due_s = now_s + min(LONGEST_WAIT_S, wait_s) - 0.5

    def _scan(self) -> dict[str, dict[int, dict[str, int]]]:
        held: dict[str, dict[int, dict[str, int]]] = {}
        seen: set[tuple[str, int]] = set()
        left = _MOST_FILES
        for pid in sorted(int(name) for name in list_names(self._proc) if name.isdigit()):
            for name in self._list_device_files(pid):
                left -= 1
                if left < 0:
                    return held
                # None if it was closed in between, or is of another user.
                data = read_bytes(f"{self._proc}/{pid}/fdinfo/{name}", _MOST_BYTES)
                client = None if data is None else parse_fdinfo(data)
                if client is None:
                    continue
                if client.client_id is not None:
                    # A child has the descriptors of its parent; the memory is there once.
                    key = client.pci_address, client.client_id
                    if key in seen:
                        continue
                    seen.add(key)
                regions = held.setdefault(client.pci_address, {}).setdefault(pid, {})
                for region, size in client.resident.items():
                    regions[region] = regions.get(region, 0) + size
        return held

    def _list_device_files(self, pid: int) -> list[str]:
        folder = f"{self._proc}/{pid}/fd"
        found = []
        for name in list_names(folder):
            try:
                link = os.readlink(f"{folder}/{name}")  # noqa: PTH115 - a name, no path
            except OSError:  # closed in between
                continue
            if link.startswith("/dev/dri/"):
                found.append(name)
            elif link == "/dev/kfd" and self._has_own_pids:
                return []
        return found
