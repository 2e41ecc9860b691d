"""What a hub publishes, as messages: whole, and of some devices alone."""

from ..alerts.state import AlertState
from ..model import HubStatus, Sample
from ..ranks.segments import PackedSegments
from .cells import take_cells
from .device_selection import DeviceSelection
from .device_trimming import Told, trim
from .envelope import encode
from .messages import TOPIC_CELLS, FindingBatch

_KINDS: dict[type[Told], str] = {
    Sample: "sample",
    FindingBatch: "findings",
    AlertState: "alerts",
    HubStatus: "hub",
    PackedSegments: "segments",
}


def encode_told(topic: bytes, hub_id: str, told: Told) -> bytes:
    """Return the message in which something is published under a topic."""
    if topic == TOPIC_CELLS and isinstance(told, Sample):
        return encode("sample", hub_id, take_cells(told))
    return encode(_KINDS[type(told)], hub_id, told)


def encode_wanted(
    topic: bytes, hub_id: str, told: Told, wanted: DeviceSelection, sample: Sample | None
) -> bytes | None:
    """Return the same of the devices that are wanted alone; None where nothing is left of it.

    Args:
        topic: Under which it is published.
        hub_id: Of the hub.
        told: What is published.
        wanted: Devices.
        sample: The newest of the node.
    """
    trimmed = trim(told, wanted, sample)
    return None if trimmed is None else encode_told(topic, hub_id, trimmed)
