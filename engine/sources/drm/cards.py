"""Graphics cards that the kernel lists; no call here reaches a card."""

import os
from pathlib import Path
from typing import NamedTuple

from ..kernel_files import list_names

AMD = "amdgpu"
INTEL = ("i915", "xe")
# Cards that NVML reads.
_NVIDIA = "nvidia"
# Intel builds the GPU of a processor in at this place, and no other GPU there.
_INTEL_BUILT_IN = "0000:00:02.0"


class Card(NamedTuple):
    # Folder of the device below /sys/class/drm.
    folder: Path
    # On the PCI bus `0000:03:00.0`; else the name that the kernel has for the device, as `fb000000.gpu`.
    address: str
    driver: str

    @property
    def pci_address(self) -> str | None:
        return self.address if self.is_on_pci else None

    @property
    def is_on_pci(self) -> bool:
        return self.address.count(":") == 2

    @property
    def is_built_in(self) -> bool:
        """Whether it is known by its place to be part of the processor, without memory of its own."""
        return not self.is_on_pci or (self.driver in INTEL and self.address == _INTEL_BUILT_IN)

    def find_render_node(self) -> str | None:
        """Return the name of the file below /dev/dri that programs open; None if it cannot render."""
        names = list_names(self.folder / "drm")
        return next((name for name in sorted(names) if name.startswith("renderD")), None)


def list_cards(root: Path) -> list[Card]:
    """Return the GPUs that NVML does not read: AMD's first, then Intel's, each in the order of addresses.

    A node without graphics cards pays for one look at one folder. Reads links only, so no card wakes up. What
    only draws a console, such as the chip of a server's remote control, has no render node and is no GPU. A
    GPU that is part of the processor is one only where there is no other: its memory is the host's.
    """
    classes = root / "sys/class/drm"
    cards = []
    has_nvidia = False
    for name in list_names(classes):
        # Outputs are listed too: `card0-DP-1`.
        if not (name.startswith("card") and name[4:].isdigit()):
            continue
        folder = f"{classes}/{name}/device"
        try:
            # The last part of a link's text is the name; a path would cost ten times as much.
            driver = os.readlink(f"{folder}/driver").rpartition("/")[2]  # noqa: PTH115
            card = Card(Path(folder), os.readlink(folder).rpartition("/")[2], driver)  # noqa: PTH115
        except OSError:
            continue
        if driver == _NVIDIA:
            has_nvidia = True
        # AMD's partitions of a card are devices off the bus without files of their own.
        elif card.is_on_pci if driver == AMD else card.find_render_node() is not None:
            cards.append(card)
    cards.sort(key=lambda card: (card.driver != AMD, card.driver not in INTEL, card.address))
    if has_nvidia or any(not card.is_built_in for card in cards):
        return [card for card in cards if not card.is_built_in]
    return cards
