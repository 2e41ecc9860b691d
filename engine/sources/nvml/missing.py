"""GPUs that NVML counts and that cannot be reached: lost, or hanging in the driver. Their rows stay.

Who they are is told by /proc/driver/nvidia as far as that is certain.
"""

from pathlib import Path
from time import monotonic

from ...errors import DeviceError
from ...model import MemoryReading
from ..source import DeviceDetails, DeviceIdentity
from .codes import DEAD_HANDLE_CODES, Code, make_lost_error


class LostReader:
    """A GPU that was off the bus when it was looked for; it has no handle.

    Args:
        identity: Who it is, or who stands in for it.
        code: What NVML returned instead of a handle.
    """

    def __init__(self, identity: DeviceIdentity, code: int = Code.GPU_IS_LOST) -> None:
        self.identity = identity
        self._code = code if code in DEAD_HANDLE_CODES else Code.GPU_IS_LOST

    def read_memory(self) -> MemoryReading:
        """Raise that the GPU is lost.

        Raises:
            DeviceLostError: Always.
        """
        raise make_lost_error(self._code)

    def read_details(self) -> DeviceDetails:
        """Raise that the GPU is lost.

        Raises:
            DeviceLostError: Always.
        """
        raise make_lost_error(self._code)


class HungReader:
    """A GPU in whose driver calls a thread hangs since it was looked for; it is asked nothing meanwhile.

    Args:
        identity: Who it is, or who stands in for it.
        since_s: When the call was made, in monotonic seconds.
    """

    def __init__(self, identity: DeviceIdentity, since_s: float) -> None:
        self.identity = identity
        self._since_s = since_s

    def read_memory(self) -> MemoryReading:
        """Raise that the driver does not answer for this GPU.

        Raises:
            DeviceError: Always.
        """
        raise self._make_error()

    def read_details(self) -> DeviceDetails:
        """Raise that the driver does not answer for this GPU.

        Raises:
            DeviceError: Always.
        """
        raise self._make_error()

    def _make_error(self) -> DeviceError:
        return DeviceError(f"a driver call has not returned for {monotonic() - self._since_s:.0f} s")


def list_gpu_folders(proc: Path) -> frozenset[str]:
    """Return the bus addresses of the GPUs that the kernel driver knows; asks no GPU anything."""
    try:
        return frozenset(folder.name for folder in (proc / "driver/nvidia/gpus").iterdir())
    except OSError:
        return frozenset()


def find_missing_identities(proc: Path, known: set[str], indices: list[int]) -> list[DeviceIdentity]:
    """Return who the GPUs of some indices are, where that is certain, else nothing.

    The kernel driver may know more GPUs than this user may see (a Slurm job on a share of the node), so
    the ones that NVML did not name are taken for the missing only where they are as many. NVML numbers
    GPUs in the order of their bus addresses. May block in the driver, as any look into its folder may.

    Args:
        proc: Where the proc file system is mounted.
        known: UUIDs of the devices that are known.
        indices: NVML's numbers of the others.
    """
    folders = [proc / "driver/nvidia/gpus" / name for name in sorted(list_gpu_folders(proc), key=str.lower)]
    told = [identity for folder in folders if (identity := _read_information(folder)) is not None]
    missing = [identity for identity in told if identity[0] not in known]
    if len(missing) != len(indices):
        return []
    return [
        DeviceIdentity(uuid=uuid, index=index, name=name)
        for index, (uuid, name) in zip(sorted(indices), missing, strict=True)
    ]


def _read_information(folder: Path) -> tuple[str, str | None] | None:
    """Return UUID and model of a GPU; None where the driver does not tell, as before its first use."""
    try:
        text = (folder / "information").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())
    }
    uuid = fields.get("GPU UUID", "")
    return None if not uuid or "?" in uuid else (uuid, fields.get("Model"))
