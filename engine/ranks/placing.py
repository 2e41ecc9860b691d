"""Which device a training process lives on, by what names it: UUID, PCI address, process list, ordinal."""

from collections.abc import Sequence
from pathlib import Path

from ..model import DeviceSample
from .messages import Hello, ProbedDevice
from .track import ProcessKey, RankTrack

_REAL_KINDS = ("gpu", "mig", "unified", "vgpu")
_DRIVER = "driver/nvidia/gpus"
_UUID_FIELD = "GPU UUID:"


def simulated_uuid(hello: Hello) -> str:
    """Return the key of the simulated device that a process says it is on."""
    device = hello.device or ProbedDevice(index=0)
    return device.uuid or f"sim-{hello.job or 'job'}-{device.index}"


def cpu_uuid(node: str) -> str:
    """Return the key of the device that stands for the processors of a node."""
    return f"cpu-{node}"


class Placing:
    """Matches ranks to devices.

    Args:
        node: Name of the node.
        proc: Where the proc file system is mounted.
    """

    def __init__(self, node: str, proc: Path = Path("/proc")) -> None:
        self._node = node
        self._proc = proc
        self._by_address: dict[str, str | None] = {}
        self._visible: dict[ProcessKey, list[str] | None] = {}

    def find(self, track: RankTrack, devices: Sequence[DeviceSample]) -> str | None:
        """Return the UUID of the device that a rank lives on; None where nothing names it for certain."""
        hello = track.hello
        if hello.is_simulated:
            return simulated_uuid(hello)
        if hello.backend == "cpu":
            return cpu_uuid(self._node)
        if hello.device is None:
            return None
        real = [device for device in devices if device.kind in _REAL_KINDS]
        named = self._find_named(hello.device, real)
        holding = _find_holding(track.pid, real) if track.is_visible else []
        if named is not None:
            instances = [d.uuid for d in real if d.parent_uuid == named and d.uuid in holding]
            return instances[0] if len(instances) == 1 else named
        if len(holding) == 1:
            return holding[0]
        return self._find_visible(track, hello.device.index, real)

    def forget(self, tracks: Sequence[RankTrack]) -> None:
        """Drop what is remembered of processes that are not among these."""
        kept = {track.key for track in tracks}
        self._visible = {key: value for key, value in self._visible.items() if key in kept}

    def _find_named(self, probed: ProbedDevice, devices: Sequence[DeviceSample]) -> str | None:
        uuids = {_plain(device.uuid): device.uuid for device in devices}
        names = [probed.uuid, self._uuid_at(probed.pci_bus_id) if probed.pci_bus_id else None]
        found = (uuids.get(_plain(name)) for name in names if name)
        return next((uuid for uuid in found if uuid is not None), None)

    def _uuid_at(self, address: str) -> str | None:
        """Return the UUID that the driver tells of the device at a PCI address, read once."""
        if address not in self._by_address:
            self._by_address[address] = self._read_uuid(address)
        return self._by_address[address]

    def _read_uuid(self, address: str) -> str | None:
        wanted = _plain_address(address)
        try:
            folders = [f for f in (self._proc / _DRIVER).iterdir() if _plain_address(f.name) == wanted]
            lines = (folders[0] / "information").read_text().splitlines() if folders else []
        except OSError:
            return None
        told = [line.partition(_UUID_FIELD)[2].strip() for line in lines if line.startswith(_UUID_FIELD)]
        return told[0] if told else None

    def _find_visible(self, track: RankTrack, ordinal: int, devices: Sequence[DeviceSample]) -> str | None:
        """Count as CUDA does, where its order and the driver's are sure to be the same."""
        whole = [device for device in devices if device.mig_index is None]
        key = track.key
        if key not in self._visible:
            self._visible[key] = self._read_visible(track.pid) if track.is_visible else None
        visible = self._visible[key]
        if not whole or visible is None or len({(d.name, d.memory.total_bytes) for d in whole}) > 1:
            return None
        words = visible or [str(device.index) for device in whole]
        word = words[ordinal] if ordinal < len(words) else ""
        if word.isdigit():
            return next((device.uuid for device in whole if device.index == int(word)), None)
        starting = [device.uuid for device in devices if word and device.uuid.startswith(word)]
        return starting[0] if len(starting) == 1 else None

    def _read_visible(self, pid: int) -> list[str] | None:
        """Return the words of a process's CUDA_VISIBLE_DEVICES: empty where unset, None where unreadable."""
        try:
            entries = (self._proc / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            return None
        name = b"CUDA_VISIBLE_DEVICES="
        values = [entry[len(name) :].decode(errors="replace") for entry in entries if entry.startswith(name)]
        return [word.strip() for word in values[0].split(",")] if values else []


def _find_holding(pid: int, devices: Sequence[DeviceSample]) -> list[str]:
    """Return the devices in whose process lists a pid of this namespace stands."""
    return [
        device.uuid
        for device in devices
        if any(p.pid == pid and p.location in ("here", "container") for p in device.processes or ())
    ]


def _plain(uuid: str) -> str:
    """Return a UUID without the prefix that NVML has and PyTorch leaves out."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _plain_address(address: str) -> str:
    """Return a PCI address with a domain of four digits; drivers write four or eight."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}" if rest.count(":") else f"0000:{address.lower()}"
