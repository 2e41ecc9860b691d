"""How sentences name a device: the noun that fits its kind, and its label."""

from collections.abc import Sequence

from ..engine.model import DeviceSample


def name_device(device: DeviceSample) -> str:
    """Return what a sentence calls a device: `GPU 3`, `MIG 0:1`, `rank 3` or `CPU`."""
    return "CPU" if device.kind == "cpu" else f"{_noun(device)} {device.label}"


def name_devices(devices: Sequence[DeviceSample]) -> str:
    """Return what a sentence calls several devices: `GPUs 0, 2 and 5`, or their number past four."""
    if len(devices) == 1:
        return name_device(devices[0])
    nouns = {_noun(device) for device in devices}
    noun = nouns.pop() if len(nouns) == 1 else "device"
    if len(devices) > 4:
        return f"{len(devices)} {noun}s"
    labels = [device.label for device in devices]
    return f"{noun}s {', '.join(labels[:-1])} and {labels[-1]}"


def _noun(device: DeviceSample) -> str:
    if device.kind == "trace":
        return "rank"
    return "MIG" if device.kind == "mig" else "GPU"
