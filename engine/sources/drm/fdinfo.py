"""What processes hold on any DRM device: /proc/PID/fdinfo of their open device files.

Format: the kernel's `Documentation/gpu/drm-usage-stats.rst`. Only processes of this user are readable;
all are for root.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..kernel_files import list_names, parse_number, read_bytes, read_text
from ..processes import has_own_pids

# Most bytes of a file, lines of it, and files of a scan; beyond that something is wrong.
_MOST_BYTES = 1 << 16
_MOST_LINES = 512
_MOST_FILES = 4096
# What no counter reaches in the life of a machine.
_MOST_COUNT = 1 << 63
_UNITS = {b"": 1, b"KiB": 1 << 10, b"MiB": 1 << 20, b"GiB": 1 << 30}
# The second key is the older name of the first; they are never added.
_KEYS = (b"drm-resident-", b"drm-memory-")
# Engines that only copy or decode: a program's kernels do not run on them.
_OTHER_ENGINES = (b"bcs", b"vcs", b"vecs", b"copy", b"video", b"dma", b"dec", b"enc", b"jpeg", b"vpe")


class Engine(NamedTuple):
    """How long a client has kept one class of engines busy: in nanoseconds, or in cycles of `total`."""

    busy: int
    # Cycles that have passed in all; None where `busy` is a time.
    total: int | None = None
    # How many engines this class has.
    capacity: int = 1


class Client(NamedTuple):
    """One use of a device by a process; several descriptors may share it."""

    driver: str
    # None for a device off the PCI bus.
    pci_address: str | None
    client_id: int | None
    # Bytes that are on the device now, by region: `vram`, `gtt`, `vram0`, `system` …
    resident: dict[str, int]
    # By class of engines, those that run kernels.
    engines: dict[str, Engine]


def parse_fdinfo(data: bytes) -> Client | None:
    """Parse the file of one descriptor; None if it is not of a DRM device."""
    fields: dict[bytes, bytes] = {}
    for line in data.split(b"\n", _MOST_LINES)[:_MOST_LINES]:
        key, separator, value = line.partition(b":")
        if separator and key.startswith(b"drm-"):
            fields[key] = value.strip()
    driver, address = (
        fields.get(name, b"").decode("ascii", "replace") for name in (b"drm-driver", b"drm-pdev")
    )
    if not driver:
        return None
    resident: dict[str, int] = {}
    for prefix in reversed(_KEYS):
        for key, value in fields.items():
            size = _parse_size(value) if key.startswith(prefix) else None
            if size is not None:
                resident[key.removeprefix(prefix).decode("ascii", "replace")] = size
    client_id = parse_number(fields.get(b"drm-client-id", b""))
    return Client(driver, address.lower() or None, client_id, resident, _parse_engines(fields))


def _parse_size(value: bytes) -> int | None:
    number, _, unit = value.partition(b" ")
    size = parse_number(number)
    factor = _UNITS.get(unit.strip())
    return None if size is None or factor is None else size * factor


def _parse_engines(fields: dict[bytes, bytes]) -> dict[str, Engine]:
    found: dict[str, Engine] = {}
    for key, value in fields.items():
        for prefix in (b"drm-engine-", b"drm-cycles-"):
            name = key.removeprefix(prefix)
            if name == key or name.startswith((b"capacity-", *_OTHER_ENGINES)):
                continue
            busy = parse_number(value.removesuffix(b" ns"))
            total = parse_number(fields.get(b"drm-total-cycles-" + name, b""))
            # Cycles without their total cannot be made a share.
            if busy is None or busy > _MOST_COUNT or (prefix == b"drm-cycles-" and total is None):
                continue
            capacity = parse_number(fields.get(b"drm-engine-capacity-" + name, b"")) or 1
            is_time = prefix == b"drm-engine-"
            found[name.decode("ascii", "replace")] = Engine(busy, None if is_time else total, capacity)
    return found


# Between two scans, longer where a scan costs more than this share of a core.
SCAN_INTERVAL_S = 4.0
COST_SHARE = 0.001
# The same where only AMD's GPUs are: their compute processes are found without a scan.
COST_SHARE_AMD = 0.0002
LONGEST_WAIT_S = 120.0

# Bytes by region.
_Regions = dict[str, int]


class Usage(NamedTuple):
    """What one process uses of one device."""

    regions: _Regions
    # Share of time in which its kernels ran since the scan before; None at its first scan.
    busy_percent: float | None = None


class _Counted(NamedTuple):
    at_s: float
    engines: dict[str, Engine]


class ClientScan:
    """Finds all clients of a machine now and then; one scan serves all devices.

    Args:
        cpu_s: CPU time of the calling thread.
    """

    def __init__(
        self, root: Path, clock_s: Callable[[], float], cpu_s: Callable[[], float] = time.thread_time
    ) -> None:
        # Share of a core that scans may cost; discovery sets it.
        self.cost_share = COST_SHARE
        self._proc = str(root / "proc")
        self._classes = root / "sys/class/drm"
        # Compute processes have host pids in /sys/class/kfd: a container would list its own ones twice.
        self._has_own_pids = has_own_pids(root / "proc")
        self._clock_s = clock_s
        self._cpu_s = cpu_s
        self._due_s = clock_s()
        # Engines of each client at the scan before, by device and number of the client.
        self._counted: dict[tuple[str, int], _Counted] = {}
        # By address and pid. Replaced as a whole, so that any thread may read it.
        self.held: dict[str, dict[int, Usage]] = {}
        self.has_scanned = False
        # Whether the newest scan saw the processes of all users.
        self.is_complete = False

    def scan_if_due(self) -> None:
        """Read the device files of all processes."""
        now_s = self._clock_s()
        if now_s < self._due_s:
            return
        began_s = self._cpu_s()
        self.held = self._scan(now_s)
        # Not before: else the lane that reads memory takes a scan under way for one that found nothing.
        self.has_scanned = True
        wait_s = max(SCAN_INTERVAL_S, (self._cpu_s() - began_s) / self.cost_share)
        # A little early, as the readings that ask for it are not exact to the tick.
        self._due_s = now_s + min(LONGEST_WAIT_S, wait_s) - 0.5

    def find_load(self, address: str) -> float | None:
        """Return the share of time in which a device ran kernels; None where it is not known of all."""
        shares = [it.busy_percent for it in self.held.get(address, {}).values()]
        if not self.is_complete or any(share is None for share in shares):
            return None
        return min(100.0, sum(share for share in shares if share is not None))

    def _scan(self, now_s: float) -> dict[str, dict[int, Usage]]:
        held: dict[str, dict[int, Usage]] = {}
        seen: dict[tuple[str, int], _Counted] = {}
        # Address of each file below /dev/dri; empty for a device that sleeps, which a look might wake.
        nodes: dict[str, str | None] = {}
        left = _MOST_FILES
        self.is_complete = not self._has_own_pids
        for pid in sorted(int(name) for name in list_names(self._proc) if name.isdigit()):
            for name, link in self._list_device_files(pid):
                left -= 1
                if left < 0:
                    self.is_complete = False
                    return held
                if link not in nodes:
                    nodes[link] = self._find_device(link)
                device = nodes[link]
                # None if it was closed in between, or is of another user.
                path = f"{self._proc}/{pid}/fdinfo/{name}"
                data = None if device == "" else read_bytes(path, _MOST_BYTES)
                client = None if data is None else parse_fdinfo(data)
                address = device or (None if client is None else client.pci_address)
                if client is None or address is None:
                    continue
                if client.client_id is not None:
                    # A child has the descriptors of its parent; the memory is there once.
                    key = address, client.client_id
                    if key in seen:
                        continue
                    seen[key] = self._count(key, client, now_s)
                    busy = self._find_busy(key, seen[key])
                else:
                    busy = None
                _add(held.setdefault(address, {}), pid, client.resident, busy)
        self._counted = seen
        return held

    def _list_device_files(self, pid: int) -> list[tuple[str, str]]:
        """Return number and name of the device files that a process has open."""
        folder = f"{self._proc}/{pid}/fd"
        found = []
        try:
            names = os.listdir(folder)  # noqa: PTH208 - names are all that is needed
        except PermissionError:
            self.is_complete = False
            return []
        except OSError:  # it has ended
            return []
        for name in names:
            try:
                link = os.readlink(f"{folder}/{name}")  # noqa: PTH115 - a name, no path
            except OSError:  # closed in between
                continue
            if link.startswith("/dev/dri/"):
                found.append((name, link.removeprefix("/dev/dri/")))
            elif link == "/dev/kfd" and self._has_own_pids:
                return []
        return found

    def _find_device(self, node: str) -> str | None:
        """Return the address of the device behind a file; None if unknown, empty if it sleeps."""
        folder = self._classes / node / "device"
        if not folder.exists():
            return None
        if read_text(folder / "power/runtime_status") in ("suspended", "suspending"):
            return ""
        return Path(os.path.realpath(folder)).name

    def _count(self, key: tuple[str, int], client: Client, now_s: float) -> _Counted:
        before = self._counted.get(key)
        if before is None:
            return _Counted(now_s, client.engines)
        # A counter may fall for a while; the larger value counts until it has caught up.
        engines = {
            name: engine._replace(busy=max(engine.busy, before.engines.get(name, engine).busy))
            for name, engine in client.engines.items()
        }
        return _Counted(now_s, engines)

    def _find_busy(self, key: tuple[str, int], now: _Counted) -> float | None:
        before = self._counted.get(key)
        if before is None or now.at_s <= before.at_s or not now.engines:
            return None
        shares = []
        for name, engine in now.engines.items():
            former = before.engines.get(name)
            if former is None:
                continue
            passed = (
                (now.at_s - before.at_s) * 1e9
                if engine.total is None or former.total is None
                else engine.total - former.total
            )
            if passed > 0:
                shares.append(100.0 * (engine.busy - former.busy) / passed / engine.capacity)
        return round(min(100.0, max(shares)), 1) if shares else None


def _add(processes: dict[int, Usage], pid: int, resident: _Regions, busy_percent: float | None) -> None:
    former = processes.get(pid)
    regions = {} if former is None else former.regions
    for region, size in resident.items():
        regions[region] = regions.get(region, 0) + size
    shares = [it for it in (None if former is None else former.busy_percent, busy_percent) if it is not None]
    processes[pid] = Usage(regions, min(100.0, sum(shares)) if shares else None)
