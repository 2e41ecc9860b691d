"""How promptly a sample is needed, which decides how often hub and worker wake up."""

from ..model import Sample

# From this share of a device in use on, every sample is urgent.
URGENT_SHARE = 0.9


def is_urgent_sample(sample: Sample) -> bool:
    """Return whether findings may depend on a sample within seconds.

    So they may where a training process reports or the host is the device, and near the end of a device's
    memory.
    """
    if sample.ranks or sample.events or sample.servers:
        return True
    return any(
        device.state != "ok"
        or device.kind == "unified"
        or (device.memory.used_max_bytes or 0) >= URGENT_SHARE * (device.memory.total_bytes or 0)
        for device in sample.devices
    )
