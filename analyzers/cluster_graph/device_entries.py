"""The devices of one node of a cluster file: by name, by their figures, or by name with other figures."""

from math import isfinite

from msgspec.structs import replace

from ...engine.errors import UsageError
from ...engine.readers.cluster_file import DeviceEntry, NodeEntry
from ...engine.units import parse_bytes
from .device_catalog import DeviceModel, find_device
from .limits import check_counts
from .link_catalog import parse_bandwidth
from .model import ClusterDevice

MOST_TFLOPS = 1e6
MOST_MEMORY_BYTES = 1 << 50


def make_devices(group: NodeEntry, node: str) -> tuple[tuple[ClusterDevice, ...], str | None]:
    """Return the devices of a node, and the name of the link that they usually have.

    The link is None where devices have none in common, or no name.

    Raises:
        UsageError: A name is not known, or a figure is missing or cannot be.
    """
    devices: list[ClusterDevice] = []
    links: set[str | None] = set()
    for entry in _list_entries(group):
        check_counts(1, entry.count, "devices")
        model = None if entry.device is None else find_device(entry.device)
        links.add(None if model is None else model.link)
        first = len(devices)
        kind = _make_device(entry, model, node)
        devices += [replace(kind, local_index=first + number) for number in range(entry.count)]
    check_counts(1, len(devices), "devices")
    return tuple(devices), links.pop() if len(links) == 1 else None


def _list_entries(group: NodeEntry) -> tuple[DeviceEntry, ...]:
    if isinstance(group.devices, int):
        return (
            DeviceEntry(
                device=group.device,
                count=group.devices,
                memory=group.memory,
                tflops=group.tflops,
                memory_bandwidth=group.memory_bandwidth,
                kind=group.kind,
            ),
        )
    alone = ("device", "memory", "tflops", "memory_bandwidth", "kind")
    beside = [name for name in alone if getattr(group, name) is not None]
    if beside:
        raise UsageError(f"{beside[0]} does not go with a list of devices: write it in the list")
    return group.devices


def _make_device(entry: DeviceEntry, model: DeviceModel | None, node: str) -> ClusterDevice:
    memory = model.memory_bytes if model else None
    flops = model.flops_per_s if model else None
    bandwidth = model.memory_bytes_per_s if model else None
    if entry.memory is not None:
        memory = entry.memory if isinstance(entry.memory, int) else parse_bytes(entry.memory)
    if entry.tflops is not None:
        flops = entry.tflops * 1e12
    if entry.memory_bandwidth is not None:
        bandwidth = parse_bandwidth(entry.memory_bandwidth)
    if memory is None or flops is None:
        missing = "memory" if memory is None else "tflops"
        raise UsageError(
            f'neither device nor {missing} is given: write device = "h100", or memory and tflops'
        )
    _check_figures(memory, flops)
    return ClusterDevice(
        node=node,
        local_index=0,
        kind=entry.kind or (model.kind if model else None),
        memory_bytes=memory,
        flops_per_s=flops,
        memory_bytes_per_s=bandwidth,
    )


def _check_figures(memory: int, flops: float) -> None:
    if not 0 < memory <= MOST_MEMORY_BYTES:
        raise UsageError(f"memory is {memory:,} bytes; expected above 0 and at most 1 PiB")
    if not (isfinite(flops) and 0 < flops <= MOST_TFLOPS * 1e12):
        raise UsageError(f"tflops is {flops / 1e12:g}; expected above 0 and at most {MOST_TFLOPS:,.0f}")
