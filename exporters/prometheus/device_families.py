"""What is told of devices: the figures of recordings under the same names, and whether they answer."""

from ...engine.model import DeviceSample
from ..recording.metrics import FAMILIES
from ..recording.rows import DeviceRow, RowReader
from .family import Family
from .picture import Picture

ROW_FAMILIES = tuple(Family[DeviceRow](it.name, it.kind, it.unit, it.help, it.read) for it in FAMILIES)
FREE = Family[DeviceSample](
    "vramscope_device_free_bytes", "gauge", "bytes", "Device free.", lambda it: it.memory.free_bytes
)
UP_NAME = "vramscope_device_up"
UP_HELP = "Whether the device answers: 0 is lost or stale."
AGE_NAME = "vramscope_device_age_seconds"
AGE_HELP = "Seconds since the memory of the device was last read."
INFO_NAME = "vramscope_device"
INFO_HELP = "The device: its name, its kind (`simulated` is a modelled card), its parent where it is MIG."
INFO_LABELS = ("name", "kind", "parent_uuid")


def read_rows(picture: Picture) -> dict[str, DeviceRow]:
    """Return the figures of the devices that answer, by UUID."""
    sample = picture.sample
    if sample is None or not picture.is_fresh:
        return {}
    answering = {device.uuid for device in sample.devices if device.state == "ok"}
    return {row.uuid: row for row in RowReader(has_nodes=False).rows([sample]) if row.uuid in answering}
