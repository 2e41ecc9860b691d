"""The source `drm`: finds the GPUs of this machine that NVML does not read."""

import mmap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from types import ModuleType

from msgspec.structs import replace

from ...errors import SourceUnavailableError
from ...text import make_printable
from ..kernel_files import read_text
from ..processes import ProcessTable
from ..source import DeviceIdentity
from .amd import MOST_NAME_CHARS, AmdReader, identify_amd
from .cards import AMD, INTEL, Card, list_cards
from .dmem import DmemGroup
from .fdinfo import COST_SHARE, COST_SHARE_AMD, ClientScan
from .intel import IntelReader
from .kfd import KfdProcesses
from .reader import DrmReader, Shared
from .smi import AmdSmi, load_binding

# Lists of what is on a PCI bus, where distributions put them.
_PCI_NAMES = ("usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids")
_MOST_PCI_NAMES_BYTES = 1 << 23
_VENDORS = {"8086": "Intel", "1002": "AMD", "10de": "NVIDIA"}


class DrmSource:
    """GPUs of AMD, of Intel and of all other drivers of the Direct Rendering Manager, in this order."""

    name = "drm"

    def __init__(
        self,
        root: Path = Path("/"),
        clock_s: Callable[[], float] = monotonic,
        *,
        load_smi: Callable[[], ModuleType | None] | None = None,
    ) -> None:
        self._root = root
        if load_smi is None:  # the library knows of this machine's own files only
            load_smi = load_binding if root == Path("/") else _load_nothing
        self._shared = Shared(
            root=root,
            clients=ClientScan(root, clock_s, time.thread_time),
            kfd=KfdProcesses(root, clock_s),
            dmem=DmemGroup(root, clock_s),
            table=ProcessTable(root, clock_s, device_files=("/dev/kfd", "/dev/dri/"), control_file="dev/kfd"),
            clock_s=clock_s,
            smi=AmdSmi(load_smi),
        )
        self._readers: dict[str, DrmReader] = {}
        # Product names of AMD's by device id and revision; of all others by vendor and device id.
        self._amd_names: dict[tuple[str, str], str] = {}
        self._names: dict[tuple[str, str], str | None] = {}

    def discover(self) -> Sequence[DrmReader]:
        """Return the GPUs; one that sleeps is found and not woken.

        Raises:
            SourceUnavailableError: There is none any more.
        """
        cards = list_cards(self._root)
        if not cards:
            raise SourceUnavailableError(
                "No kernel driver runs a GPU any more; see `lspci -k` and `dmesg | grep -i -e drm -e amdgpu`."
            )
        if any(card.driver == AMD for card in cards):
            self._shared.kfd.find_nodes()
        is_amd_only = all(card.driver == AMD for card in cards)
        self._shared.clients.cost_share = COST_SHARE_AMD if is_amd_only else COST_SHARE
        self._shared.dmem.find_regions()
        readers = {}
        for index, card in enumerate(cards):
            identity = self._identify(card, index)
            reader = self._readers.get(identity.uuid)
            if reader is None or not reader.is_of(card, identity):
                reader = _choose_reader(card)(card, identity, self._shared)
            readers[identity.uuid] = reader
        self._readers = readers
        return list(readers.values())

    def close(self) -> None:
        """Files close by themselves."""
        self._readers = {}
        self._shared.smi.close()

    def _identify(self, card: Card, index: int) -> DeviceIdentity:
        if card.driver == AMD:
            identity = identify_amd(card, index, self._root, self._amd_names)
        else:
            identity = DeviceIdentity(
                uuid=f"{card.driver}-{card.address}",
                index=index,
                name=self._find_name(card),
                pci_address=card.pci_address,
            )
        return replace(identity, name=make_printable(identity.name or "", MOST_NAME_CHARS))

    def _find_name(self, card: Card) -> str:
        vendor, device = (
            (read_text(card.folder / name) or "").lower().removeprefix("0x") for name in ("vendor", "device")
        )
        if not device:
            return f"GPU of the driver {card.driver}"
        key = vendor, device
        if key not in self._names:
            paths = [self._root / path for path in _PCI_NAMES]
            found = (find_pci_name(path, vendor, device) for path in paths)
            self._names[key] = next((name for name in found if name is not None), None)
        maker = _VENDORS.get(vendor, "")
        return f"{maker} {self._names[key] or f'GPU {device}'}".strip()


def _load_nothing() -> None:
    return None


def _choose_reader(card: Card) -> type[DrmReader]:
    if card.driver == AMD:
        return AmdReader
    return IntelReader if card.driver in INTEL else DrmReader


def find_pci_name(path: Path, vendor: str, device: str) -> str | None:
    """Return the name of a device in a list such as pci.ids; its trade name where one is in brackets.

    A vendor is a line `8086  Intel Corporation`; its devices follow: a tab, `56a0  DG2 [Arc A770]`.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            if len(text) > _MOST_PCI_NAMES_BYTES:
                return None
            start = text.find(f"\n{vendor}  ".encode()) + 1
            end = start and text.find(b"\n\t", start)
            if not start or end < 0:
                return None
            found = text.find(f"\n\t{device}  ".encode(), start)
            # The next vendor begins where a line does not begin with a tab.
            line_end = text.find(b"\n", found + 1)
            between = text[start:found] if found >= 0 else b""
            name = text[found + 8 : line_end if line_end >= 0 else len(text)]
    except (OSError, ValueError):  # absent, or empty, which cannot be mapped
        return None
    lines = between.split(b"\n")[1:]
    if found < 0 or any(line and not line.startswith((b"\t", b"#")) for line in lines):
        return None
    plain = name.decode("utf-8", "replace").strip()
    _, bracket, trade = plain.rpartition("[")
    return trade.rstrip("]") if bracket and plain.endswith("]") else plain or None
