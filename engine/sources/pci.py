"""Addresses of devices on the PCI bus, and what sysfs says of them without a call to the device."""

import os
from pathlib import Path
from typing import NamedTuple

from .kernel_files import list_names, read_text

_DISPLAY_CLASS = "0x03"


def spell_address(address: str) -> str:
    """Spell an address as the kernel does, `0000:41:00.0`; NVML writes the domain with eight digits."""
    domain, _, rest = address.strip().lower().partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}" if rest.count(":") else f"0000:{address.strip().lower()}"


class PciDevice(NamedTuple):
    address: str
    vendor: int
    device: int
    driver: str | None
    """Name of the kernel driver that is bound to it."""
    is_reserved: bool
    """Set aside by an administrator for a certain driver (`driver_override`), as for a virtual machine."""


def list_graphics_devices(sys: Path, vendor: int) -> list[PciDevice]:
    """Return the display controllers of a vendor in the order of their addresses; does not wake them."""
    bus = sys / "bus/pci/devices"
    folders = [bus / name for name in sorted(list_names(bus))]
    wanted = [it for it in folders if _read_hex(it / "vendor") == vendor]
    return [
        PciDevice(
            address=folder.name,
            vendor=vendor,
            device=_read_hex(folder / "device") or 0,
            driver=_read_driver(folder),
            is_reserved=(read_text(folder / "driver_override") or "(null)") != "(null)",
        )
        for folder in wanted
        if (read_text(folder / "class") or "").startswith(_DISPLAY_CLASS)
    ]


def _read_driver(folder: Path) -> str | None:
    try:
        return Path(os.readlink(folder / "driver")).name  # noqa: PTH115 - a link's text, not a path
    except OSError:
        return None


def _read_hex(path: Path) -> int | None:
    try:
        return int(read_text(path) or "", 16)
    except ValueError:
        return None
