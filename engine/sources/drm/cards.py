"""Graphics cards that the kernel lists; no call here reaches a card."""

import os
from pathlib import Path
from typing import NamedTuple

from ..kernel_files import list_names


class Card(NamedTuple):
    # Folder of the device below /sys/class/drm.
    folder: Path
    pci_address: str


def list_cards(root: Path, driver: str) -> list[Card]:
    """Return the cards of a kernel driver in the order of their PCI addresses.

    A node without graphics cards pays for one look at one folder. Reads links only, so no card wakes up.
    """
    classes = root / "sys/class/drm"
    cards = []
    for name in list_names(classes):
        # Outputs are listed too: `card0-DP-1`.
        if not (name.startswith("card") and name[4:].isdigit()):
            continue
        folder = classes / name / "device"
        try:
            found = Path(os.readlink(folder / "driver")).name  # noqa: PTH115 - a link's text, not a path
            address = Path(os.path.realpath(folder)).name
        except OSError:
            continue
        # Partitions of a card are platform devices without files of their own.
        if found == driver and address.count(":") == 2:
            cards.append(Card(folder, address))
    return sorted(cards, key=lambda card: card.pci_address)
