"""What is told of a node without the devices that are not wanted: applied where it is sent, and by who asked.

What is about the node as a whole stays, and a process whose device is not known.
"""

from msgspec.structs import replace

from ..alerts.state import AlertState
from ..history import HistoryBlock
from ..history.block import HOST_KEY
from ..model import Assessment, DeviceSample, Finding, HubStatus, Sample
from ..ranks.segments import PackedSegments
from .device_selection import DeviceSelection, describe_labels
from .messages import FindingBatch, Welcome

Told = Sample | FindingBatch | AlertState | HubStatus | PackedSegments
"""What is published of a node."""


def trim(told: Told, wanted: DeviceSelection, sample: Sample | None) -> Told | None:
    """Return what is told of the devices that are wanted; None where nothing is left of it.

    Args:
        told: What is published.
        wanted: Devices.
        sample: The newest of the node, by which what names a UUID alone is known.
    """
    if isinstance(told, Sample):
        return trim_sample(told, wanted)
    if isinstance(told, FindingBatch):
        return _trim_batch(told, wanted)
    if isinstance(told, AlertState):
        return trim_alerts(told, wanted, sample)
    if isinstance(told, PackedSegments):
        return trim_map(told, wanted, sample)
    return told


def trim_sample(sample: Sample, wanted: DeviceSelection) -> Sample:
    """Return a sample with the devices that are wanted, and the processes on them.

    Where none is, its first note says so, with what the devices of the node are called.
    """
    devices = tuple(it for it in sample.devices if wanted.wants(it.uuid, it.label))
    if len(devices) == len(sample.devices):
        return sample
    uuids: set[str | None] = {None, *(device.uuid for device in devices)}
    return replace(
        sample,
        devices=devices,
        ranks=tuple(it for it in sample.ranks if it.device_uuid in uuids),
        devices_left_out=sample.devices_left_out + len(sample.devices) - len(devices),
        notes=sample.notes if devices else (_explain_mismatch(sample, wanted), *sample.notes),
    )


def find_mismatch(sample: Sample) -> str | None:
    """Return in one sentence that no device of a node is wanted; None where one is."""
    is_empty = sample.devices_left_out > 0 and not sample.devices
    return sample.notes[0] if is_empty and sample.notes else None


def trim_findings(findings: tuple[Finding, ...], wanted: DeviceSelection) -> tuple[Finding, ...]:
    """Return the findings on devices that are wanted, and on the node as a whole."""
    return tuple(it for it in findings if it.device_uuid is None or wanted.wants(it.device_uuid, it.device))


def trim_assessments(assessments: tuple[Assessment, ...], wanted: DeviceSelection) -> tuple[Assessment, ...]:
    """Return the assessments of processes and devices that are wanted."""
    return tuple(
        it for it in assessments if it.device_uuid is None or wanted.wants(it.device_uuid, it.device)
    )


def trim_alerts(alerts: AlertState, wanted: DeviceSelection, sample: Sample | None) -> AlertState:
    """Return what was decided about devices that are wanted, and what became of their findings.

    Args:
        alerts: Of a node.
        wanted: Devices.
        sample: The newest of the node: it tells by which names a UUID is wanted.
    """
    uuids = _find_uuids(wanted, sample)
    return AlertState(
        tuple(it for it in alerts.acknowledged if it.device_uuid in uuids),
        tuple(it for it in alerts.mutes if it.device_uuid in uuids),
        tuple(it for it in alerts.changes if it.device_uuid in uuids),
    )


def trim_map(packed: PackedSegments, wanted: DeviceSelection, sample: Sample | None) -> PackedSegments | None:
    """Return a segment map of a device that is wanted; None of another."""
    return packed if packed.device_uuid in _find_uuids(wanted, sample) else None


def trim_welcome(welcome: Welcome, wanted: DeviceSelection) -> Welcome:
    """Return everything that a hub knows of the devices that are wanted."""
    sample = welcome.sample
    return replace(
        welcome,
        sample=None if sample is None else trim_sample(sample, wanted),
        findings=trim_findings(welcome.findings, wanted),
        history=trim_history(welcome.history, wanted),
        assessments=trim_assessments(welcome.assessments, wanted),
        alerts=trim_alerts(welcome.alerts, wanted, sample),
    )


def trim_history(block: HistoryBlock, wanted: DeviceSelection) -> HistoryBlock:
    """Return a history with the columns of the host, of devices that are wanted and of processes on them."""
    devices = {
        uuid: it
        for uuid, it in block.devices.items()
        if wanted.wants(uuid, DeviceSample(uuid, it.index, kind=it.kind, mig_index=it.mig_index).label)
    }
    ranks = {key: it for key, it in block.ranks.items() if it.device_uuid in (None, *devices)}
    kept = {HOST_KEY, *devices, *ranks}
    return replace(
        block,
        devices=devices,
        fine={key: it for key, it in block.fine.items() if key in kept},
        coarse={key: it for key, it in block.coarse.items() if key in kept},
        ranks=ranks,
        peaks={uuid: it for uuid, it in block.peaks.items() if uuid in devices},
    )


def _find_uuids(wanted: DeviceSelection, sample: Sample | None) -> set[str | None]:
    """Return the UUIDs of the devices of a sample that are wanted, and None for what is of no device."""
    devices = () if sample is None else sample.devices
    return {None, *(it.uuid for it in devices if wanted.wants(it.uuid, it.label))}


def _trim_batch(batch: FindingBatch, wanted: DeviceSelection) -> FindingBatch | None:
    findings = trim_findings(batch.findings, wanted)
    if not findings and batch.assessments is None:
        return None
    assessments = None if batch.assessments is None else trim_assessments(batch.assessments, wanted)
    return FindingBatch(findings, assessments)


def _explain_mismatch(sample: Sample, wanted: DeviceSelection) -> str:
    known = describe_labels(device.label for device in sample.devices)
    return f"No device of {sample.node} matches --devices {wanted.text}: it has {known}"
