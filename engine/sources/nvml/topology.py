"""Links between the NVIDIA devices of this node: lanes of NVLink, PCI Express, and where paths meet."""

import ctypes
from itertools import combinations
from pathlib import Path

from ...errors import SourceUnavailableError, UsageError
from ..source import AbandonableThread, Meeting, NodeTopology, TopologyDevice, TopologyPair
from .driver import Code, MemoryV1, NvmlLibrary, make_start_error

# A driver that nobody keeps loaded takes seconds to start; one that is silent for longer hangs.
ANSWERS_WITHIN_S = 20.0
# NVML_NVLINK_MAX_LINKS.
MOST_LANES = 36

# `nvmlGpuTopologyLevel_t`.
_MEETINGS: dict[int, Meeting] = {
    0: "board",
    10: "switch",
    20: "switch",
    30: "host bridge",
    40: "NUMA node",
    50: "sockets",
}
# NVML_NVLINK_DEVICE_TYPE_SWITCH.
_SWITCH = 2


def read_topology(proc: Path = Path("/proc")) -> NodeTopology:
    """Return the devices of this node and their links, as the driver reports them.

    Raises:
        SourceUnavailableError: There is no driver or no device, or the driver does not answer.
        UsageError: A device is split by MIG, or does not report its memory.
    """
    thread = AbandonableThread("nvml-topology")
    call = thread.call(lambda: _read(NvmlLibrary(proc), proc), ANSWERS_WITHIN_S)
    if not call.has_returned:
        raise SourceUnavailableError(
            f"the NVIDIA driver has not answered for {ANSWERS_WITHIN_S:g} s; see `dmesg | grep -i nvrm`"
        )
    thread.close()
    return call.result()


def _read(library: NvmlLibrary, proc: Path) -> NodeTopology:
    library.open()
    try:
        handles = _list_handles(library, proc)
        lanes = [_list_remotes(library, handle) for handle in handles]
        devices = tuple(
            _describe(library, handle, index, remotes)
            for index, (handle, remotes) in enumerate(zip(handles, lanes, strict=True))
        )
        buses = [library.read_address(handle) for handle in handles]
        pairs = tuple(
            TopologyPair(
                first=first,
                second=second,
                lanes=min(
                    _count_lanes(lanes[first], buses[second]), _count_lanes(lanes[second], buses[first])
                ),
                meeting=_read_meeting(library, handles[first], handles[second]),
            )
            for first, second in combinations(range(len(handles)), 2)
        )
        return NodeTopology(devices=devices, pairs=pairs)
    finally:
        library.close()


def _list_handles(library: NvmlLibrary, proc: Path) -> list[ctypes.c_void_p]:
    count = ctypes.c_uint()
    code = library.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
    if code != Code.SUCCESS:
        raise make_start_error(code, library.explain(code), None, proc)
    handles = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        code = library.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        if code != Code.SUCCESS:
            raise SourceUnavailableError(f"GPU {index} does not answer: {library.explain(code)}")
        handles.append(handle)
    if not handles:
        raise SourceUnavailableError(
            "The NVIDIA driver runs but reports no device; see `lspci | grep -i nvidia`"
        )
    return handles


def _describe(
    library: NvmlLibrary, handle: ctypes.c_void_p, index: int, remotes: list[str | None]
) -> TopologyDevice:
    current = ctypes.c_uint()
    pending = ctypes.c_uint()
    split = library.call("nvmlDeviceGetMigMode", handle, ctypes.byref(current), ctypes.byref(pending))
    if split == Code.SUCCESS and current.value:
        raise UsageError(f"GPU {index} is split by MIG, whose instances have no links; write a cluster file")
    memory = MemoryV1()
    if library.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory)) != Code.SUCCESS:
        raise UsageError(f"GPU {index} does not report its memory; write a cluster file")
    version = library.read_number("nvmlDeviceGetNvLinkVersion", handle, ctypes.c_uint(0))
    return TopologyDevice(
        name=library.read_text("nvmlDeviceGetName", handle) or "GPU",
        total_bytes=memory.total,
        lanes=len(remotes),
        nvlink_version=version if remotes else None,
        pcie_generation=library.read_number("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        pcie_lanes=library.read_number("nvmlDeviceGetMaxPcieLinkWidth", handle),
    )


def _list_remotes(library: NvmlLibrary, handle: ctypes.c_void_p) -> list[str | None]:
    """Return for each active lane the bus id of the device at its other end; None for a switch."""
    remotes: list[str | None] = []
    for lane in map(ctypes.c_uint, range(MOST_LANES)):
        if not library.read_number("nvmlDeviceGetNvLinkState", handle, lane):
            continue
        kind = library.read_number("nvmlDeviceGetNvLinkRemoteDeviceType", handle, lane)
        is_switch = kind == _SWITCH
        bus = None if is_switch else library.read_bus("nvmlDeviceGetNvLinkRemotePciInfo_v2", handle, lane)
        if is_switch or bus is not None:
            remotes.append(bus)
    return remotes


def _count_lanes(remotes: list[str | None], bus: str | None) -> int:
    """Count the lanes that lead to a device: all that end at switches, and those that end at it."""
    return sum(remote is None or remote == bus for remote in remotes)


def _read_meeting(library: NvmlLibrary, first: ctypes.c_void_p, second: ctypes.c_void_p) -> Meeting | None:
    level = library.read_number("nvmlDeviceGetTopologyCommonAncestor", first, second)
    return None if level is None else _MEETINGS.get(level)
