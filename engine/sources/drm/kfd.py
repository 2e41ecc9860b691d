"""Compute processes of AMD GPUs: /sys/class/kfd, what ROCm's own tools read; open to every user."""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..kernel_files import KeptFile, list_names, parse_number, read_bytes, read_text

_MOST_NODES = 1024
_MOST_PROCESSES = 4096
# Between two readings, and for each process; at most so long.
_INTERVAL_S = 1.5
_PER_PROCESS_S = 0.05
_MOST_INTERVAL_S = 9.5
# Between two readings of the files that were 0, by how long a process is known, as those that have just begun
# allocate on one GPU after the other; at most so long.
_ALL_INTERVAL_PER_AGE = 0.5
_MOST_ALL_INTERVAL_S = 29.5
# Files that stay open, as opening one costs several times what reading does: so many, and so large a part of
# the files that this process may open.
_MOST_KEPT = 2048
_KEPT_SHARE = 4


class _Held(NamedTuple):
    """Bytes of one process by compute node, when all are due to be read again, and when it was first seen."""

    sizes: dict[str, int | None]
    all_due_s: float
    first_s: float


class KfdProcesses:
    """Device memory of compute processes by PCI address; one reading serves all GPUs.

    In a partition mode (DPX, CPX …) one GPU is several nodes here, with one bus and device number: the sum
    of them is the GPU's. The kernel has a file for each pair of a process and a node, most of them 0 for
    good, so those are read less often.
    """

    def __init__(self, root: Path, clock_s: Callable[[], float]) -> None:
        self._folder = root / "sys/class/kfd/kfd"
        self._clock_s = clock_s
        # Address of each compute node, by the id of the node.
        self._addresses: dict[str, str] = {}
        self._held: dict[str, _Held] = {}
        # Of what a process holds, by process and node.
        self._files: dict[tuple[str, str], KeptFile] = {}
        self._most_kept = 0
        self._by_address: dict[str, dict[int, int]] = {}
        self._due_s = clock_s()

    def find_nodes(self) -> None:
        """Read which GPUs there are; call again where devices came or went."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most_kept = _MOST_KEPT if limit < 0 else min(_MOST_KEPT, limit // _KEPT_SHARE)
        nodes = self._folder / "topology/nodes"
        addresses = {}
        for name in list_names(nodes)[:_MOST_NODES]:
            gpu_id = parse_number((read_text(nodes / name / "gpu_id") or "").encode())
            # Processors are nodes too, with the id 0; GPUs of others refuse to be read.
            address = _find_address(read_text(nodes / name / "properties") or "") if gpu_id else None
            if address is not None:
                addresses[str(gpu_id)] = address
        if addresses != self._addresses:
            self._addresses = addresses
            self._held = {}
            self._files = {}

    def read(self, pci_address: str) -> dict[int, int] | None:
        """Return bytes by host pid of the processes that compute on a GPU; None if it does not compute."""
        address = pci_address.partition(".")[0]
        if address not in self._addresses.values():
            return None
        now_s = self._clock_s()
        if now_s >= self._due_s:
            self._read_all(now_s)
            wait_s = max(_INTERVAL_S, _PER_PROCESS_S * len(self._held))
            self._due_s = now_s + min(wait_s, _MOST_INTERVAL_S)
        return self._by_address.get(address, {})

    def _read_all(self, now_s: float) -> None:
        names = [name for name in list_names(self._folder / "proc")[:_MOST_PROCESSES] if name.isdigit()]
        self._held = {name: self._read_process(name, now_s) for name in names}
        for key in [it for it in self._files if it[0] not in self._held]:
            del self._files[key]
        self._by_address = {}
        for name, held in self._held.items():
            for gpu_id, size in held.sizes.items():
                if size:
                    sizes = self._by_address.setdefault(self._addresses[gpu_id], {})
                    sizes[int(name)] = sizes.get(int(name), 0) + size

    def _read_process(self, name: str, now_s: float) -> _Held:
        before = self._held.get(name)
        if before is None or now_s >= before.all_due_s:
            first_s = now_s if before is None else before.first_s
            wait_s = min(_ALL_INTERVAL_PER_AGE * (now_s - first_s), _MOST_ALL_INTERVAL_S)
            sizes = {gpu_id: self._read_size(name, gpu_id) for gpu_id in self._addresses}
            return _Held(sizes, now_s + wait_s, first_s)
        sizes = {id_: self._read_size(name, id_) if size else size for id_, size in before.sizes.items()}
        return before._replace(sizes=sizes)

    def _read_size(self, pid: str, gpu_id: str) -> int | None:
        """Return bytes; None if it ended, or does not use this GPU."""
        key = pid, gpu_id
        kept = self._files.get(key)
        if kept is not None:
            return parse_number(kept.read())
        path = f"{self._folder}/proc/{pid}/vram_{gpu_id}"
        size = parse_number(read_bytes(path, 64))
        # Half of them are for those that are not 0, which are read each time.
        if len(self._files) < (self._most_kept if size else self._most_kept // 2):
            self._files[key] = KeptFile(path, 64)
        return size


def _find_address(properties: str) -> str | None:
    """Return `domain:bus:device` of a node; the function is the number of the partition in some kernels."""
    fields = dict(line.split(" ", 1) for line in properties.splitlines() if " " in line)
    domain, location = (parse_number(fields.get(name, "").encode()) for name in ("domain", "location_id"))
    if location is None:
        return None
    return f"{domain or 0:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"
