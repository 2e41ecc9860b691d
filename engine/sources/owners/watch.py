"""Adds names to the processes of samples.

They are looked up on a thread when a process comes whose owner has no name yet; no sample waits for that.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from ...clock import Clock, SystemClock
from ...model import DeviceAllocation, DeviceSample, MpsRole, ProcessReading
from .names import DeviceIds, Names, Wanted, list_ids

if TYPE_CHECKING:
    from .kubelet import Allocation
    from .lookup import NameLookup

# Between two looks when processes come, and while none comes on a node with a kubelet.
LEAST_INTERVAL_S = 5.0
INTERVAL_S = 60.0
FIRST_WITHIN_S = 0.3
# Folders of a kubelet, below the root: of most distributions, of k0s, of MicroK8s.
KUBELET_FOLDERS = ("var/lib/kubelet", "var/lib/k0s/kubelet", "var/snap/microk8s/common/var/lib/kubelet")

_MPS_SERVER = "nvidia-cuda-mps-server"


def find_kubelet(root: Path) -> Path | None:
    """Return the folder of a kubelet; None if this node has none, or hides it."""
    # Unlike `Path.is_dir`, this is no error where a folder above is closed to this user.
    found = (root / it for it in KUBELET_FOLDERS if os.path.isdir(root / it))  # noqa: PTH112
    return next(found, None)


class _Annotated(NamedTuple):
    """What was made of the process list of a device."""

    listed: tuple[ProcessReading, ...] | None
    names: Names
    processes: tuple[ProcessReading, ...] | None
    allocations: tuple[DeviceAllocation, ...] | None


class OwnersWatch:
    """Whose the processes of one node are.

    Args:
        root: Stands for `/`.
        home: Folder of this user, for its own containers.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        clock: Clock | None = None,
        home: Path | None = None,
        ask: "Callable[[Path], list[Allocation]] | None" = None,
    ) -> None:
        self._root = root
        self._clock = clock or SystemClock()
        self._home = home
        self._ask = ask
        self._kubelet = find_kubelet(root)
        self._lookup: NameLookup | None = None
        self._names = Names()
        self._wanted = Wanted()
        self._lists: list[tuple[ProcessReading, ...] | None] = []
        self._annotated: dict[str, _Annotated] = {}
        self._thread: threading.Thread | None = None
        self._news = threading.Event()
        self._has_looked = threading.Event()
        self._stopped = threading.Event()

    def collect(self, devices: tuple[DeviceSample, ...]) -> tuple[tuple[DeviceSample, ...], tuple[str, ...]]:
        """Return devices with the names that are known by now, and why others are not.

        It never blocks, but for `FIRST_WITHIN_S` at the first processes with owners: who looks only once
        sees names too.
        """
        lists = [device.processes for device in devices]
        is_same = len(lists) == len(self._lists) and all(
            new is old for new, old in zip(lists, self._lists, strict=True)
        )
        if not is_same:
            self._lists = lists
            self._wanted = _list_wanted(devices)
            known = {device.uuid for device in devices}
            self._annotated = {uuid: it for uuid, it in self._annotated.items() if uuid in known}
            if self._lookup is None or not self._wanted.ids <= self._lookup.looked_up:
                self._news.set()
        if self._kubelet is not None or self._wanted.ids:
            self._start()
        names = self._names
        notes = () if names.reason is None or not self._wanted.pods else (names.reason,)
        return tuple([self._annotate(device, names) for device in devices]), notes

    def close(self) -> None:
        """End the thread; a question that hangs is left behind."""
        self._stopped.set()
        self._news.set()

    def look_once(self) -> None:
        """Look up all names that are wanted; the thread calls this, and tests do."""
        from .lookup import NameLookup

        self._news.clear()
        if self._lookup is None:
            self._lookup = NameLookup(self._root, self._kubelet, self._home, self._clock, self._ask)
        for names in self._lookup.look(self._wanted):
            self._names = names

    def _start(self) -> None:
        if self._thread is None and not self._stopped.is_set():
            self._thread = threading.Thread(target=self._run, name="owners", daemon=True)
            self._thread.start()
            self._has_looked.wait(FIRST_WITHIN_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.look_once()
            self._has_looked.set()
            self._stopped.wait(LEAST_INTERVAL_S)
            self._news.wait(None if self._kubelet is None else INTERVAL_S - LEAST_INTERVAL_S)

    def _annotate(self, device: DeviceSample, names: Names) -> DeviceSample:
        before = self._annotated.get(device.uuid)
        if before is None or before.listed is not device.processes or before.names is not names:
            processes = device.processes and _name_processes(device.processes, names)
            allocations = names.find_allocations(device)
            before = _Annotated(device.processes, names, processes, allocations)
            self._annotated[device.uuid] = before
        if before.processes is device.processes and before.allocations is None:
            return device
        return replace(device, processes=before.processes, allocations=before.allocations)


def _list_wanted(devices: Sequence[DeviceSample]) -> Wanted:
    containers: set[str] = set()
    pods: dict[str, set[DeviceIds]] = {}
    jobs: dict[str, list[int]] = {}
    parents = {device.parent_uuid for device in devices}
    for device in devices:
        for process in device.processes or ():
            if process.container is not None:
                containers.add(process.container)
            if process.pod is not None:
                held = pods.setdefault(process.pod, set())
                # The processes of a MIG instance are listed on its GPU too, which nobody is given then.
                if device.uuid not in parents:
                    held.add(list_ids(device))
            if process.slurm_job is not None:
                jobs.setdefault(process.slurm_job, []).append(process.pid)
    return Wanted(
        frozenset(containers),
        {uid: frozenset(its) for uid, its in pods.items()},
        {job: tuple(pids) for job, pids in jobs.items()},
    )


def _name_processes(processes: tuple[ProcessReading, ...], names: Names) -> tuple[ProcessReading, ...]:
    """Return the processes with their names; the same tuple if there are none."""
    servers = {it.pid: it.user for it in processes if _is_mps_server(it)}
    only = next(iter(servers)) if len(servers) == 1 else None
    shares = Counter(servers.values())
    # The server of each user who has exactly one.
    of_user = {user: pid for pid, user in servers.items() if shares[user] == 1}
    of_user.pop(None, None)
    named: list[ProcessReading] = []
    for process in processes:
        is_owned = process.container or process.pod or process.slurm_job
        owner = names.find(process) if is_owned else None
        mps = process.mps
        if process.pid in servers:
            mps = MpsRole("server", process.pid)
        elif mps is not None:
            # The server of a client is the only one on the device, else the only one of its user.
            mps = MpsRole("client", only if only is not None else of_user.get(process.user))
        same = owner is None and mps == process.mps
        named.append(process if same else replace(process, owner=owner, mps=mps))
    return processes if all(new is old for new, old in zip(named, processes, strict=True)) else tuple(named)


def _is_mps_server(process: ProcessReading) -> bool:
    program = (process.command or "").partition(" ")[0]
    return program.rpartition("/")[2] == _MPS_SERVER
