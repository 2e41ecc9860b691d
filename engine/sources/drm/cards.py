"""Graphics cards that the kernel lists, and small files of theirs; no call here reaches a card."""

import os
from pathlib import Path
from typing import NamedTuple

from ..host import KeptFile

# Longest number that any of these files may hold, in digits.
_MOST_DIGITS = 20
_MOST_BYTES = 4096


class Card(NamedTuple):
    # Folder of the device below /sys/class/drm.
    folder: Path
    pci_address: str


def list_cards(root: Path, driver: str) -> list[Card]:
    """Return the cards of a kernel driver in the order of their PCI addresses.

    A node without graphics cards pays for one look at one folder. Reads links only, so no card wakes up.
    """
    classes = root / "sys/class/drm"
    try:
        names = os.listdir(classes)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return []
    cards = []
    for name in names:
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


class NumberFile:
    """A file with one decimal number, read again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = KeptFile(str(path), 64)

    def read(self) -> int | None:
        """Return the number; None if the file is absent, empty or holds anything else."""
        return parse_number(self._file.read())


def parse_number(data: bytes | None) -> int | None:
    text = (data or b"").strip()
    return int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else None


def read_text(path: Path, most_bytes: int = _MOST_BYTES) -> str | None:
    """Return the beginning of a small file, None if it is absent, empty or unreadable."""
    try:
        with path.open("rb", buffering=0) as file:
            text = file.read(most_bytes).decode("utf-8", errors="replace").strip()
    except OSError:
        return None
    return text or None
