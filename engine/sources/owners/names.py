"""The names that are known now: of pods, containers and jobs by their ids, and who was given devices."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...model import DeviceAllocation, DeviceSample, ProcessOwner, ProcessReading

if TYPE_CHECKING:
    from .kubelet import Allocation

# The ids by which a device may be given: that of NVIDIA's plug-in is its UUID, that of AMD's its address.
DeviceIds = tuple[str, ...]


class PodName(NamedTuple):
    namespace: str
    pod: str
    container: str | None = None


class Job(NamedTuple):
    """A job of Slurm."""

    name: str | None = None
    partition: str | None = None


class Wanted(NamedTuple):
    """What the processes of the newest sample are known by."""

    containers: frozenset[str] = frozenset()
    # Pods by UID, each with the devices on which its processes are.
    pods: Mapping[str, frozenset[DeviceIds]] = {}
    # Processes of each Slurm job.
    jobs: Mapping[str, tuple[int, ...]] = {}

    @property
    def ids(self) -> frozenset[str]:
        return self.containers | self.pods.keys() | self.jobs.keys()


class Names(NamedTuple):
    # Containers of pods, by the first 12 characters of their ids.
    links: Mapping[str, PodName] = {}
    # Pods by UID.
    pods: Mapping[str, PodName] = {}
    # Containers of Docker and Podman, by the first 12 characters of their ids.
    containers: Mapping[str, str] = {}
    jobs: Mapping[str, Job] = {}
    # By id of a device as its plug-in names it; None where no kubelet says.
    allocations: Mapping[str, tuple[DeviceAllocation, ...]] | None = None
    # Why some pods have no names, in one sentence.
    reason: str | None = None

    def find(self, process: ProcessReading) -> ProcessOwner | None:
        """Return the names of whose a process is; None if none is known."""
        pod = self.links.get(process.container or "") or self.pods.get(process.pod or "")
        container = self.containers.get(process.container or "") if pod is None else pod.container
        job = self.jobs.get(process.slurm_job or "", Job())
        owner = ProcessOwner(
            None if pod is None else pod.namespace,
            None if pod is None else pod.pod,
            container,
            job.name,
            job.partition,
        )
        return None if owner == ProcessOwner() else owner

    def find_allocations(self, device: DeviceSample) -> tuple[DeviceAllocation, ...] | None:
        """Return who was given a device; empty if nobody, None if that is not known."""
        if self.allocations is None:
            return None
        return next((self.allocations[it] for it in list_ids(device) if it in self.allocations), ())


def list_ids(device: DeviceSample) -> DeviceIds:
    if device.pci_address is None or device.parent_uuid is not None:
        return (device.uuid,)
    return device.uuid, device.pci_address


def list_allocations(listed: "Iterable[Allocation]") -> dict[str, tuple[DeviceAllocation, ...]]:
    """Return who was given each device, from the kubelet's answer."""
    found: dict[str, list[DeviceAllocation]] = {}
    for it in listed:
        if it.namespace is None or it.pod is None:
            continue
        for device, shares in it.devices.items():
            given = DeviceAllocation(it.namespace, it.pod, it.container, it.resource, shares or None)
            found.setdefault(device, []).append(given)
    return {device: tuple(its) for device, its in found.items()}


def join_by_ids(listed: "Iterable[Allocation]", kept: "Iterable[Allocation]") -> dict[str, PodName]:
    """Return the names of pods by UID: the pod that has the very ids that the kubelet's file has for a UID.

    An id belongs to one container at a time. Where the file has the same ids for two pods, one of them has
    ended: they name neither.
    """
    named: dict[tuple[str, str, frozenset[str]], PodName | None] = {}
    for it in listed:
        key = (it.container, it.resource, frozenset(it.ids))
        pod = PodName(it.namespace, it.pod) if it.namespace is not None and it.pod is not None else None
        named[key] = None if key in named else pod
    uids: dict[tuple[str, str, frozenset[str]], set[str]] = {}
    containers: dict[str, set[str]] = {}
    for it in kept:
        if it.uid is not None:
            uids.setdefault((it.container, it.resource, frozenset(it.ids)), set()).add(it.uid)
            containers.setdefault(it.uid, set()).add(it.container)
    found: dict[str, PodName] = {}
    for key, of in uids.items():
        pod = named.get(key)
        uid = min(of)
        if pod is not None and len(of) == 1:
            # Where one container of a pod alone has devices, it is the one whose processes use them.
            its = containers[uid]
            found[uid] = pod._replace(container=min(its)) if len(its) == 1 else pod
    return found


def join_by_devices(
    listed: "Iterable[Allocation]", held: Mapping[str, frozenset[DeviceIds]]
) -> dict[str, PodName]:
    """Return the names of pods by UID, where no file of the kubelet can be read.

    A pod is named only if it alone was given all devices on which the processes of a UID are, and no other
    UID would be the same pod.

    Args:
        held: By UID of a pod, the devices on which its processes are, each with all ids that it may have.
    """
    given: dict[PodName, set[str]] = {}
    containers: dict[PodName, set[str]] = {}
    for it in listed:
        if it.namespace is not None and it.pod is not None:
            pod = PodName(it.namespace, it.pod)
            given.setdefault(pod, set()).update(it.devices)
            containers.setdefault(pod, set()).add(it.container)
    claims: dict[PodName, list[str]] = {}
    for uid, devices in held.items():
        fitting = [
            pod for pod, its in given.items() if devices and not any(its.isdisjoint(ids) for ids in devices)
        ]
        for pod in fitting if len(fitting) == 1 else ():
            claims.setdefault(pod, []).append(uid)
    return {
        uids[0]: pod._replace(container=min(containers[pod])) if len(containers[pod]) == 1 else pod
        for pod, uids in claims.items()
        if len(uids) == 1
    }
