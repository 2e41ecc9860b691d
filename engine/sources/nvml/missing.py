"""GPUs that NVML does not answer for, although the kernel driver or the PCI bus lists them.

A GPU that fell off the bus, or that the driver could not start, keeps its folder in /proc/driver/nvidia; NVML
either counts it and gives out no handle, or does not count it at all. A GPU that this user may not use (a
share of a node under Slurm, a container) has a folder too: its device file is absent, or the control group
denies it, which access(2) says without opening it.
"""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from ...errors import DeviceLostError
from ...model import MemoryReading
from ..kernel_files import list_names, read_text
from ..pci import list_graphics_devices, spell_address
from ..processes import has_own_pids
from ..source import DeviceDetails, DeviceIdentity
from .driver import DEAD_HANDLE_CODES, Code, make_lost_error

_VENDOR = 0x10DE
_FOLDERS = "driver/nvidia/gpus"


class LostReader:
    """A GPU that was off the bus during the search; it has no handle. `identity`: its own, or a stand-in."""

    def __init__(self, identity: DeviceIdentity, why: int | str = Code.GPU_IS_LOST) -> None:
        self.identity = identity
        self.why = why

    def read_memory(self) -> MemoryReading:
        raise self._make_error()

    def read_details(self) -> DeviceDetails:
        raise self._make_error()

    def _make_error(self) -> DeviceLostError:
        if isinstance(self.why, str):
            return DeviceLostError(self.why)
        return make_lost_error(self.why if self.why in DEAD_HANDLE_CODES else Code.GPU_IS_LOST)


class KernelGpu(NamedTuple):
    """A GPU that the kernel lists."""

    address: str
    # None if the driver has not read it, as before the first use.
    uuid: str | None
    name: str | None
    # Why it counts as lost where NVML does not count it, in one sentence.
    why: str
    # Whether this user may open its device file.
    is_usable: bool = True
    # Whether the driver runs it; NVML may find it after a restart then.
    has_driver: bool = True

    def identify(self, index: int) -> DeviceIdentity:
        return DeviceIdentity(
            uuid=self.uuid or f"unknown-nvml-{self.address}",
            index=index,
            name=self.name,
            pci_address=self.address,
            is_provisional=self.uuid is None,
        )


def list_gpu_folders(proc: Path) -> frozenset[str]:
    """Return the bus addresses of the GPUs that the kernel driver knows; makes no call to a GPU."""
    return frozenset(list_names(proc / _FOLDERS))


def list_unbound(root: Path) -> list[str]:
    """Return the addresses of NVIDIA GPUs that no driver runs and nobody has set aside for another.

    In a container the bus shows GPUs that are not its business: no address is returned there.
    """
    if has_own_pids(root / "proc"):
        return []
    devices = list_graphics_devices(root / "sys", _VENDOR)
    return [it.address for it in devices if it.driver is None and not it.is_reserved]


def find_missing(
    root: Path, answering: Collection[DeviceIdentity], unbound: Collection[str] = ()
) -> list[KernelGpu]:
    """Return the GPUs that the kernel lists and that are not among those answering, in bus order.

    May block in the driver, as any read of its folder may.

    Args:
        root: Stands for `/`.
        answering: Identities of the devices that NVML gave out.
        unbound: From `list_unbound`; ignored where this user sees only a share of the GPUs.
    """
    addresses = {it.pci_address for it in answering}
    uuids = {it.uuid for it in answering}
    folders = {spell_address(name): name for name in list_gpu_folders(root / "proc")}
    missing: dict[str, KernelGpu] = {}
    is_whole = True  # the kernel describes every GPU that does not answer
    for address, folder in folders.items():
        gpu = None if address in addresses else _read_information(root, address, folder)
        if gpu is not None and gpu.uuid not in uuids:
            missing[address] = gpu
        elif address not in addresses and gpu is None:
            is_whole = False
    if is_whole and all(gpu.is_usable for gpu in missing.values()):
        missing |= {address: _describe_unbound(address) for address in unbound if address not in folders}
    return [gpu for _, gpu in sorted(missing.items())]


def _describe_unbound(address: str) -> KernelGpu:
    why = (
        f"the PCI bus lists this GPU at {address}, but no driver runs it: it could not be started; see "
        "`dmesg | grep -i -e nvrm -e xid`, then reboot"
    )
    return KernelGpu(address, None, "NVIDIA GPU", why, has_driver=False)


def _read_information(root: Path, address: str, folder: str) -> KernelGpu | None:
    """Return what the driver knows of a GPU; None if it does not say, or was asked to leave it out."""
    text = read_text(root / "proc" / _FOLDERS / folder / "information")
    if text is None:
        return None
    fields = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())
    }
    if fields.get("GPU Excluded", "").lower() == "yes":
        return None
    uuid = fields.get("GPU UUID", "")
    minor = fields.get("Device Minor", "")
    file_name = f"dev/nvidia{minor}"
    why = (
        f"the kernel driver lists this GPU at {address} (/{file_name}), but NVML does not count it: it "
        "fell off the bus or could not be started; see `dmesg | grep -i -e nvrm -e xid`, reset or reboot"
    )
    return KernelGpu(
        address,
        uuid if uuid and "?" not in uuid else None,
        fields.get("Model") or None,
        why,
        is_usable=minor.isdigit() and os.access(root / file_name, os.R_OK | os.W_OK),
    )


def match_missing(missing: Sequence[KernelGpu], unanswered: Sequence[int]) -> dict[int, KernelGpu]:
    """Assign missing GPUs to the indices that NVML counts and does not answer for, if that is certain.

    NVML numbers GPUs in the order of their bus addresses, so it is certain where both are as many. GPUs that
    this user may not use come into question only if the others are not enough.
    """
    for candidates in ([gpu for gpu in missing if gpu.is_usable], missing):
        if len(candidates) == len(unanswered):
            return dict(zip(sorted(unanswered), candidates, strict=True))
    return {}
