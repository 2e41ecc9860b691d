"""What was heard of a node without the devices for which nobody asked."""

from msgspec.structs import replace

from ..alerts.state import AlertState
from ..model import Finding, Sample
from ..ranks.segments import PackedSegments
from ..wire.device_selection import DeviceSelection
from ..wire.device_trimming import (
    trim_alerts,
    trim_assessments,
    trim_findings,
    trim_map,
    trim_sample,
    trim_welcome,
)
from .conversation import Assessed, Event, Joined


def trim_event(event: Event, wanted: DeviceSelection, sample: Sample | None) -> Event | None:
    """Return what was heard of the devices that are wanted; None where nothing is left of it.

    Args:
        event: What was heard.
        wanted: Devices.
        sample: The newest of the node.
    """
    if isinstance(event, Sample):
        return trim_sample(event, wanted)
    if isinstance(event, Joined):
        return replace(event, welcome=trim_welcome(event.welcome, wanted))
    if isinstance(event, Finding):
        return event if trim_findings((event,), wanted) else None
    if isinstance(event, Assessed):
        return Assessed(trim_assessments(event.assessments, wanted))
    if isinstance(event, AlertState):
        return trim_alerts(event, wanted, sample)
    return trim_map(event, wanted, sample) if isinstance(event, PackedSegments) else event
