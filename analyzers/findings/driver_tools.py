"""Commands by which a person looks after a GPU, by the maker of its driver, as advice names them.

`amd-smi reset --gpureset` takes a number, an address or a UUID, and needs root (AMD SMI's command line tool).
"""

from typing import Literal, NamedTuple

from ...engine.model import DeviceSample


class DriverTools(NamedTuple):
    # Shows what the driver wrote into the kernel's log.
    log: str
    # Shows the memory errors that the driver counts.
    memory_errors: str | None = None
    # Resets the devices, and with `choice` one of them; without a command the kernel driver is loaded again.
    reset: str | None = None
    choice: str = ""

    def word_reset(self, device: DeviceSample | None = None) -> str:
        """Return how to reset a device; None for whichever is meant."""
        if self.reset is None:
            return "load its kernel driver again"
        if device is None:
            return f"`{self.reset}`"
        # Numbers of ours go on after those of another maker; an address is the same everywhere.
        place = device.index if self is NVIDIA else device.pci_address or device.index
        return f"`{self.reset} {self.choice} {place}`"


NVIDIA = DriverTools(
    "dmesg | grep -i -e nvrm -e xid", "nvidia-smi -q -d ECC", "sudo nvidia-smi --gpu-reset", "-i"
)
AMD = DriverTools(
    "dmesg | grep -i amdgpu", "rocm-smi --showrasinfo", "sudo amd-smi reset --gpureset", "--gpu"
)
INTEL = DriverTools("dmesg | grep -i -e i915 -e xe")
OTHER = DriverTools("dmesg | grep -i drm")


def find_maker(device: DeviceSample) -> Literal["AMD", "Intel", "NVIDIA"] | None:
    """Return who made a device, by its name or by the form of its UUID; None where neither says it."""
    match (device.name or "").partition(" ")[0]:
        case "AMD" | "ATI":
            return "AMD"
        case "Intel":
            return "Intel"
        case "NVIDIA":
            return "NVIDIA"
    return "NVIDIA" if device.uuid.startswith(("GPU-", "MIG-")) else None


def find_tools(device: DeviceSample) -> DriverTools:
    """Return the tools for a device; those of NVIDIA where nothing says who made it."""
    return {"AMD": AMD, "Intel": INTEL}.get(find_maker(device) or "", NVIDIA)
