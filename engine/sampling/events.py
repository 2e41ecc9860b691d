"""Errors that drivers reported in the last minute, from all sources, each once and with its device."""

from collections import deque
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ..model import DeviceEvent, DeviceSample
from ..sources.kernel_log import KernelLog, is_at

# How long an event stays in samples: whoever joins late or starts again sees it too.
KEPT_S = 60.0
MOST_EVENTS = 16


class RecentEvents:
    def __init__(self, log: KernelLog) -> None:
        self._log = log
        self._kept: deque[DeviceEvent] = deque(maxlen=MOST_EVENTS)

    def collect(
        self, devices: Sequence[DeviceSample], reported: Iterable[DeviceEvent], now_s: float
    ) -> tuple[DeviceEvent, ...]:
        """Return those of the last minute.

        Args:
            reported: What sources have reported since the last call.
        """
        for event in (*self._log.read(), *reported):
            self._add(_place(event, devices))
        while self._kept and now_s - self._kept[0].time_s > KEPT_S:
            self._kept.popleft()
        return tuple(self._kept)

    def close(self) -> None:
        self._log.close()

    def _add(self, event: DeviceEvent) -> None:
        """Keep an event, unless it is there from the other source; the log says more than NVML."""
        for position, kept in enumerate(self._kept):
            if kept.source != event.source and kept.is_same(event):
                if event.source == "kernel log":
                    self._kept[position] = event
                return
        self._kept.append(event)


def _place(event: DeviceEvent, devices: Sequence[DeviceSample]) -> DeviceEvent:
    """Return an event with the device at its address; MIG instances go with their GPU."""
    if event.device_uuid is not None or event.pci_address is None:
        return event
    whole = (device for device in devices if device.parent_uuid is None)
    uuid = next((it.uuid for it in whole if is_at(it.pci_address, event.pci_address)), None)
    return event if uuid is None else replace(event, device_uuid=uuid)
