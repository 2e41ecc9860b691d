"""GPUs that the driver knows of and cannot reach: named from /proc/driver/nvidia, so their loss shows."""

from pathlib import Path

from ...model import MemoryReading
from ..source import DeviceDetails, DeviceIdentity
from .codes import Code, make_lost_error


class LostReader:
    """A GPU that was off the bus when it was looked for; it has no handle."""

    def __init__(self, identity: DeviceIdentity) -> None:
        self.identity = identity

    def read_memory(self) -> MemoryReading:
        """Raise that the GPU is lost.

        Raises:
            DeviceLostError: Always.
        """
        raise make_lost_error(Code.GPU_IS_LOST)

    def read_details(self) -> DeviceDetails:
        """Raise that the GPU is lost.

        Raises:
            DeviceLostError: Always.
        """
        raise make_lost_error(Code.GPU_IS_LOST)


def list_gpu_folders(proc: Path) -> frozenset[str]:
    """Return the bus addresses of the GPUs that the kernel driver knows; asks no GPU anything."""
    try:
        return frozenset(folder.name for folder in (proc / "driver/nvidia/gpus").iterdir())
    except OSError:
        return frozenset()


def find_lost_identities(proc: Path, known: set[str], lost_count: int) -> list[DeviceIdentity]:
    """Return who the lost GPUs are, where that is certain.

    The kernel driver may know more GPUs than this user may see (a Slurm job on a share of the node), so
    the ones that NVML did not list are taken for the lost only where they are as many.

    Args:
        proc: Where the proc file system is mounted.
        known: UUIDs of the devices that answer.
        lost_count: How many devices NVML counted without giving a handle.
    """
    if lost_count == 0:
        return []
    told = [_read_information(proc / "driver/nvidia/gpus" / name) for name in list_gpu_folders(proc)]
    missing = [identity for identity in told if identity is not None and identity.uuid not in known]
    return sorted(missing, key=lambda identity: identity.index) if len(missing) == lost_count else []


def _read_information(folder: Path) -> DeviceIdentity | None:
    try:
        text = (folder / "information").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())
    }
    uuid, minor = fields.get("GPU UUID", ""), fields.get("Device Minor", "")
    if not uuid or "?" in uuid or not minor.isdigit():
        return None
    return DeviceIdentity(uuid=uuid, index=int(minor), name=fields.get("Model"))
